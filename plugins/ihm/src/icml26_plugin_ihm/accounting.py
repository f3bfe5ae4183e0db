"""Privacy accounting: the analytic Gaussian mechanism and the Rényi curve of a Gaussian sketch.

Everything here depends on public numbers only. All divergences are for zero-out adjacency: neighbouring data sets differ
in one row, which is replaced by zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr

_BISECTION_TOLERANCE = 1e-12
_ALPHA_GRID_POINTS = 96
_ALPHA_GRID_ZOOMS = 3

Curve = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""A Rényi curve: orders alpha > 1 of any shape -> divergences of the same shape (`inf` where undefined)."""


def bisect_smallest(
    accept: Callable[[float], bool], low: float, high: float, *, tolerance: float = _BISECTION_TOLERANCE
) -> float:
    """Smallest x > 0 (within a relative `tolerance`) for which the monotone `accept` holds.

    The returned x is always one that was accepted, so a noise scale found with it errs on the private side. `low` and
    `high` are widened until they bracket the root; `ValueError` when no finite x is accepted.
    """
    while not accept(high):
        low, high = high, high * 16.0
        if not math.isfinite(high):
            raise ValueError("no finite noise scale meets the privacy target; raise epsilon or delta")
    while accept(low):
        low, high = low / 16.0, low
        if low < 1e-300:
            return high
    while high > low * (1.0 + tolerance):
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            break
        if accept(middle):
            high = middle
        else:
            low = middle
    return high


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Exact delta(epsilon) of a mu-GDP Gaussian mechanism, mu = sensitivity / sigma (Balle & Wang 2018).

    Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), evaluated without overflow for large epsilon.
    """
    upper, lower = mu / 2.0 - epsilon / mu, -mu / 2.0 - epsilon / mu
    if upper < 0:
        # Both tails carry the factor exp(-upper^2/2)/2, since epsilon - lower^2/2 = -upper^2/2.
        tails = erfcx(-upper / math.sqrt(2.0)) - erfcx(-lower / math.sqrt(2.0))
        return float(max(0.0, 0.5 * math.exp(-(upper**2) / 2.0) * tails))
    return float(max(0.0, ndtr(upper) - math.exp(epsilon + log_ndtr(lower))))


def analytic_gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Smallest Gaussian noise std that is (epsilon, delta)-DP for an L2 `sensitivity` (Balle & Wang 2018)."""
    if sensitivity == 0.0:
        return 0.0
    scale = bisect_smallest(lambda s: gaussian_delta(epsilon, 1.0 / s) <= delta, 1e-3, 1e3)
    return sensitivity * scale


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon for which a mu-GDP mechanism is (epsilon, delta)-DP; 0 when delta alone covers it."""
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    return bisect_smallest(lambda epsilon: gaussian_delta(epsilon, mu) <= delta, 1e-6, 1.0)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Largest rho whose zCDP guarantee converts to (epsilon, delta) by epsilon = rho + 2 sqrt(rho ln(1/delta))."""
    log_term = math.log(1.0 / delta)
    root = math.sqrt(log_term)
    return (epsilon / (math.sqrt(epsilon + log_term) + root)) ** 2


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon that rho-zCDP implies at `delta`: rho + 2 sqrt(rho ln(1/delta))."""
    return rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))


def _excess_of_log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """f(x) = -ln(1-x) - x >= 0 for 0 <= x < 1, without cancellation for small x; `inf` from 1 on."""
    x = np.asarray(x, dtype=np.float64)
    small = np.minimum(x, 0.05)
    # 14 terms of sum_{j>=2} x^j / j; the tail beyond them is below 1e-20 relative at x = 0.05.
    series = np.zeros_like(small)
    for j in range(15, 1, -1):
        series = (series + 1.0 / j) * small
    series = series * small
    with np.errstate(divide="ignore", invalid="ignore"):
        direct = np.where(x < 1.0, -np.log1p(-np.minimum(x, 1.0)) - x, np.inf)
    return np.where(x <= 0.05, series, direct)


def sketch_rdp(alpha: NDArray[np.float64], k: int, gamma: float, norm_squared: float = 1.0) -> NDArray[np.float64]:
    """Rényi divergence of order `alpha` between k-row Gaussian sketches of neighbouring data sets.

    R_k(alpha, gamma) = k alpha/(2(alpha-1)) ln(1 - q) - k/(2(alpha-1)) ln(1 - alpha q) with q = norm_squared / gamma:
    rows of the sketch are N(0, Sigma) against N(0, Sigma - v v^T), ||v||^2 <= norm_squared, lambda_min(Sigma) >= gamma.
    `inf` for alpha >= 1/q. Shapes as `alpha`.
    """
    alpha = np.asarray(alpha, dtype=np.float64)
    q = norm_squared / gamma
    excess = _excess_of_log(alpha * q) - alpha * _excess_of_log(np.asarray(q))
    return k / (2.0 * (alpha - 1.0)) * excess


def gaussian_rdp(alpha: NDArray[np.float64], mu: float) -> NDArray[np.float64]:
    """Rényi divergence of order `alpha` of a Gaussian mechanism with mu = sensitivity / sigma: alpha mu^2 / 2."""
    return np.asarray(alpha, dtype=np.float64) * (mu * mu / 2.0)


def rdp_to_dp_term(alpha: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    """What converting a Rényi guarantee of order `alpha` to approximate DP at `delta` adds to epsilon."""
    alpha = np.asarray(alpha, dtype=np.float64)
    log_order = np.log1p(-1.0 / alpha)
    return (math.log(1.0 / delta) + (alpha - 1.0) * log_order - np.log(alpha)) / (alpha - 1.0)


def rdp_epsilon(curve: Curve, delta: float, alpha_limit: float) -> tuple[float, float]:
    """Epsilon at `delta` of a Rényi `curve`, and the order that gives it.

    Any order gives a valid epsilon, so a coarse minimum is loose, never wrong. `alpha_limit` bounds the order from above
    (exclusive; may be `inf`). The search is a log-spaced grid of alpha - 1, zoomed around its minimum.
    """
    low, high = 1e-6, min(alpha_limit - 1.0, 1e12)
    low = min(low, high * 1e-6)
    log_low, log_high = math.log(low), math.log(high)
    best_epsilon, best_alpha = math.inf, math.nan
    for _ in range(_ALPHA_GRID_ZOOMS):
        grid = np.linspace(log_low, log_high, _ALPHA_GRID_POINTS)
        alpha = 1.0 + np.exp(grid)
        with np.errstate(over="ignore"):
            values = np.where(alpha < alpha_limit, curve(alpha) + rdp_to_dp_term(alpha, delta), np.inf)
        i = int(np.argmin(values))
        if values[i] < best_epsilon:
            best_epsilon, best_alpha = float(values[i]), float(alpha[i])
        log_low, log_high = grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)]
    return max(best_epsilon, 0.0), best_alpha


def eigenvalue_epsilon(noise_std: float, sensitivity: float, delta: float) -> float:
    """Epsilon of one noisy eigenvalue: the classical Gaussian bound sqrt(2 ln(1.25/delta)) sensitivity / noise_std.

    The paper uses this bound throughout, but it is proven only up to 1. Where the exact curve of the Gaussian mechanism
    says that it promises too much, the exact epsilon is returned in its place.
    """
    mu = sensitivity / noise_std
    classical = math.sqrt(2.0 * math.log(1.25 / delta)) * mu
    return classical if gaussian_delta(classical, mu) <= delta else gaussian_epsilon(mu, delta)
