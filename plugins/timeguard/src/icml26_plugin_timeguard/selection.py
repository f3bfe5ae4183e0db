"""Stage II: distance-regularised loss selection (DRLS)."""

from __future__ import annotations

import numpy as np

from icml26_plugin_timeguard.criteria import highest, lowest, quantile_count


def pool_fraction(round_index: int, n_rounds: int, alpha: float, beta: float) -> float:
    """gamma_e = alpha + (beta - alpha) e / (T_2 - 1), the share of units that round e keeps; beta when T_2 = 1."""
    if n_rounds <= 1:
        return beta
    return alpha + (beta - alpha) * round_index / (n_rounds - 1)


def candidates(isolation: np.ndarray, gamma: float, pi: float) -> np.ndarray:
    """The distance gate: per channel the floor(N min(pi gamma, 1)) units most isolated from the suspicious ones."""
    return highest(isolation, quantile_count(isolation.shape[1], pi * gamma))


def drls(loss: np.ndarray, isolation: np.ndarray, gamma: float, pi: float) -> np.ndarray:
    """Next pool (C, N): among the gated candidates of a channel, the floor(N gamma) with the smallest loss.

    ``loss`` (C, N) is the forecaster's unit loss, ``isolation`` (C, N) the score S(t; R) against the previous round's
    rejects. pi = 1 ignores the loss, pi * gamma >= 1 ignores the distance.
    """
    gated = np.where(candidates(isolation, gamma, pi), loss, np.inf)
    return lowest(gated, quantile_count(loss.shape[1], gamma))
