"""Datasets: the synthetic bench as specified, files of every format, and what is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from icml26 import RunContext
from icml26.errors import InputError
from icml26.fingerprints import fingerprint
from icml26_plugin_subspace_sae import metrics
from icml26_plugin_subspace_sae.activation_files import read_activations, read_array
from icml26_plugin_subspace_sae.datasets import ActivationFile, LowrankSparseData, split_rows
from icml26_plugin_subspace_sae.lowrank_sparse import PRESETS, LowrankSparse, draw
from icml26_plugin_subspace_sae.rank import covariance_of, effective_rank
from pydantic import ValidationError
from safetensors.torch import save_file

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 6)).astype(np.float32)
CUBE = RNG.standard_normal((5, 4, 6)).astype(np.float32)


def ctx(seed: int = 0) -> RunContext:
    return RunContext(seed, stream=0)


def load(path: Path, **config: Any) -> Any:
    return ActivationFile(ActivationFile.Config(path=path, **config)).load(ctx())


# The synthetic bench.


def test_rows_lie_in_the_subspace_up_to_the_noise() -> None:
    sample = draw(np.random.default_rng(0), PRESETS["collapsed"], 2000, 500)
    outside = sample.test - sample.test @ sample.basis @ sample.basis.T
    assert outside.std() == pytest.approx(1e-2 * np.sqrt(48 / 64), rel=0.03)
    np.testing.assert_allclose(sample.basis.T @ sample.basis, np.eye(16), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(sample.features, axis=1), 1)
    np.testing.assert_allclose(sample.features @ sample.basis @ sample.basis.T, sample.features, atol=1e-12)
    assert not np.shares_memory(sample.train, sample.test)


@pytest.mark.parametrize(("preset", "share"), [("collapsed", 0.31), ("mild", 0.51)])
def test_effective_rank_of_the_presets_is_that_of_the_brief(preset: str, share: float) -> None:
    sample = draw(np.random.default_rng(0), PRESETS[preset], 8000, 2)
    values = covariance_of([sample.train]).spectrum().singular_values
    assert effective_rank(values) / 64 == pytest.approx(share, abs=0.02)


def test_features_are_as_frequent_as_they_should_be() -> None:
    design = LowrankSparse(d=8, r=8, n_features=8, l0=2, noise=0.0)
    chances = design.probabilities()
    assert chances.sum() == pytest.approx(2)
    assert chances[0] / chances[5] == pytest.approx((15 / 10) ** 0.8)
    sample = draw(np.random.default_rng(1), design, 20_000, 2)
    # The mean of x is sum P(i) E[amplitude] f_i with E = 1; decay 0 leaves features at length 1.
    np.testing.assert_allclose(sample.train.mean(axis=0), chances @ sample.features, atol=0.02)


def test_presets_differ_from_options_only_where_told() -> None:
    config = LowrankSparseData.Config(preset="mild", r=20, features_per_dimension=8)
    assert config.design() == LowrankSparse(r=20, n_features=160, decay=3.0)
    assert LowrankSparseData.Config().design() == PRESETS["collapsed"]
    with pytest.raises(ValidationError, match="set one"):
        LowrankSparseData.Config(n_features=3, features_per_dimension=2)


@pytest.mark.parametrize(
    ("config", "named"), [({"r": 65}, "r=65"), ({"l0": 200.0, "n_features": 256}, r"probability [1-9]")]
)
def test_designs_that_cannot_be_drawn_are_refused(config: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        LowrankSparseData(LowrankSparseData.Config(**config)).load(ctx())


def test_seeds_are_replications_and_a_seed_of_its_own_wins() -> None:
    def prints(**config: Any) -> list[str]:
        options = {"train_rows": 50, "test_rows": 20, **config}
        return [fingerprint(LowrankSparseData(LowrankSparseData.Config(**options)).load(ctx(s))) for s in (0, 0, 1)]

    first, again, other = prints()
    assert first == again != other
    fixed = prints(seed=7)
    assert fixed[0] == fixed[2] != first


def test_perfect_output_beats_the_broken_one() -> None:
    dataset = LowrankSparseData(LowrankSparseData.Config(train_rows=50, test_rows=200, n_features=64))
    problem = dataset.load(ctx())
    best, worst = dataset.perfect(problem), dataset.broken(problem)
    assert metrics.dead_fraction(best, problem.truth)[""] == 0 < metrics.dead_fraction(worst, problem.truth)[""]
    assert metrics.fvu(best, problem.truth) < 0.01 < 1 < metrics.fvu(worst, problem.truth)
    assert metrics.feature_recall(best, problem.truth)[""] == 1 > metrics.feature_recall(worst, problem.truth)[""]


# Files.


def written(folder: Path, kind: str, array: np.ndarray) -> tuple[Path, str | None]:
    path = folder / f"my acts ü.{kind}"
    if kind == "npy":
        np.save(path, array)
    elif kind == "npz":
        np.savez_compressed(path, acts=array)
    elif kind == "safetensors":
        save_file({"acts": torch.from_numpy(array)}, path)
    else:
        torch.save(torch.from_numpy(array), path)
    return path, None


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors", "pt"])
def test_every_format_is_read_and_split_at_the_tail(kind: str, tmp_path: Path) -> None:
    path, _ = written(tmp_path, kind, X)
    problem = load(path)
    np.testing.assert_array_equal(problem.inputs.activations, X[:32])
    np.testing.assert_array_equal(problem.truth.activations, X[32:])
    assert problem.truth.targets is None and problem.info == {"rows": 32, "test_rows": 8, "dropped": 0}


def test_matrices_stay_on_disk(tmp_path: Path) -> None:
    path, _ = written(tmp_path, "npy", X)
    problem = load(path)
    assert isinstance(problem.inputs.activations, np.memmap)
    assert not np.shares_memory(problem.inputs.activations, problem.truth.activations)


def test_bfloat16_and_float16_become_float32(tmp_path: Path) -> None:
    torch.save({"acts": torch.from_numpy(X).bfloat16()}, tmp_path / "a.pt")
    np.save(tmp_path / "b.npy", X.astype(np.float16))
    for name, close in (("a.pt", 1e-2), ("b.npy", 1e-3)):
        found = load(tmp_path / name).inputs.activations
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, X[:32], rtol=close, atol=close)


def test_masked_positions_and_the_first_ones_are_dropped(tmp_path: Path) -> None:
    mask = np.ones((5, 4), dtype=np.int64)
    mask[1, 3] = mask[2, 0] = 0  # padding at the right, and at the left
    np.savez(tmp_path / "a.npz", acts=CUBE, mask=mask)
    found = read_activations(tmp_path / "a.npz", key="acts", mask_key="mask", drop_first=1)
    assert found.dropped == 2 + 5 and len(found.rows) == 13
    np.testing.assert_array_equal(found.rows[:3], CUBE[0, 1:])
    np.testing.assert_array_equal(found.rows[3:5], CUBE[1, 1:3])
    np.testing.assert_array_equal(found.rows[5:7], CUBE[2, 2:4])
    assert found.sequence is not None and found.sequence.tolist() == [0] * 3 + [1] * 2 + [2] * 2 + [3] * 3 + [4] * 3


@pytest.mark.parametrize("split", ["tail", "random"])
def test_sequences_are_held_out_whole(split: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", CUBE)
    problem = load(tmp_path / "a.npy", test_fraction=0.4, split=split)
    whole = problem.truth.activations.reshape(2, 4, 6)
    assert all(any(np.array_equal(sequence, known) for known in CUBE) for sequence in whole)
    assert len(problem.inputs.activations) == 12


def test_splits_partition_the_rows() -> None:
    for sequence, split in ((None, "tail"), (None, "random"), (np.arange(30) // 3, "random")):
        train, test = split_rows(30, sequence, 0.2, split, np.random.default_rng(0))
        assert sorted([*np.arange(30)[train], *np.arange(30)[test]]) == list(range(30))
        assert len(np.arange(30)[test]) == 6


def test_targets_pair_with_their_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=2 * X[:, :3])
    problem = load(tmp_path / "a.npz", key="x", targets_key="y", split="random")
    np.testing.assert_array_equal(problem.inputs.targets, 2 * problem.inputs.activations[:, :3])
    np.testing.assert_array_equal(problem.truth.targets, 2 * problem.truth.activations[:, :3])
    np.save(tmp_path / "y.npy", X[:-1])
    with pytest.raises(InputError, match="40 rows of activations and 39 of targets"):
        load(tmp_path / "a.npz", key="x", targets_path=tmp_path / "y.npy")


def test_scoring_on_training_rows_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", np.concatenate([X[:3], X[:5] + 1]))
    with caplog.at_level(logging.WARNING):
        problem = load(tmp_path / "a.npy", test_path=tmp_path / "b.npy")
    assert "3 of 8 held-out rows are training rows" in caplog.text
    assert len(problem.inputs.activations) == 40


def bad(values: dict[tuple[int, int], float], dtype: Any = np.float32) -> np.ndarray:
    array = X.astype(dtype)
    for at, value in values.items():
        array[at] = value
    return array


@pytest.mark.parametrize(
    ("array", "config", "named"),
    [
        (bad({(3, 2): np.nan}), {}, "row 3, dimension 2"),
        (bad({(35, 0): np.inf}), {}, "row 35, dimension 0"),
        (bad({(1, 1): np.inf}, np.float16), {}, "float16 overflows"),
        (bad({(1, 1): 1e30}), {}, "overflow"),
        (np.ones((40, 6)), {}, "all rows are equal"),
        (X[0], {}, r"not \[6\]"),
        (X[:1], {}, "1 rows"),
        (np.zeros((0, 6)), {}, "0 rows"),
        (X[:2], {"test_fraction": 0.2}, "leaves 0 to hold out"),
        (X.astype(complex), {}, "complex"),
        (X, {"drop_first": 1}, "goes with"),
        (CUBE, {"drop_first": 4}, "drop_first=4"),
        (X, {"key": "acts"}, "one array only"),
        (np.array([{}], dtype=object), {}, "Python objects"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(
    array: np.ndarray, config: dict[str, Any], named: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.npy"
    np.save(path, array)
    with pytest.raises(InputError, match=named):
        load(path, **config)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    cases: list[tuple[str, bytes, str]] = [
        ("a.csv", b"1,2", "suffix|.csv is not read"),
        ("a.npy", b"not numpy", "cannot be read"),
        ("a.npz", b"PK\x03\x04broken", "cannot be read"),
        ("a.safetensors", b"\x00" * 20, "safetensors"),
        ("a.pt", b"", "cannot be read"),
    ]
    for name, content, named in cases:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=named):
            read_array(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        read_array(tmp_path / "missing.npy")


def test_archives_want_a_key_and_pickles_are_never_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", one=X, two=X)
    with pytest.raises(InputError, match=r"which array.*one, two"):
        read_array(tmp_path / "a.npz")
    with pytest.raises(InputError, match="no array 'three'"):
        read_array(tmp_path / "a.npz", "three")

    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "owned",))

    torch.save({"x": Evil()}, tmp_path / "a.pt")
    with pytest.raises(InputError, match="never unpickled"):
        read_array(tmp_path / "a.pt")
    assert not (tmp_path / "owned").exists()


def test_masks_must_fit(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", acts=CUBE, mask=np.ones((5, 3)))
    with pytest.raises(InputError, match=r"mask has shape \[5, 3\]"):
        read_activations(tmp_path / "a.npz", key="acts", mask_key="mask")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pt"])
def test_bytes_that_changed_never_end_in_a_foreign_error(suffix: str, tmp_path: Path) -> None:
    whole, path = tmp_path / f"whole{suffix}", tmp_path / f"damaged{suffix}"
    if suffix == ".pt":
        torch.save(torch.from_numpy(X), whole)
    elif suffix == ".npz":
        np.savez_compressed(whole, x=X)
    else:
        np.save(whole, X)
    content, rng, refused = whole.read_bytes(), np.random.default_rng(1), 0
    for _ in range(100):
        damaged = bytearray(content)
        for place in rng.integers(min(len(damaged), 400), size=3):
            damaged[place] = int(rng.integers(256))
        path.write_bytes(damaged)
        try:
            read_array(path)
        except InputError:
            refused += 1
    assert refused > 10


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.eye(4).to_sparse(), "sparse_coo"),
        (torch.empty(4, 3, device="meta"), "meta"),
    ],
)
def test_tensors_without_dense_numbers_are_refused(tensor: torch.Tensor, words: str, tmp_path: Path) -> None:
    torch.save(tensor, tmp_path / "x.pt")
    with pytest.raises(InputError, match=words):
        read_array(tmp_path / "x.pt")


def test_float8_is_read(tmp_path: Path) -> None:
    eights = torch.from_numpy(X).to(torch.float8_e4m3fn)
    torch.save(eights, tmp_path / "x.pt")
    np.testing.assert_array_equal(read_array(tmp_path / "x.pt"), eights.float().numpy())


def test_an_archive_under_the_name_of_a_matrix_and_a_folder_are_told(tmp_path: Path) -> None:
    with (tmp_path / "x.npy").open("wb") as file:
        np.savez(file, x=X)
    with pytest.raises(InputError, match=r"suffix \.npz"):
        read_array(tmp_path / "x.npy")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        read_array(tmp_path / "folder.npy")


@pytest.mark.parametrize("mask", [np.full((5, 4), np.nan), np.full((5, 4), "a")])
def test_masks_hold_numbers(mask: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=CUBE, mask=mask)
    with pytest.raises(InputError, match="the mask holds"):
        read_activations(tmp_path / "x.npz", key="x", mask_key="mask")
