"""Scores and metrics on dictionaries whose results can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from icml26_plugin_subspace_sae import metrics, scores
from icml26_plugin_subspace_sae.dictionaries import LinearDictionary
from icml26_plugin_subspace_sae.task import Output, Truth


class Table:
    """A dictionary that looks codes up by the first column of a row, and counts how often it is asked."""

    def __init__(self, codes: np.ndarray, decoder: np.ndarray) -> None:
        self.codes, self.decoder, self.rows_encoded = codes, decoder, 0

    def encode(self, x: np.ndarray) -> np.ndarray:
        self.rows_encoded += len(x)
        return self.codes[x[:, 0].astype(int)]

    def decode(self, z: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        return z @ self.decoder


CODES = np.array([[1, 0, 0, 0], [2, 1, 0, 0], [0, 0, 0, 0], [3, 0, 1, 0]], dtype=np.float32)
DECODER = np.array([[1, 0], [0, 1], [0, 2], [1, 1]], dtype=np.float32)
X = np.array([[0, 0], [1, 1], [2, 0], [3, 3]], dtype=np.float32)


def test_counts_and_errors_by_hand() -> None:
    stats = scores.stream_stats(Table(CODES, DECODER), X)
    assert stats.fired.tolist() == [3, 1, 1, 0]
    assert stats.dead_fraction == 0.25 and stats.l0 == 1.25
    # Reconstructions (1,0) (2,1) (0,0) (3,2); errors 1 + 1 + 4 + 1; mean of X (1.5, 1).
    assert stats.error == pytest.approx(7)
    assert stats.variance == pytest.approx((2.25 + 0.25 + 0.25 + 2.25) + (1 + 0 + 1 + 4))
    assert stats.fvu == pytest.approx(7 / 11) and stats.normalised_mse == pytest.approx(7 / 24)
    assert stats.rates.tolist() == [0.75, 0.25, 0.25, 0]


def test_transcoders_are_scored_against_their_targets() -> None:
    stats = scores.stream_stats(Table(CODES, DECODER), X, CODES @ DECODER)
    assert stats.error == 0 and stats.fvu == 0
    with pytest.raises(ValueError, match="do not pair up"):
        scores.stream_stats(Table(CODES, DECODER), X, X[:2])


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = scores.stream_stats(Table(CODES, DECODER), X)
    monkeypatch.setattr(scores, "BLOCK", 3)
    parts = scores.stream_stats(Table(CODES, DECODER), X)
    assert parts.fired.tolist() == whole.fired.tolist() and parts.fvu == pytest.approx(whole.fvu)


def test_one_pass_serves_all_metrics_of_a_run() -> None:
    table = Table(CODES, DECODER)
    output, truth = Output(table), Truth(X)
    assert metrics.dead_fraction(output, truth) == {"": 0.25, "rows": 4.0, "features": 4.0}
    assert metrics.fvu(output, truth) == pytest.approx(7 / 11)
    assert metrics.l0(output, truth) == 1.25
    assert metrics.frequency(output, truth) == {
        "": 0.25, "over-1e-1": 3.0, "over-1e-2": 3.0, "under-1e-3": 1.0, "under-1e-5": 1.0,
    }  # fmt: skip
    assert table.rows_encoded == 4
    other = Truth(X[:2])
    assert metrics.dead_fraction(output, other)[""] == 0.5 and table.rows_encoded == 6


def test_subspace_share_at_the_start_and_of_living_and_dead_rows() -> None:
    basis = np.array([[1.0], [0.0]])
    initial = np.array([[1, 0], [1, 1], [0, 3], [0, 0]], dtype=np.float32)
    output, truth = Output(Table(CODES, DECODER), initial_decoder=initial), Truth(X, basis=basis)
    found = metrics.subspace_share(output, truth)
    assert found["start"] == pytest.approx((1 + 0.5 + 0 + 0) / 4)
    assert found[""] == pytest.approx((1 + 0 + 0 + 0.5) / 4)
    assert found["alive"] == pytest.approx(1 / 3) and found["dead"] == pytest.approx(0.5)


def test_the_active_subspace_is_measured_where_it_is_not_known() -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((10, 4)))[0]
    x = (rng.standard_normal((4000, 4)) @ basis.T + 50).astype(np.float32)
    found = metrics.active_basis(Truth(x))
    assert found.shape == (10, 4)
    np.testing.assert_allclose(found @ found.T, basis @ basis.T, atol=1e-4)


def test_recall_counts_only_living_directions() -> None:
    features = np.array([[1.0, 0.0], [0.0, 1.0], [np.sqrt(0.5), np.sqrt(0.5)], [-1.0, 0.0]])
    output, truth = Output(Table(CODES, DECODER)), Truth(X, features=features)
    # Living rows are (1,0), (0,1), (0,2): the third feature's match, (1,1), is dead.
    found = metrics.feature_recall(output, truth)
    assert found[""] == pytest.approx(0.5)
    assert found["mean-max-cosine"] == pytest.approx((1 + 1 + np.sqrt(0.5) + 0) / 4)


def test_mechanism_is_the_correlation_of_share_and_survival() -> None:
    basis = np.array([[1.0], [0.0]])
    initial = np.array([[1, 0], [2, 1], [1, 1], [0, 3]], dtype=np.float32)
    output, truth = Output(Table(CODES, DECODER), initial_decoder=initial), Truth(X, basis=basis)
    expected = np.corrcoef([1, 0.8, 0.5, 0], [1, 1, 1, 0])[0, 1]
    assert metrics.mechanism(output, truth)[""] == pytest.approx(expected)
    inside = Output(Table(CODES, DECODER), initial_decoder=np.tile(np.array([[1, 1e-5]], dtype=np.float32), (4, 1)))
    assert set(metrics.mechanism(inside, truth)) == {"spread"}


def test_correlation_is_none_without_variation() -> None:
    assert scores.point_biserial(np.array([0.1, 0.2]), np.array([True, True])) is None
    assert scores.point_biserial(1 + 1e-8 * np.arange(3), np.array([True, False, True])) is None
    assert scores.point_biserial(np.array([0.0, 1.0]), np.array([False, True])) == pytest.approx(1)


def test_loss_recovered_is_one_without_loss_and_zero_at_ablation() -> None:
    assert scores.loss_recovered(3.0, original=3.0, ablated=5.0) == 1
    assert scores.loss_recovered(5.0, original=3.0, ablated=5.0) == 0
    assert scores.loss_recovered(3.5, original=3.0, ablated=5.0) == pytest.approx(0.75)
    with pytest.raises(ValueError, match="nothing to recover"):
        scores.loss_recovered(3.0, original=3.0, ablated=3.0)


def test_ce_recovered_asks_the_probe_for_the_reconstruction() -> None:
    class Probe:
        original, ablated = 2.0, 4.0

        def loss(self, replace: object) -> float:
            rows = np.ones((3, 2), dtype=np.float32)
            np.testing.assert_allclose(replace(rows), rows, atol=1e-6)  # type: ignore[operator]
            return 2.5

    identity = LinearDictionary(np.eye(2), np.eye(2), np.zeros(2))
    found = metrics.ce_recovered(Output(identity), Truth(X, loss_probe=Probe()))  # type: ignore[arg-type]
    assert found == {"": 0.75, "loss": 2.5, "original": 2.0, "ablated": 4.0}
