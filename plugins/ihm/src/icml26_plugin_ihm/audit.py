"""A statistical audit: a lower bound on epsilon from many runs on two neighbouring data sets.

A failed audit proves that a mechanism is not private as stated. A passed one proves nothing: its power is limited.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from icml26_plugin_ihm.calibration import HessianMixingPlan
from icml26_plugin_ihm.mixing import iterative_hessian_mixing
from icml26_plugin_ihm.noise import NumpyNoise
from icml26_plugin_ihm.rows import BoundedRows
from icml26_plugin_ihm.sketch import wishart_hessian

Array = NDArray[np.float64]

_THRESHOLDS = 400


class AuditResult(NamedTuple):
    """Lower confidence bounds on epsilon, one for each published statistic that was attacked."""

    theta: float
    score: float
    hessian: float
    confidence: float

    @property
    def epsilon(self) -> float:
        """The largest of the three."""
        return max(self.theta, self.score, self.hessian)


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Two-sided exact interval of a proportion at `confidence` in (0, 1)."""
    tail = (1.0 - confidence) / 2.0
    low = 0.0 if successes == 0 else float(beta.ppf(tail, successes, trials - successes + 1))
    high = 1.0 if successes == trials else float(beta.ppf(1.0 - tail, successes + 1, trials - successes))
    return low, high


def _bound(positives: Array, negatives: Array, threshold: float, delta: float, confidence: float) -> float:
    """ln((TPR_low - delta) / FPR_high) of the event "statistic > threshold"; -inf when nothing is shown."""
    true_low, _ = clopper_pearson(int(np.count_nonzero(positives > threshold)), len(positives), confidence)
    _, false_high = clopper_pearson(int(np.count_nonzero(negatives > threshold)), len(negatives), confidence)
    return math.log((true_low - delta) / false_high) if true_low > delta else -math.inf


def epsilon_lower_bound(first: Array, second: Array, delta: float, confidence: float = 0.99) -> float:
    """Lower bound on epsilon from statistics (N,) of a mechanism on two neighbouring data sets.

    Threshold, side and direction of the attack are chosen on the first half of the runs and judged on the second half.
    """
    half = len(first) // 2
    chosen, best = (first[half:], second[half:], math.inf), -math.inf
    for sign in (1.0, -1.0):
        for a, b in ((first, second), (second, first)):
            positives, negatives = sign * a[:half], sign * b[:half]
            pool = np.concatenate([positives, negatives])
            for threshold in np.quantile(pool, _tail_grid(len(pool))):
                bound = _bound(positives, negatives, float(threshold), delta, confidence)
                if bound > best:
                    best, chosen = bound, (sign * a[half:], sign * b[half:], float(threshold))
    return _bound(*chosen, delta, confidence)


def _tail_grid(n: int) -> Array:
    """Quantiles spread evenly in log odds, so that both tails are searched."""
    odds = np.linspace(-math.log(n / 10.0), math.log(n / 10.0), _THRESHOLDS)
    return 1.0 / (1.0 + np.exp(-odds))


def audit_hessian_mixing(
    plan: HessianMixingPlan, generator: np.random.Generator, *, runs: int = 200_000, confidence: float = 0.99
) -> AuditResult:
    """Attack iterative Hessian mixing with `plan` (d = 1) on a data set made to expose one row.

    20 rows x = 0.3, y = -0.2, but x_0 = y_0 = 1; the neighbour has row 0 zeroed. Statistics: the final coefficient, the
    sum of scores, the sum of Hessians.
    """
    X, y = np.full((20, 1), 0.3), np.full(20, -0.2)
    X[0], y[0] = 1.0, 1.0
    neighbour_X, neighbour_y = X.copy(), y.copy()
    neighbour_X[0], neighbour_y[0] = 0.0, 0.0
    noise = NumpyNoise(generator)
    samples = []
    for data, labels in ((X, y), (neighbour_X, neighbour_y)):
        rows = BoundedRows.from_arrays(data, labels)
        release = iterative_hessian_mixing(rows, plan, noise, repeats=runs, sampler=wishart_hessian, keep_hessians=True)
        assert release.hessians is not None
        samples.append((release.theta[:, 0], release.scores.sum(axis=0)[:, 0], release.hessians.sum(axis=0)[:, 0, 0]))
    theta, score, hessian = (epsilon_lower_bound(a, b, plan.delta, confidence) for a, b in zip(*samples, strict=True))
    return AuditResult(theta, score, hessian, confidence)
