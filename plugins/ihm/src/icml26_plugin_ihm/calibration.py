"""From (d, epsilon, delta) to noise scales: one frozen plan per mechanism, computed from public numbers only.

The unit of every plan is the bounded problem: rows of X in the unit ball and |y| <= 1. `bounds.py` maps data to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from icml26_plugin_ihm.accounting import (
    analytic_gaussian_sigma,
    bisect_smallest,
    eigenvalue_epsilon,
    gaussian_rdp,
    rdp_epsilon,
    sketch_rdp,
    zcdp_rho,
)

Accounting = Literal["paper", "joint"]
Shift = Literal["wang", "official"]
DescentAccounting = Literal["official", "zcdp", "gdp"]

_LABEL_BOUND = 1.0
_NORM_BOUND_WITH_LABEL = 1.0 + _LABEL_BOUND**2


@dataclass(frozen=True)
class HessianMixingPlan:
    """Scales of iterative Hessian mixing. Every field is public."""

    d: int
    epsilon: float
    delta: float
    varrho: float
    """Failure probability of the utility guarantee."""
    iterations: int
    k: int
    """Rows of each sketch."""
    gamma: float
    """Least eigenvalue that the regularised Gram matrix must have."""
    eta: float
    """Standard deviation of the noise on the least eigenvalue."""
    tau: float
    """The noisy eigenvalue is lowered by tau standard deviations."""
    sigma: float
    """Standard deviation of the noise on each X^T r."""
    accounting: Accounting


@dataclass(frozen=True)
class AdaSSPPlan:
    """Scales of AdaSSP (Wang 2018): noisy eigenvalue, Gram matrix and X^T y."""

    d: int
    epsilon: float
    delta: float
    varrho: float
    s: float
    """Noise std of the eigenvalue and of each Gram entry."""
    s_y: float
    """Noise std of each entry of X^T y."""
    shift: float
    """What is taken off the noisy eigenvalue to make it a lower bound."""
    ridge_target: float
    """The ridge fills the eigenvalue up to this value."""
    shift_rule: Shift
    accounting: Accounting


@dataclass(frozen=True)
class LinearMixingPlan:
    """Scales of one-shot linear mixing: one sketch of [X, y]."""

    d: int
    epsilon: float
    delta: float
    varrho: float
    k: int
    gamma: float
    eta: float
    tau: float


@dataclass(frozen=True)
class GradientDescentPlan:
    """Scales of noisy full-batch gradient descent."""

    epsilon: float
    delta: float
    steps: int
    learning_rate: float
    sigma: float
    """Noise std on each sum X^T clip(r); the mean gradient has sigma / n."""
    accounting: DescentAccounting


def hessian_mixing_k(d: int, iterations: int, varrho: float, factor: float = 6.0) -> int:
    """Sketch rows of the paper's code: max(int(factor d), int(factor ln(4 T / varrho)))."""
    return max(int(factor * d), int(factor * math.log(4.0 * iterations / varrho)))


def tuned_schedule(epsilon: float) -> tuple[int, float]:
    """(iterations, k_factor) for a budget, chosen on synthetic validation data; reads nothing but epsilon.

    Small budgets want more steps, since the ridge slows convergence; at large ones the error of the sketch dominates, and
    larger sketches pay. The paper's (3, 6) is a compromise. See benchmarks/tune_mixing.py.
    """
    if epsilon < 1.7:
        return 5, 6.0
    return (5, 12.0) if epsilon < 5.5 else (3, 48.0)


def linear_mixing_k(d: int, varrho: float, factor: float = 2.5) -> int:
    """Sketch rows of one-shot mixing: max(int(factor d), int(factor ln(2 / varrho)))."""
    return max(int(factor * d), int(factor * math.log(2.0 / varrho)))


def sketch_epsilon(gamma: float, k: int, iterations: int, delta: float, norm_squared: float = 1.0) -> float:
    """Epsilon at `delta` of `iterations` sketches plus the noisy eigenvalue that justifies `gamma`.

    The sketches compose in Rényi divergence and are converted with delta/3; the eigenvalue takes delta/3 by the classical
    Gaussian bound with noise std norm_squared gamma / sqrt(k); the last delta/3 is the chance that the eigenvalue's lower
    bound is wrong. Only gamma / norm_squared matters.
    """
    share = delta / 3.0
    limit = gamma / norm_squared

    def curve(alpha: NDArray[np.float64]) -> NDArray[np.float64]:
        return iterations * sketch_rdp(alpha, k, gamma, norm_squared)

    sketches, _ = rdp_epsilon(curve, share, limit)
    return sketches + eigenvalue_epsilon(norm_squared * gamma / math.sqrt(k), norm_squared, share)


@lru_cache(maxsize=512)
def solve_gamma(k: int, iterations: int, epsilon: float, delta: float, norm_squared: float = 1.0) -> float:
    """Smallest gamma > norm_squared with `sketch_epsilon(gamma) <= epsilon`, on the private side."""

    def accept(excess: float) -> bool:
        return sketch_epsilon(norm_squared * (1.0 + excess), k, iterations, delta, norm_squared) <= epsilon

    return norm_squared * (1.0 + bisect_smallest(accept, 1.0, 1e3, tolerance=1e-11))


@lru_cache(maxsize=512)
def plan_hessian_mixing(
    d: int,
    epsilon: float,
    delta: float,
    *,
    iterations: int = 3,
    k: int | None = None,
    k_factor: float = 6.0,
    varrho: float | None = None,
    accounting: Accounting = "paper",
) -> HessianMixingPlan:
    """Calibrate iterative Hessian mixing for (epsilon, delta) under zero-out adjacency.

    `accounting="paper"`: (epsilon/2, 3 delta/4) for sketches and eigenvalue, (epsilon/2, delta/4) for the scores.
    `accounting="joint"`: one Rényi curve for everything at 3 delta/4, delta/4 for the eigenvalue's tail; starts from the
    paper's scales and shrinks them by one factor. Not in the paper. Raises `ValueError` when k < d + 2.
    """
    varrho = delta / 10.0 if varrho is None else varrho
    k = hessian_mixing_k(d, iterations, varrho, k_factor) if k is None else k
    if k < d + 2:
        raise ValueError(
            f"the sketch has k={k} rows, but d={d} features need k >= d + 2 = {d + 2}; raise k or k_factor"
        )
    gamma = solve_gamma(k, iterations, epsilon / 2.0, 0.75 * delta)
    sigma = math.sqrt(iterations) * analytic_gaussian_sigma(epsilon / 2.0, delta / 4.0, _LABEL_BOUND)
    if accounting == "joint":
        factor = _joint_factor(k, iterations, gamma, sigma, epsilon, 0.75 * delta)
        gamma, sigma = factor * gamma, factor * sigma
    return HessianMixingPlan(
        d=d,
        epsilon=epsilon,
        delta=delta,
        varrho=varrho,
        iterations=iterations,
        k=k,
        gamma=gamma,
        eta=gamma / math.sqrt(k),
        tau=math.sqrt(2.0 * math.log(max(4.0 / delta, 4.0 / varrho))),
        sigma=sigma,
        accounting=accounting,
    )


def joint_epsilon(k: int, iterations: int, gamma: float, sigma: float, delta: float) -> float:
    """Epsilon at `delta` of sketches, eigenvalue (std gamma / sqrt(k)) and scores (std sigma) on one Rényi curve."""

    def curve(alpha: NDArray[np.float64]) -> NDArray[np.float64]:
        sketches = iterations * sketch_rdp(alpha, k, gamma)
        eigenvalue = gaussian_rdp(alpha, math.sqrt(k) / gamma)
        scores = gaussian_rdp(alpha, math.sqrt(iterations) * _LABEL_BOUND / sigma)
        return sketches + eigenvalue + scores

    return rdp_epsilon(curve, delta, gamma)[0]


def _joint_factor(k: int, iterations: int, gamma: float, sigma: float, epsilon: float, delta: float) -> float:
    """Smallest common factor on gamma and sigma that still meets (epsilon, delta) on the joint curve."""
    # In units of gamma - 1, so that the search cannot step to gamma <= 1 where no order is left.

    def accept(excess: float) -> bool:
        factor = (1.0 + excess) / gamma
        return joint_epsilon(k, iterations, factor * gamma, factor * sigma, delta) <= epsilon

    return (1.0 + bisect_smallest(accept, (gamma - 1.0) / 2.0, gamma - 1.0, tolerance=1e-11)) / gamma


@lru_cache(maxsize=512)
def plan_adassp(
    d: int,
    epsilon: float,
    delta: float,
    *,
    varrho: float | None = None,
    shift: Shift = "wang",
    accounting: Accounting = "paper",
) -> AdaSSPPlan:
    """Calibrate AdaSSP: three Gaussian mechanisms of (epsilon/3, delta/3) each, or ("joint") all three as one by GDP."""
    varrho = delta / 10.0 if varrho is None else varrho
    if accounting == "joint":
        s = math.sqrt(3.0) * analytic_gaussian_sigma(epsilon, delta, 1.0)
    else:
        s = analytic_gaussian_sigma(epsilon / 3.0, delta / 3.0, 1.0)
    return AdaSSPPlan(
        d=d,
        epsilon=epsilon,
        delta=delta,
        varrho=varrho,
        s=s,
        s_y=s * _LABEL_BOUND,
        shift=s * math.sqrt(math.log(6.0 / delta)) if shift == "wang" else s * s,
        ridge_target=s * math.sqrt(d * math.log(2.0 * d * d / varrho)),
        shift_rule=shift,
        accounting=accounting,
    )


@lru_cache(maxsize=512)
def plan_linear_mixing(
    d: int, epsilon: float, delta: float, *, k: int | None = None, k_factor: float = 2.5, varrho: float | None = None
) -> LinearMixingPlan:
    """Calibrate one-shot mixing of [X, y]: rows of squared norm up to 2, the whole (epsilon, delta), delta in thirds.

    The least eigenvalue of [X, y]^T [X, y] has sensitivity 2 under zero-out; its noise std is 2 gamma / sqrt(k). (The
    official code uses sqrt(2) gamma / sqrt(k) and so under-counts it.)
    """
    varrho = delta / 10.0 if varrho is None else varrho
    k = linear_mixing_k(d, varrho, k_factor) if k is None else k
    if k < d + 2:
        raise ValueError(
            f"the sketch has k={k} rows, but d={d} features need k >= d + 2 = {d + 2}; raise k or k_factor"
        )
    gamma = solve_gamma(k, 1, epsilon, delta, _NORM_BOUND_WITH_LABEL)
    return LinearMixingPlan(
        d=d,
        epsilon=epsilon,
        delta=delta,
        varrho=varrho,
        k=k,
        gamma=gamma,
        eta=_NORM_BOUND_WITH_LABEL * gamma / math.sqrt(k),
        tau=math.sqrt(2.0 * math.log(max(3.0 / delta, 3.0 / varrho))),
    )


@lru_cache(maxsize=512)
def plan_gradient_descent(
    epsilon: float, delta: float, *, steps: int, learning_rate: float, accounting: DescentAccounting = "gdp"
) -> GradientDescentPlan:
    """Calibrate `steps` noisy gradients.

    "official": zCDP with the replace-one sensitivity 2 (twice the noise that zero-out needs); "zcdp": zCDP with
    sensitivity 1; "gdp": all steps as one analytic Gaussian mechanism, the tightest.
    """
    if accounting == "gdp":
        sigma = math.sqrt(steps) * analytic_gaussian_sigma(epsilon, delta, _LABEL_BOUND)
    else:
        sensitivity = 2.0 * _LABEL_BOUND if accounting == "official" else _LABEL_BOUND
        sigma = sensitivity * math.sqrt(steps / (2.0 * zcdp_rho(epsilon, delta)))
    return GradientDescentPlan(epsilon, delta, steps, learning_rate, sigma, accounting)
