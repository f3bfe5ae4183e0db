"""Baselines without gradient descent: best linear codes, exact top-k, pursuit, and storage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from icml26 import RunContext
from icml26.errors import InputError
from icml26.fingerprints import fingerprint
from icml26_plugin_subspace_sae import scores
from icml26_plugin_subspace_sae.baseline_methods import MiniBatchDictionary, PcaK, RandomDictionary, StoredMethod
from icml26_plugin_subspace_sae.dictionaries import LinearDictionary, PursuitDictionary, keep_top, random_dictionary
from icml26_plugin_subspace_sae.lowrank_sparse import LowrankSparse, draw
from icml26_plugin_subspace_sae.task import Inputs

SAMPLE = draw(np.random.default_rng(0), LowrankSparse(d=16, r=6, n_features=32, l0=2), 1500, 500)


def test_keep_top_keeps_the_largest_positive_values_and_breaks_ties_to_the_left() -> None:
    values = np.array([[3.0, 1, 2, 2], [-1, -2, 5, -3], [0, 0, 0, 0], [1, 1, 1, 1]])
    expected = [[3, 0, 2, 0], [0, 0, 5, 0], [0, 0, 0, 0], [1, 1, 0, 0]]
    assert keep_top(values, 2).tolist() == expected
    assert keep_top(values, 9).tolist() == np.maximum(values, 0).tolist()
    assert not keep_top(values, 0).any()


def test_pca_leaves_exactly_the_tail_of_the_spectrum() -> None:
    output = PcaK(PcaK.Config(k=3)).run(Inputs(SAMPLE.train), RunContext(0))
    stats = scores.stream_stats(output.sae, SAMPLE.train)
    values = np.linalg.svd(SAMPLE.train.astype(np.float64) - SAMPLE.train.mean(axis=0), compute_uv=False) ** 2
    assert stats.fvu == pytest.approx(values[3:].sum() / values.sum(), rel=1e-4)
    assert stats.dead_fraction == 0 and stats.l0 == 3
    # All of the variance but the noise lies in r = 6 directions.
    full = PcaK(PcaK.Config(k=6)).run(Inputs(SAMPLE.train), RunContext(0))
    assert scores.stream_stats(full.sae, SAMPLE.test).fvu < 2e-3


def test_random_atoms_have_the_gain_that_fits_best() -> None:
    found = random_dictionary(np.random.default_rng(1), SAMPLE.train, 64, 4)
    errors = []
    for factor in (0.8, 1.0, 1.25):
        other = LinearDictionary(found.encoder * np.float32(factor), found.decoder, found.bias, 4)
        errors.append(scores.stream_stats(other, SAMPLE.train).fvu)
    assert errors[1] == min(errors) and errors[1] < 1
    stats = scores.stream_stats(found, SAMPLE.test)
    assert stats.l0 <= 4
    np.testing.assert_allclose(np.linalg.norm(found.decoder, axis=1), 1, rtol=1e-5)


def test_pursuit_finds_the_atoms_that_a_row_is_made_of() -> None:
    atoms = np.linalg.qr(np.random.default_rng(2).standard_normal((8, 8)))[0].astype(np.float32)
    codes = np.zeros((3, 8), dtype=np.float32)
    codes[0, 2], codes[1, [1, 5]], codes[2, [0, 3]] = 2.0, (1.0, -3.0), (0.5, 0.25)
    bias = np.arange(8, dtype=np.float32)
    found = PursuitDictionary(atoms, bias, 2)
    rows = codes @ atoms + bias
    np.testing.assert_allclose(found.encode(rows), codes, atol=1e-5)
    np.testing.assert_allclose(found.decode(found.encode(rows)), rows, atol=1e-5)


def test_learned_atoms_beat_random_ones() -> None:
    options = {"expansion": 2.0, "k": 3}
    learned = MiniBatchDictionary(MiniBatchDictionary.Config(**options, max_iter=2)).run(
        Inputs(SAMPLE.train), RunContext(0)
    )
    frozen = RandomDictionary(RandomDictionary.Config(**options)).run(Inputs(SAMPLE.train), RunContext(0))
    ours, theirs = (scores.stream_stats(output.sae, SAMPLE.test) for output in (learned, frozen))
    assert ours.fvu < 0.5 * theirs.fvu and ours.l0 <= 3


@pytest.mark.parametrize(
    "method",
    [
        PcaK(PcaK.Config(k=3)),
        RandomDictionary(RandomDictionary.Config(expansion=2.0, k=3)),
        MiniBatchDictionary(MiniBatchDictionary.Config(expansion=2.0, k=3, max_iter=1)),
    ],
    ids=lambda method: type(method).__name__,
)
def test_outputs_survive_storing_and_repeat(method: StoredMethod, tmp_path: Path) -> None:
    first, second, other = (method.run(Inputs(SAMPLE.train), RunContext(seed)) for seed in (3, 3, 4))
    assert fingerprint(first) == fingerprint(second)
    assert isinstance(method, PcaK) or fingerprint(first) != fingerprint(other)
    method.save(first, tmp_path)
    assert fingerprint(method.load(tmp_path)) == fingerprint(first)


def test_sizes_that_do_not_fit_and_transcoders_are_refused() -> None:
    with pytest.raises(InputError, match="k=17"):
        PcaK(PcaK.Config(k=17)).run(Inputs(SAMPLE.train), RunContext(0))
    with pytest.raises(InputError, match="k=50"):
        RandomDictionary(RandomDictionary.Config(expansion=2.0)).run(Inputs(SAMPLE.train), RunContext(0))
    with pytest.raises(InputError, match="transcoders"):
        PcaK(PcaK.Config(k=3)).run(Inputs(SAMPLE.train, SAMPLE.train), RunContext(0))
