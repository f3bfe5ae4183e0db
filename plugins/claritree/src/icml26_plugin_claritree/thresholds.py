"""The global pool of candidate thresholds, and the bins that it cuts every column into."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Strategy = Literal["quantile", "uniform"]

MOST_BINS = 1 << 16  # bin codes are 16 bits wide


def candidate_thresholds(values: FloatArray, n_thresholds: int, strategy: Strategy = "quantile") -> FloatArray:
    """Ascending thresholds of one continuous column; a row goes left when its value is at most the threshold.

    All midpoints of neighbouring values where there are at most `n_thresholds` of them; else the linear-interpolated
    quantiles at j / (n_thresholds + 1), or the centres of `n_thresholds` bins of equal width.
    """
    unique = np.unique(values)
    if unique.size < 2:
        return np.empty(0)
    if unique.size <= n_thresholds + 1:
        # Not (a + b) / 2, which overflows for huge values; and never b itself, which would put b's rows on the left.
        middle = unique[:-1] + (unique[1:] - unique[:-1]) / 2
        return np.where(middle >= unique[1:], unique[:-1], middle)
    if strategy == "quantile":
        return np.unique(np.quantile(values, np.arange(1, n_thresholds + 1) / (n_thresholds + 1)))
    edges = np.linspace(unique[0], unique[-1], n_thresholds + 1)
    return np.unique((edges[:-1] + edges[1:]) / 2)


def threshold_pool(
    split_columns: FloatArray, binary: tuple[bool, ...], n_thresholds: int, strategy: Strategy = "quantile"
) -> tuple[FloatArray, ...]:
    """Candidate thresholds of every split column (n, p); binary columns have the single threshold 0.5."""
    return tuple(
        np.array([0.5]) if binary[j] else candidate_thresholds(split_columns[:, j], n_thresholds, strategy)
        for j in range(split_columns.shape[1])
    )


def bin_codes(split_columns: FloatArray, pool: tuple[FloatArray, ...]) -> NDArray[np.uint16]:
    """Bin of every value, (n, p): the number of thresholds below it, so that ``value <= threshold[c]`` iff ``code <= c``."""
    codes = np.empty(split_columns.shape, dtype=np.uint16)
    for j, thresholds in enumerate(pool):
        codes[:, j] = np.searchsorted(thresholds, split_columns[:, j], side="left")
    return codes
