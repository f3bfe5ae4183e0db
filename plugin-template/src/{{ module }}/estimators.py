"""The algorithms, as pure functions on arrays."""

from __future__ import annotations

import numpy as np


def sample_mean(observations: np.ndarray) -> float:
    """The arithmetic mean of observations (n,); raises ValueError when there are none or one is not finite."""
    return float(_checked(observations).mean())


def trimmed_mean(observations: np.ndarray, trim: float = 0.1) -> float:
    """The mean of observations (n,) without the ``floor(trim * n)`` smallest and largest, with 0 <= trim < 0.5.

    Raises ValueError when there are no observations, one is not finite, or ``trim`` is out of range.
    """
    if not 0 <= trim < 0.5:
        raise ValueError(f"trim={trim} is not in [0, 0.5)")
    ordered = np.sort(_checked(observations))
    cut = int(trim * len(ordered))
    return float(ordered[cut : len(ordered) - cut].mean())


def _checked(observations: np.ndarray) -> np.ndarray:
    array = np.asarray(observations, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"observations have shape {array.shape}; (n,) with n > 0 is expected")
    if not np.isfinite(array).all():
        raise ValueError(f"observation {int(np.flatnonzero(~np.isfinite(array))[0])} is not finite")
    return array
