from __future__ import annotations

import numpy as np
import pytest
from icml26_plugin_timeguard.embedding import embed, forecast_weights


def test_weights_peak_at_the_first_forecast_step_and_fall_by_one_sigma_in_two_steps() -> None:
    weights = forecast_weights(12, 12)
    assert weights.argmax() == 12
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(weights[12 - np.arange(12)], weights[12 + np.arange(12)], rtol=1e-12)
    assert weights[12] / weights[10] == pytest.approx(np.exp(0.5), rel=1e-12)


def test_inner_product_is_the_weighted_pearson_correlation() -> None:
    units = np.random.default_rng(0).normal(size=(6, 24)).cumsum(axis=1)
    weights = forecast_weights(12, 12)
    covariance = np.cov(units, aweights=weights, ddof=0)
    scale = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(scale, scale)
    embedded = embed(units, weights).astype(np.float64)
    np.testing.assert_allclose(embedded @ embedded.T, correlation, atol=1e-6)
    squared = ((embedded[:, None] - embedded[None]) ** 2).sum(-1)
    np.testing.assert_allclose(squared, 2 * (1 - correlation), atol=1e-6)


def test_embedding_ignores_level_and_positive_scale_and_flips_with_sign() -> None:
    unit = np.random.default_rng(1).normal(size=24)
    weights = forecast_weights(12, 12)
    base, moved, flipped = embed(np.stack([unit, 3.5 * unit + 700.0, -unit]), weights)
    np.testing.assert_allclose(base, moved, atol=1e-6)
    assert np.linalg.norm(base - flipped) == pytest.approx(2.0, abs=1e-6)


@pytest.mark.parametrize("level", [0.0, 0.1, 231.7, -1e9])
def test_constant_units_are_at_distance_0_of_their_like_and_1_of_all_else(level: float) -> None:
    units = np.stack([np.full(24, level), np.full(24, level + 1.0), np.sin(np.arange(24.0))])
    weights = forecast_weights(12, 12)
    for metric, power in (("euclidean", 1), ("one_minus_r", 2)):
        a, b, c = embed(units, weights, metric).astype(np.float64)  # type: ignore[arg-type]
        distance = (lambda x, y: np.linalg.norm(x - y)) if power == 1 else (lambda x, y: 0.5 * ((x - y) ** 2).sum())
        assert distance(a, b) == 0.0
        assert distance(a, c) == pytest.approx(1.0, abs=1e-6)
