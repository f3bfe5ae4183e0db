"""Training: the paper's effect and its control, schedules, seeds, resuming, and every option once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from icml26.errors import EnvironmentError_, InputError
from icml26_plugin_subspace_sae import (
    Dictionary,
    Initialisation,
    Optimisation,
    Sparsity,
    TrainingSettings,
    train,
)
from icml26_plugin_subspace_sae.api import doubts, run_identity
from icml26_plugin_subspace_sae.batches import make_batches
from icml26_plugin_subspace_sae.checkpoint import Checkpoint
from icml26_plugin_subspace_sae.lowrank_sparse import PRESETS, draw
from icml26_plugin_subspace_sae.schedules import annealed_k, lr_factor, n_steps_of
from icml26_plugin_subspace_sae.trainer import Trained, Trainer, clip_gradients


def measure(trained: Trained, test: np.ndarray) -> tuple[float, float]:
    """Share of features silent on held-out rows, and the fraction of variance unexplained."""
    x = torch.from_numpy(test).to(trained.sae.W_dec)
    fired = trained.sae.sparse_codes(x).features.unique()
    error = (x - trained.sae.reconstruct(x)).square().sum() / (x - x.mean(0)).square().sum()
    return 1 - len(fired) / trained.sae.architecture.n_features, float(error)


BRIEF = Optimisation(lr=1e-3, batch_size=256, steps=200, warmup=0.05, final_lr=0.0, dead_threshold=10_000)


def brief(subspace: str, optimizer: str, q: int | str = "auto", m: int = 2048) -> TrainingSettings:
    """The brief's recipe."""
    return TrainingSettings(
        Dictionary(n_features=m, k=4),
        Initialisation(subspace=subspace, q=q),  # type: ignore[arg-type]
        replace(BRIEF, optimizer=optimizer),  # type: ignore[arg-type]
    )


def small(steps: int = 20, **parts: Any) -> TrainingSettings:
    """Some steps on 16 dimensions; parts override."""
    settings = TrainingSettings(
        Dictionary(n_features=64, k=4),
        Initialisation(q=6, rows=200),
        Optimisation(lr=1e-3, batch_size=32, steps=steps, warmup=0.1, dead_threshold=200),
    )
    for name, changes in parts.items():
        settings = replace(settings, **{name: replace(getattr(settings, name), **changes)})
    return settings


def rows(n: int = 600, d: int = 16, r: int = 6, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, r)) @ rng.standard_normal((r, d)) + 0.05 * rng.standard_normal((n, d)) + 0.5
    return x.astype(np.float32)


def weights(trained: Trained) -> torch.Tensor:
    return torch.cat([value.flatten() for value in trained.sae.state_dict().values()]).nan_to_num(-1.0)


def test_features_die_without_the_subspace_and_live_with_it() -> None:
    data = draw(np.random.default_rng(0), PRESETS["collapsed"], 16_384, 8_192)
    base_dead, base_fvu = measure(train(data.train, brief("none", "adam")), data.test)
    dead, fvu = measure(train(data.train, brief("init", "sparseadam", q=16)), data.test)
    assert base_dead >= 0.40 and dead <= min(0.02, base_dead / 20) and fvu <= 0.80 * base_fvu


def test_in_full_rank_nothing_dies_and_the_subspace_changes_nothing() -> None:
    data = draw(np.random.default_rng(0), PRESETS["full"], 16_384, 8_192)
    base, _ = measure(train(data.train, brief("none", "adam")), data.test)
    ours, _ = measure(train(data.train, brief("init", "adam", q=64)), data.test)
    assert base <= 0.03 and ours <= 0.03 and abs(base - ours) <= 0.01


def test_the_identity_is_learnt_on_low_rank_rows() -> None:
    x = rows(2000, d=12, r=4) - 0.5
    settings = TrainingSettings(
        Dictionary(n_features=24, k=24),
        Initialisation(q=4),
        Optimisation(lr=3e-3, batch_size=200, steps=1500, warmup=0.05, final_lr=0.0),
    )
    _, fvu = measure(train(x, settings), x)
    # Noise outside of the subspace is 0.05² of unit variance in each dimension, and codes are not negative.
    assert fvu < 1e-3


@pytest.mark.parametrize("optimizer", ["adam", "sparseadam"])
def test_one_seed_gives_one_result_and_another_another(optimizer: str) -> None:
    settings = small(optimisation={"optimizer": optimizer})
    first, second, other = (train(rows(), settings, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(weights(first), weights(second)) and not torch.equal(weights(first), weights(other))
    assert np.array_equal(first.history.loss, second.history.loss)


def test_scaling_the_data_scales_the_reconstruction_and_nothing_else() -> None:
    x = rows()
    one, two = train(x, small()), train(2 * x, small())
    assert one.report.norm == two.report.norm
    found, doubled = one.sae.reconstruct(torch.from_numpy(x)), two.sae.reconstruct(torch.from_numpy(2 * x))
    assert torch.allclose(2 * found, doubled, atol=1e-4)
    z, z2 = one.sae.encode(torch.from_numpy(x)), two.sae.encode(torch.from_numpy(2 * x))
    assert torch.equal(z > 0, z2 > 0)


def test_the_baseline_differs_by_the_subspace_alone() -> None:
    x = rows()
    trainers = {
        s: Trainer(make_batches(x, None, 32, 0), small(initialisation={"subspace": s})) for s in ("init", "none")
    }
    base, ours = trainers["none"].sae, trainers["init"].sae
    assert torch.equal(base.b_dec, ours.b_dec) and torch.equal(base.W_enc, base.W_dec.T)
    assert trainers["none"].report.active is None and trainers["none"].report.norm is not None


class Source:
    """A stream of an array."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.width, self.rows = array, array.shape[1], len(array)

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        for at in range(0, len(self.array), 37):
            yield self.array[at : at + min(37, size)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"optimisation": {"optimizer": "adam", "initial_k": 8}, "revival": {"auxk": 1 / 32}},
        {"dictionary": {"activation": "batchtopk"}},
        {"dictionary": {"activation": "relu"}, "revival": {"resample_every": 7}},
        {"initialisation": {"subspace": "hard"}},
    ],
)
def test_a_stopped_run_resumes_bit_for_bit(stream: bool, parts: dict[str, Any], tmp_path: Path) -> None:
    settings, x = small(30, **parts), rows()

    def data() -> Any:
        return Source(x) if stream else x

    whole = train(data(), settings, seed=4)
    identity = run_identity(data(), None, settings, 4)
    keeper = Checkpoint(tmp_path / "deep" / "run.pt", identity, every=5)
    batches = make_batches(data(), None, 32, 4)
    assert Trainer(batches, settings, seed=4).run(checkpoint=keeper, stop_after=17) is None
    resumed = train(data(), settings, seed=4, checkpoint=tmp_path / "deep" / "run.pt")
    assert torch.equal(weights(whole), weights(resumed))
    assert np.array_equal(whole.history.loss, resumed.history.loss)
    again = train(data(), settings, seed=4, checkpoint=tmp_path / "deep" / "run.pt")
    assert torch.equal(weights(whole), weights(again)), "a finished run is read, not trained again"


def test_checkpoints_of_other_runs_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    path, x = tmp_path / "run.pt", rows()
    train(x, small(5), checkpoint=path)
    for other in (small(6), small(5, optimisation={"lr": 2e-3})):
        with pytest.raises(InputError, match="another run"):
            train(x, other, checkpoint=path)
    with pytest.raises(InputError, match="another run"):
        train(x + 1, small(5), checkpoint=path)
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match="cannot be read"):
        train(x, small(5), checkpoint=path)
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentError_, match="cannot be written"):
        train(x, small(5), checkpoint=tmp_path / "file" / "run.pt")


@pytest.mark.parametrize(
    "parts",
    [
        {"dictionary": {"activation": "relu"}},
        {"dictionary": {"activation": "relu"}, "sparsity": {"penalty": "tanh", "coefficient": 0.1}},
        {"dictionary": {"activation": "jumprelu", "bandwidth": 0.5}, "sparsity": {"pre_activation": 1e-3}},
        {"dictionary": {"activation": "batchtopk"}},
        {"dictionary": {"normalisation": "token"}},
        {"dictionary": {"normalisation": "batch"}},
        {"dictionary": {"normalisation": "none"}},
        {"dictionary": {"gate_by_decoder_norm": False}},
        {"initialisation": {"subspace": "hard"}},
        {"initialisation": {"bias": "geometric-median", "q": "99%"}},
        {"initialisation": {"tied": False, "norm_search": False, "centre": False}},
        {"optimisation": {"dtype": "float64"}},
        {"optimisation": {"amp": "bfloat16"}},
        {"optimisation": {"clip": 0.5, "optimizer": "adam"}},
        {"optimisation": {"clip": 0.5}},
        {"revival": {"auxk": 1 / 32, "k_aux": 3}},
    ],
)
def test_every_option_learns_something(parts: dict[str, Any]) -> None:
    x = rows(1000)
    trained = train(x, small(120, **parts))
    _, fvu = measure(trained, x)
    untrained = train(x, small(1, **parts))
    assert fvu < 0.9 * measure(untrained, x)[1]
    # Rows of the random decoder are far too long: without the search 120 steps only begin to mend that.
    assert fvu < 0.75 or parts == {"initialisation": {"tied": False, "norm_search": False, "centre": False}}
    assert np.isfinite(trained.history.loss).all() and trained.history.step[-1] == 120


def test_the_hard_subspace_is_never_left() -> None:
    trained = train(rows(), small(60, initialisation={"subspace": "hard"}))
    assert trained.report.active is not None
    basis = torch.from_numpy(trained.report.active.basis)
    w = trained.sae.W_dec
    assert float((w - w @ basis @ basis.T).norm()) <= 1e-5 * float(w.norm())
    free = train(rows(), small(60)).sae.W_dec
    assert float((free - free @ basis @ basis.T).norm()) > 1e-3 * float(free.norm())
    start = torch.from_numpy(trained.initial_decoder)
    assert float((start - start @ basis @ basis.T).norm()) <= 1e-5 * float(start.norm())


def test_the_decoder_of_the_start_is_kept_in_raw_units() -> None:
    trainer = Trainer(make_batches(rows(), None, 32, 0), small(1, optimisation={"lr": 1e-12}))
    trained = trainer.run()
    assert trained is not None
    assert np.allclose(trained.initial_decoder, trained.sae.W_dec.numpy(), atol=1e-6)


def test_transcoders_predict_targets_of_another_scale_and_width() -> None:
    x = rows(2000)
    y = (20 * x @ np.random.default_rng(5).standard_normal((16, 9))).astype(np.float32)
    settings = small(800, initialisation={"tied": False, "norm_search": False, "q": 5}, optimisation={"lr": 1e-2})
    trained = train(x, settings, targets=y)
    found = trained.sae.reconstruct(torch.from_numpy(x)).numpy()
    assert found.shape == y.shape
    assert np.square(found - y).sum() < 0.5 * np.square(y - y.mean(0)).sum()
    with pytest.raises(InputError, match="tied"):
        train(x, small(), targets=y)


def test_float16_rows_train_as_float32_do() -> None:
    x = rows().astype(np.float16)
    assert torch.equal(weights(train(x, small())), weights(train(x.astype(np.float32), small())))


def test_schedules_are_the_formulas() -> None:
    factor = [lr_factor(t, 100, warmup=10, cooldown=20, final=1 / 32) for t in range(100)]
    assert factor[0] == 0.1 and factor[9] == factor[50] == factor[80] == 1.0
    assert factor[90] == pytest.approx(1 / 32 + 31 / 32 * 10 / 20) and factor[99] == pytest.approx(1 / 32 + 31 / 640)
    assert [annealed_k(t, k=4, initial_k=10, warmup=3) for t in range(5)] == [10, 8, 6, 4, 4]
    assert annealed_k(0, k=4, initial_k=10, warmup=0) == 4
    bent = [annealed_k(t, k=4, initial_k=100, warmup=10, schedule="exponential") for t in range(12)]
    assert bent[0] == 100 and bent[10] == bent[11] == 4 and bent[5] < 52 and bent == sorted(bent, reverse=True)
    assert n_steps_of(0.05, 200) == 10 and n_steps_of(5000, 200) == 5000 and n_steps_of(0, 200) == 0


def test_k_is_annealed_and_the_rate_follows_its_schedule() -> None:
    trainer = Trainer(
        make_batches(rows(), None, 32, 0), small(40, optimisation={"initial_k": 12, "k_warmup": 20, "warmup": 0.25})
    )
    values = [trainer.step() for _ in range(40)]
    assert values[0]["l0"] > 8 and all(v["l0"] <= 4 for v in values[20:])
    assert values[0]["lr"] == pytest.approx(1e-4) and values[15]["lr"] == pytest.approx(1e-3)
    assert values[-1]["lr"] < 2e-4


def test_steps_come_from_tokens_or_passes() -> None:
    o = Optimisation(batch_size=100)
    assert o.n_steps(1050) == 10 and replace(o, epochs=2.5).n_steps(1050) == 25
    assert replace(o, tokens=730).n_steps(None) == 7 and replace(o, tokens=730, steps=3).n_steps(None) == 3
    with pytest.raises(InputError, match="steps or tokens"):
        o.n_steps(None)


def test_defaults_of_the_papers_scale_are_doubted_in_a_short_training() -> None:
    assert doubts(small(), 20) == []
    (warmup,) = doubts(TrainingSettings(), 200)
    assert "5000 steps of 200" in warmup and doubts(TrainingSettings(), 10_000) == []
    (dead,) = doubts(small(revival={"auxk": 1.0}, optimisation={"dead_threshold": 641}), 20)
    assert "dead_threshold=641" in dead
    assert doubts(small(revival={"auxk": 1.0}, optimisation={"dead_threshold": 600}), 20) == []


def test_clipping_bounds_dense_and_sparse_gradients_together() -> None:
    dense, sparse = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(4, 2))
    dense.grad = torch.full((3,), 3.0)
    index = torch.tensor([[1, 3]])
    sparse.grad = torch.sparse_coo_tensor(index, torch.full((2, 2), 4.0), (4, 2), check_invariants=False)
    norm = clip_gradients([dense, sparse], 1.0)
    assert norm == pytest.approx((27 + 64) ** 0.5)
    assert float(dense.grad.norm().square() + sparse.grad.to_dense().norm().square()) == pytest.approx(1.0)
    assert clip_gradients([dense, sparse], 5.0) == pytest.approx(1.0)


def test_resampling_draws_features_anew_only_while_it_is_on() -> None:
    x, counts = rows(), []
    for until in (1.0, 0.0):
        trainer = Trainer(
            make_batches(x, None, 32, 0),
            small(6, dictionary={"activation": "relu"}, revival={"resample_every": 3, "resample_until": until}),
        )
        trainer.firing.silent_for[:10] = 10**9
        with torch.no_grad():
            trainer.sae.b_enc[:10] = -100.0
        for _ in range(3):
            trainer.step()
        counts.append(len(trainer.firing.dead()))
        assert bool((trainer.sae.b_enc.detach()[:10] > -50).all()) == (until == 1.0)
    assert counts == [0, 10]


@pytest.mark.parametrize(
    ("data", "parts", "words"),
    [
        (np.ones((100, 16), np.float32), {}, "equal"),
        (np.zeros((100, 16), np.float32), {}, "equal"),
        (rows(), {"dictionary": {"k": 65}}, "k=65"),
        (rows(), {"initialisation": {"q": 17}}, "q=17"),
        (rows(), {"initialisation": {"q": 0}}, "q=0"),
        (rows(), {"initialisation": {"rows": 5}}, "5 rows span"),
        (rows(), {"optimisation": {"initial_k": 3}}, "initial_k=3"),
        (rows(), {"optimisation": {"initial_k": 65}}, "initial_k=65"),
        (rows(), {"optimisation": {"batch_size": 0}}, "batch_size=0"),
        (rows(), {"optimisation": {"lr": 0.0}}, "lr=0.0"),
        (rows(), {"optimisation": {"lr": float("nan")}}, "lr=nan"),
        (rows() * 1e25, {"dictionary": {"normalisation": "none"}}, "loss is|not finite"),
    ],
)
def test_data_and_settings_that_make_no_sense_are_refused(data: np.ndarray, parts: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        train(data, small(**parts))


def test_dead_features_of_training_are_counted() -> None:
    trained = train(rows(), small(40, initialisation={"subspace": "none"}))
    assert trained.history.dead[-1] == trained.dead_in_training > 0
    assert (trained.history.dead[:3] == 0).all(), "nothing is dead before dead_threshold rows were seen"
    assert Sparsity().coefficient == 8e-5


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        ("optimisation", {"optimizer": "sgd"}, "optimizer='sgd' is unknown"),
        ("optimisation", {"steps": 2.5}, "steps=2.5 must be a whole number"),
        ("optimisation", {"warmup": float("nan")}, "warmup=nan"),
        ("optimisation", {"warmup": -1}, "warmup=-1"),
        ("dictionary", {"k": 2.5}, "k=2.5 must be a whole number"),
        ("initialisation", {"subspace": "x"}, "subspace='x' is unknown"),
        ("initialisation", {"bias": "median"}, "bias='median' is unknown"),
        ("initialisation", {"rows": 0}, "rows=0"),
    ],
)
def test_words_and_counts_that_mean_nothing_are_refused(part: str, change: dict[str, Any], words: str) -> None:
    settings = small(5)
    with pytest.raises(InputError, match=words):
        train(rows(), replace(settings, **{part: replace(getattr(settings, part), **change)}))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"seed": -1}, "seed=-1 must be a whole number"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"seed": "a"}, "seed='a'"),
        ({"seed": True}, "seed=True"),
        ({"device": "foo"}, "device='foo' cannot be used here"),
        ({"device": "meta:x"}, "device='meta:x'"),
        ({"device": None}, "device=None"),
    ],
)
def test_seeds_and_devices_that_do_not_exist_are_refused(call: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        train(rows(), small(5), **call)


@pytest.mark.parametrize("n_features", [2**40, 2**60])
def test_a_dictionary_larger_than_the_machine_is_refused(n_features: int) -> None:
    with pytest.raises(InputError, match=f"{n_features} features takes .* GiB.*Lower n_features"):
        train(rows(), small(5, dictionary={"n_features": n_features}))


@pytest.mark.parametrize("missing", ["step", "sae", "optimizer", "batches", "silent_for", "curves"])
def test_checkpoints_without_a_part_are_refused(missing: str, tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    train(rows(), small(5), checkpoint=path)
    stored = torch.load(path, weights_only=True)
    del stored["state"][missing]
    torch.save(stored, path)
    with pytest.raises(InputError, match=r"is damaged \(KeyError\)"):
        train(rows(), small(5), checkpoint=path)
