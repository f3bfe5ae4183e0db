"""Stage I: the reverse-consistency filter (RCF), the neighbourhood-diversity filter (NDF), and their intersection."""

from __future__ import annotations

import numpy as np


def lowest(scores: np.ndarray, count: int) -> np.ndarray:
    """Boolean mask (C, N) of the ``count`` smallest scores of each channel; ties go to the earlier window."""
    return _first(scores, count)


def highest(scores: np.ndarray, count: int) -> np.ndarray:
    """Boolean mask (C, N) of the ``count`` largest scores of each channel; ties go to the earlier window."""
    return _first(-scores, count)


def _first(keys: np.ndarray, count: int) -> np.ndarray:
    order = np.argsort(keys, axis=1, kind="stable")[:, :count]
    mask = np.zeros(keys.shape, dtype=bool)
    np.put_along_axis(mask, order, True, axis=1)
    return mask


def quantile_count(n: int, fraction: float) -> int:
    """floor(n * fraction), robust to the rounding of products such as 0.29 * 100."""
    return int(np.floor(n * min(fraction, 1.0) + 1e-9))


def reverse_consistency_filter(backcast_loss: np.ndarray, alpha: float) -> np.ndarray:
    """D_RCF: per channel the floor(alpha N) units that are easiest to predict backwards. ``backcast_loss`` (C, N)."""
    return lowest(backcast_loss, quantile_count(backcast_loss.shape[1], alpha))


def neighbourhood_diversity_filter(isolation: np.ndarray, alpha: float) -> np.ndarray:
    """D_NDF: per channel the floor(alpha N) most isolated units (Theorem 4.1: poison that works is clustered)."""
    return highest(isolation, quantile_count(isolation.shape[1], alpha))


def initial_pool(rcf: np.ndarray, ndf: np.ndarray, backcast_loss: np.ndarray, isolation: np.ndarray) -> np.ndarray:
    """D_rel = D_RCF & D_NDF, (C, N).

    A channel with an empty intersection would train on nothing; it gets the unit of the union
    with the best sum of ranks instead. The caller warns: see :func:`empty_channels`.
    """
    pool = rcf & ndf
    for channel in empty_channels(pool):
        ranks = _ranks(backcast_loss[channel]) + _ranks(-isolation[channel])
        union = rcf[channel] | ndf[channel]
        pool[channel, int(np.argmin(np.where(union, ranks, np.inf)))] = True
    return pool


def empty_channels(pool: np.ndarray) -> list[int]:
    """Channels (rows) of a pool that select nothing."""
    return np.flatnonzero(~pool.any(axis=1)).tolist()


def _ranks(keys: np.ndarray) -> np.ndarray:
    ranks = np.empty(len(keys), dtype=np.float64)
    ranks[np.argsort(keys, kind="stable")] = np.arange(len(keys))
    return ranks
