"""What a bench says about repeated runs: means, intervals, paired comparisons. The unit of replication is a seed.

Everything here works on plain numbers and needs numpy only; scipy is an oracle of the tests, not a dependency. Resampling
draws from a generator of its own with a fixed seed, so that the same records give the same table.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 10_000
#: Fewer pairs than this cannot reach p <= 0.05 in a two-sided sign-flip test (2 / 2**6 = 0.031).
MINIMUM_PAIRS = 6
#: Up to this many pairs every one of the 2**n sign patterns is looked at; beyond, RESAMPLES random ones.
_EXACT_PAIRS = 14
_SERIES_DEGREES = 400

Aggregate: TypeAlias = Literal["mean", "median"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A point estimate with its interval. ``low`` and ``high`` are None where there is none, and ``note`` says why.

    ``n`` is the number of replicates (seeds, or (dataset, seed) pairs) behind it.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A paired difference (first minus second) and the p-value of the sign-flip permutation test, if it may be given."""

    difference: Estimate
    p_value: float | None
    p_note: str | None = None


def summarize(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Mean and t interval over replicates.

    One value has no interval; equal values have none either and are flagged ``zero variance``; a value that is not
    finite makes the mean so and is counted in the note. An empty sequence raises ValueError.
    """
    n = len(values)
    if n == 0:
        raise ValueError("no values to summarize")
    strange = sum(not math.isfinite(value) for value in values)
    if strange:
        return Estimate(sum(values) / n, None, None, n, f"{strange} of {n} not finite")
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None, None, 1, "one seed")
    if all(value == values[0] for value in values):
        return Estimate(values[0], None, None, n, "zero variance")
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = student_t_quantile(0.5 + confidence / 2, n - 1) * deviation / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, n)


def summarize_median(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Median and its bootstrap interval over replicates; flags as ``summarize``."""
    mean = summarize(values, confidence)
    median = statistics.median(values)
    if mean.low is None:
        return Estimate(median if mean.note != "zero variance" else mean.value, None, None, mean.n, mean.note)
    low, high = _interval(_centers(np.asarray(values, dtype=float), "median"), confidence)
    return Estimate(median, low, high, mean.n)


def paired_difference(
    first: Mapping[Any, float],
    second: Mapping[Any, float],
    *,
    aggregate: Aggregate = "mean",
    confidence: float = CONFIDENCE,
) -> Comparison | None:
    """First minus second over the pairs (e.g. (dataset, seed)) that both have; None when they share none.

    The interval is a percentile bootstrap over pairs; the p-value a two-sided sign-flip permutation test of the mean
    difference, given from MINIMUM_PAIRS pairs on.
    """
    shared = [pair for pair in first if pair in second]
    if not shared:
        return None
    differences = np.array([first[pair] - second[pair] for pair in shared], dtype=float)
    n = len(differences)
    strange = int(np.count_nonzero(~np.isfinite(differences)))
    if strange:
        with np.errstate(invalid="ignore"):
            value = float(differences.mean())
        note = f"{strange} of {n} not finite"
        return Comparison(Estimate(value, None, None, n, note), None, note)
    value = _center(differences, aggregate)
    if n == 1:
        return Comparison(Estimate(value, None, None, 1, "one pair"), None, "n too small")
    if np.all(differences == differences[0]):
        estimate = Estimate(float(differences[0]), None, None, n, "zero variance")
    else:
        low, high = _interval(_centers(differences, aggregate), confidence)
        estimate = Estimate(value, low, high, n)
    if n < MINIMUM_PAIRS:
        return Comparison(estimate, None, "n too small")
    return Comparison(estimate, sign_flip_p_value(differences))


def ratio(
    numerator: Mapping[Any, float],
    denominator: Mapping[Any, float],
    *,
    aggregate: Aggregate = "mean",
    confidence: float = CONFIDENCE,
) -> Estimate | None:
    """The ratio of means (or medians) over shared pairs with a paired percentile bootstrap; None when they share none.

    No interval is given when a resampled denominator is zero or has the other sign: the ratio is then unbounded.
    """
    shared = [pair for pair in numerator if pair in denominator]
    if not shared:
        return None
    above = np.array([numerator[pair] for pair in shared], dtype=float)
    below = np.array([denominator[pair] for pair in shared], dtype=float)
    n = len(shared)
    with np.errstate(all="ignore"):
        center = _center(below, aggregate)
        value = float(np.divide(_center(above, aggregate), center))
    strange = int(np.count_nonzero(~(np.isfinite(above) & np.isfinite(below))))
    if strange:
        return Estimate(value, None, None, n, f"{strange} of {n} not finite")
    if center == 0:
        return Estimate(value, None, None, n, "the denominator is zero")
    if n == 1:
        return Estimate(value, None, None, 1, "one pair")
    if np.all(above == above[0]) and np.all(below == below[0]):
        return Estimate(value, None, None, n, "zero variance")
    denominators = _centers(below, aggregate)
    if np.any(denominators * np.sign(center) <= 0):
        return Estimate(value, None, None, n, "the denominator's interval holds zero")
    low, high = _interval(_centers(above, aggregate) / denominators, confidence)
    return Estimate(value, low, high, n)


def sign_flip_p_value(differences: Sequence[float] | np.ndarray) -> float:
    """Two-sided p-value of a mean of zero when the sign of each difference is arbitrary.

    Exact over all 2^n patterns up to 14 pairs; beyond, Monte Carlo (10,000 patterns, fewer for many pairs) with the
    observed pattern counted, so never 0.
    """
    values = np.asarray(differences, dtype=float)
    n = len(values)
    observed = abs(values.sum())
    slack = 1e-12 * float(np.abs(values).sum())
    extreme = np.abs(_signs(n) @ values) >= observed - slack
    if n <= _EXACT_PAIRS:
        return float(np.mean(extreme))
    return float((1 + np.count_nonzero(extreme)) / (1 + len(extreme)))


@lru_cache(maxsize=8)
def _signs(n: int) -> np.ndarray:
    """All patterns of n signs, one a row, or many random ones."""
    if n <= _EXACT_PAIRS:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=n)))
    else:
        signs = np.random.default_rng(0).integers(0, 2, size=(_resamples(n), n)) * 2.0 - 1.0
    signs.setflags(write=False)
    return signs


def _resamples(n: int) -> int:
    """RESAMPLES; fewer for many rows, so that memory stays bounded."""
    return max(1000, min(RESAMPLES, 1_000_000 // n))


@lru_cache(maxsize=256)
def student_t_quantile(probability: float, degrees: int) -> float:
    """The quantile of Student's t distribution with an integer number of degrees of freedom.

    Newton's method on the closed form of the distribution function (Abramowitz & Stegun 26.7.3, 26.7.4); for many
    degrees the normal quantile with the expansion of 26.7.5.
    """
    if not 0 < probability < 1 or degrees < 1:
        raise ValueError("a probability within (0, 1) and at least one degree of freedom are expected")
    if probability < 0.5:
        return -student_t_quantile(1 - probability, degrees)
    x = statistics.NormalDist().inv_cdf(probability)
    start = _expansion(x, degrees)
    if degrees > _SERIES_DEGREES:
        return start
    if degrees == 1:
        return math.tan(math.pi * (probability - 0.5))
    low, high = 0.0, max(4.0, 2 * start)
    while _student_t_cdf(high, degrees) < probability:
        high *= 2
    while high - low > 1e-13 * max(1.0, high):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _student_t_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _expansion(x: float, degrees: int) -> float:
    g1 = (x**3 + x) / 4
    g2 = (5 * x**5 + 16 * x**3 + 3 * x) / 96
    g3 = (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384
    g4 = (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160
    return x + g1 / degrees + g2 / degrees**2 + g3 / degrees**3 + g4 / degrees**4


def _student_t_cdf(t: float, degrees: int) -> float:
    """P(T <= t) for t >= 0."""
    theta = math.atan2(t, math.sqrt(degrees))
    sine, cosine = math.sin(theta), math.cos(theta)
    if degrees % 2:
        term, total = cosine, cosine if degrees > 1 else 0.0
        for k in range(3, degrees - 1, 2):
            term *= cosine**2 * (k - 1) / k
            total += term
        inside = 2 / math.pi * (theta + sine * total)
    else:
        term, total = 1.0, 1.0
        for k in range(2, degrees - 1, 2):
            term *= cosine**2 * (k - 1) / k
            total += term
        inside = sine * total
    return 0.5 + inside / 2


def _center(values: np.ndarray, aggregate: Aggregate) -> float:
    return float(np.median(values) if aggregate == "median" else np.mean(values))


def _centers(values: np.ndarray, aggregate: Aggregate) -> np.ndarray:
    """The mean or median of every resample; calls with equally many values resample the same rows, so columns stay paired."""
    if aggregate == "median":
        return np.median(values[_draws(len(values))], axis=1)
    return _counts(len(values)) @ values / len(values)


def _interval(centers: np.ndarray, confidence: float) -> tuple[float, float]:
    """The percentile interval of bootstrapped centres."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(centers, [tail, 1 - tail])
    return float(low), float(high)


@lru_cache(maxsize=8)
def _counts(n: int) -> np.ndarray:
    """How often each row is in each of the resamples of ``_draws``."""
    draws = _draws(n)
    rows = np.arange(len(draws))[:, None] * n
    counts = np.bincount((draws + rows).ravel(), minlength=len(draws) * n).reshape(len(draws), n).astype(float)
    counts.setflags(write=False)
    return counts


@lru_cache(maxsize=8)
def _draws(n: int) -> np.ndarray:
    """Resamples of n row numbers."""
    draws = np.random.default_rng(0).integers(0, n, size=(_resamples(n), n), dtype=np.int32)
    draws.setflags(write=False)
    return draws
