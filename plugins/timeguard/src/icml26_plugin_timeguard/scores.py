"""MAE_C, MAE_P, FDER and pool quality as pure functions on arrays."""

from __future__ import annotations

import numpy as np


def mae(forecast: np.ndarray, target: np.ndarray) -> float:
    """Mean absolute error over all entries, physical units."""
    return float(np.abs(forecast - target).mean())


def poisoned_mae(forecast: np.ndarray, target: np.ndarray, channels: np.ndarray) -> float:
    """MAE_P: distance of triggered forecasts (n, L_out, C) from the attacker's target (n, pattern steps, k).

    Over attacked channels and the first pattern steps only; higher means better defended.
    """
    return mae(forecast[:, : target.shape[1], channels], target)


def fder(mae_c: float, mae_p: float, mae_c_none: float, mae_p_none: float) -> float:
    """Forecasting defence effectiveness rate in [0, 1]; 0.5 means no effect, higher is better.

    (max(0, 1 - MAE_P^none / MAE_P) - max(0, 1 - MAE_C^none / MAE_C) + 1) / 2.
    """
    return (_gain(mae_p, mae_p_none) - _gain(mae_c, mae_c_none) + 1.0) / 2.0


def _gain(value: float, reference: float) -> float:
    """max(0, 1 - reference / value); a value of 0 cannot exceed its reference, so the gain is 0."""
    return max(0.0, 1.0 - reference / value) if value > 0 else 0.0


def contamination(pool: np.ndarray, poisoned: np.ndarray) -> float:
    """Share of the pool's units (C, N) that are poisoned; NaN for an empty pool."""
    return float(poisoned[pool].mean()) if pool.any() else float("nan")


def coverage(pool: np.ndarray, poisoned: np.ndarray) -> float:
    """Share of the clean units that the pool keeps."""
    clean = ~poisoned
    return float(pool[clean].mean()) if clean.any() else float("nan")
