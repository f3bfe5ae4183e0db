"""The statistics of a bench, against scipy and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icml26.statistics import (
    paired_difference,
    ratio,
    sign_flip_p_value,
    student_t_quantile,
    summarize,
    summarize_median,
)

scipy_stats = pytest.importorskip("scipy.stats", reason="scipy is the oracle of these tests")


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 9, 10, 29, 30, 99, 100, 399, 400, 401, 1000, 100_000])
@pytest.mark.parametrize("probability", [0.6, 0.9, 0.975, 0.995, 0.025])
def test_t_quantiles_agree_with_scipy(degrees: int, probability: float) -> None:
    assert student_t_quantile(probability, degrees) == pytest.approx(
        scipy_stats.t.ppf(probability, degrees), rel=1e-9, abs=1e-9
    )


@given(st.lists(st.integers(-(10**8), 10**8).map(lambda i: i / 100), min_size=2, max_size=12))
@settings(max_examples=60, deadline=None)
def test_the_interval_of_a_mean_is_scipys(values: list[float]) -> None:
    estimate = summarize(values)
    if estimate.note == "zero variance":
        assert len(set(values)) == 1
        return
    error = scipy_stats.sem(values)
    low, high = scipy_stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=error)
    scale = max(abs(value) for value in values)
    assert estimate.value == pytest.approx(np.mean(values), rel=1e-9, abs=1e-9 * scale)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), rel=1e-6, abs=1e-7 * scale)
    assert estimate.n == len(values)


def test_one_seed_has_no_interval() -> None:
    assert summarize([3.0]) == summarize_median([3.0])
    assert summarize([3.0]).low is None
    assert summarize([3.0]).note == "one seed"


def test_equal_values_are_flagged_and_have_no_interval() -> None:
    estimate = summarize([0.1, 0.1, 0.1])
    assert (estimate.value, estimate.low, estimate.note) == (0.1, None, "zero variance")


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_values_that_are_not_finite_are_counted(strange: float) -> None:
    estimate = summarize([1.0, strange, 2.0])
    assert not math.isfinite(estimate.value)
    assert estimate.low is None
    assert estimate.note == "1 of 3 not finite"


def test_nothing_cannot_be_summarized() -> None:
    with pytest.raises(ValueError, match="no values"):
        summarize([])


def test_the_bootstrap_interval_of_a_difference_is_near_scipys() -> None:
    rng = np.random.default_rng(3)
    first = {("a", seed): float(rng.normal(1, 1)) for seed in range(20)}
    second = {("a", seed): float(rng.normal(0, 1)) for seed in range(20)}
    comparison = paired_difference(first, second)
    assert comparison is not None
    differences = np.array([first[pair] - second[pair] for pair in first])
    oracle = scipy_stats.bootstrap(
        (differences,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    )
    width = oracle.confidence_interval.high - oracle.confidence_interval.low
    assert comparison.difference.value == pytest.approx(differences.mean())
    assert comparison.difference.low == pytest.approx(oracle.confidence_interval.low, abs=0.03 * width)
    assert comparison.difference.high == pytest.approx(oracle.confidence_interval.high, abs=0.03 * width)


def test_the_bootstrap_interval_of_a_ratio_is_near_scipys_paired_one() -> None:
    rng = np.random.default_rng(5)
    base = rng.uniform(1, 10, 15)
    above = {seed: float(2 * base[seed] + rng.normal(0, 0.1)) for seed in range(15)}
    below = {seed: float(base[seed]) for seed in range(15)}
    estimate = ratio(above, below)
    assert estimate is not None and estimate.low is not None and estimate.high is not None
    oracle = scipy_stats.bootstrap(
        (np.array([*above.values()]), base),
        lambda x, y, axis: np.mean(x, axis=axis) / np.mean(y, axis=axis),
        paired=True,
        method="percentile",
        n_resamples=20_000,
        rng=np.random.default_rng(1),
    )
    interval = oracle.confidence_interval
    assert estimate.value == pytest.approx(sum(above.values()) / sum(below.values()))
    assert (estimate.low, estimate.high) == pytest.approx(
        (interval.low, interval.high), abs=0.05 * interval.high - 0.05 * interval.low
    )
    assert estimate.high - estimate.low < 0.1, "pairing removes the spread that both share"


def test_only_shared_pairs_are_compared() -> None:
    comparison = paired_difference({1: 5.0, 2: 7.0, 3: 100.0}, {1: 4.0, 2: 4.0, 9: 0.0})
    assert comparison is not None
    assert comparison.difference.value == pytest.approx(2.0)
    assert comparison.difference.n == 2
    assert paired_difference({1: 1.0}, {2: 1.0}) is None
    assert ratio({1: 1.0}, {2: 1.0}) is None


def test_a_p_value_needs_six_pairs() -> None:
    five = paired_difference({i: float(i + 1) for i in range(5)}, dict.fromkeys(range(5), 0.0))
    six = paired_difference({i: float(i + 1) for i in range(6)}, dict.fromkeys(range(6), 0.0))
    assert five is not None and six is not None
    assert (five.p_value, five.p_note) == (None, "n too small")
    assert six.p_value == pytest.approx(2 / 64)


def test_the_sign_flip_test_is_scipys_permutation_test() -> None:
    values = np.random.default_rng(2).normal(0.4, 1, 10)
    oracle = scipy_stats.permutation_test(
        (values,), np.sum, permutation_type="samples", n_resamples=np.inf, alternative="two-sided", vectorized=False
    )
    # scipy's one-sample "samples" permutation flips signs
    assert sign_flip_p_value(values) == pytest.approx(oracle.pvalue)


def test_the_sampled_sign_flip_test_is_near_the_exact_one_and_never_zero() -> None:
    strong = np.ones(30)
    assert 0 < sign_flip_p_value(strong) < 0.001
    mild = np.concatenate([np.full(12, 1.0), np.full(8, -1.0)])
    exact = 2 * scipy_stats.binom.sf(11, 20, 0.5)
    assert sign_flip_p_value(mild) == pytest.approx(exact, abs=0.02)


def test_equal_differences_are_flagged() -> None:
    comparison = paired_difference(dict.fromkeys(range(7), 2.0), dict.fromkeys(range(7), 1.0))
    assert comparison is not None
    assert comparison.difference.note == "zero variance"
    assert comparison.difference.low is None
    assert comparison.p_value == pytest.approx(2 / 2**7)


def test_a_denominator_that_may_be_zero_gives_no_interval() -> None:
    estimate = ratio({0: 1.0, 1: 1.0, 2: 1.5}, {0: -1.0, 1: 1.0, 2: 3.0})
    assert estimate is not None
    assert estimate.low is None
    assert estimate.note == "the denominator's interval holds zero"
    zero = ratio({0: 1.0}, {0: 0.0})
    assert zero is not None and zero.value == math.inf and zero.note == "the denominator is zero"


def test_the_same_values_give_the_same_interval() -> None:
    first, second = {i: float(i**2) for i in range(9)}, {i: float(i) for i in range(9)}
    assert paired_difference(first, second) == paired_difference(first, second)


def test_medians_ignore_one_wild_seed() -> None:
    values = [1.0, 1.1, 0.9, 1.05, 1000.0]
    assert summarize_median(values).value == pytest.approx(1.05)
    estimate = ratio(dict(enumerate(values)), dict.fromkeys(range(5), 0.5), aggregate="median")
    assert estimate is not None and estimate.value == pytest.approx(2.1)


def test_many_pairs_stay_within_memory() -> None:
    first = {i: float(i % 7) for i in range(2_000)}
    comparison = paired_difference(first, dict.fromkeys(first, 1.0))
    assert comparison is not None and comparison.difference.low is not None
