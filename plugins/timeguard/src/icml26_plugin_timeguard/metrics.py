"""Metrics of ``forecasting.backdoor-defense`` over a run's output and the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from icml26_plugin_timeguard import scores
from icml26_plugin_timeguard.task import Attack, Output, Pool, Truth
from icml26_plugin_timeguard.windows import n_windows, sliding

# Bounds memory on wide data: 512 windows of 358 channels are 18 MB a copy.
CHUNK = 512


def _test_windows(truth: Truth) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    count = n_windows(len(truth.test), truth.seq_len, truth.pred_len)
    windows = sliding(truth.test, truth.seq_len + truth.pred_len)
    for start in range(0, count, CHUNK):
        chosen = slice(start, min(start + CHUNK, count))
        yield chosen, windows[chosen, : truth.seq_len], windows[chosen, truth.seq_len :]


def mae_c(output: Output, truth: Truth) -> float:
    """MAE on clean test inputs over all windows, steps and channels; physical units, lower is better."""
    parts = [
        (scores.mae(output.forecaster.predict(history), future), len(history))
        for _, history, future in _test_windows(truth)
    ]
    return _weighted(parts)


def mae_p(output: Output, truth: Truth) -> float:
    """Distance of triggered forecasts from the attacker's target; physical units, higher is better defended."""
    attack = _attack(truth)
    parts = []
    for chosen, history, _ in _test_windows(truth):
        forecast = output.forecaster.predict(attack.triggered(history, chosen))
        parts.append((scores.poisoned_mae(forecast, attack.target[chosen], attack.channels), len(history)))
    return _weighted(parts)


def fder(own: Mapping[str, float], reference: Mapping[str, float]) -> float:
    """FDER in [0, 1] of a run's scores against those of plain training; 0.5 means no effect."""
    return scores.fder(own["mae-c"], own["mae-p"], reference["mae-c"], reference["mae-p"])


def pool_contamination(output: Output, truth: Truth) -> dict[str, float]:
    """Poisoned share of the pool's units as a multiple of the base rate (1 = no better than chance), final and initial."""
    pool, poisoned = _pool(output), _attack(truth).poisoned
    base = float(poisoned.mean())
    return {
        "": scores.contamination(pool.final, poisoned) / base,
        "initial": scores.contamination(pool.initial, poisoned) / base,
        "base-rate": base,
    }


def pool_coverage(output: Output, truth: Truth) -> float:
    """Share of the clean training units that the final pool keeps."""
    return scores.coverage(_pool(output).final, _attack(truth).poisoned)


def _weighted(parts: list[tuple[float, int]]) -> float:
    values, weights = zip(*parts, strict=True)
    return float(np.average(values, weights=weights))


def _attack(truth: Truth) -> Attack:
    if truth.attack is None:
        raise ValueError("this metric needs a planted attack")
    return truth.attack


def _pool(output: Output) -> Pool:
    if output.pool is None:
        raise ValueError("this metric needs a method that selects a pool")
    return output.pool
