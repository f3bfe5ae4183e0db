from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from icml26_plugin_timeguard.criteria import (
    empty_channels,
    initial_pool,
    lowest,
    neighbourhood_diversity_filter,
    quantile_count,
    reverse_consistency_filter,
)
from icml26_plugin_timeguard.selection import candidates, drls, pool_fraction


def scores(seed: int = 0, channels: int = 3, n: int = 101) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((channels, n)), rng.random((channels, n))


def test_filters_keep_the_easiest_backwards_and_the_most_isolated() -> None:
    values = np.array([[5.0, 1.0, 4.0, 2.0, 3.0]])
    np.testing.assert_array_equal(reverse_consistency_filter(values, 0.4), [[False, True, False, True, False]])
    np.testing.assert_array_equal(neighbourhood_diversity_filter(values, 0.4), [[True, False, True, False, False]])


def test_ties_go_to_the_earlier_window() -> None:
    np.testing.assert_array_equal(lowest(np.zeros((1, 5)), 2), [[True, True, False, False, False]])


def test_initial_pool_is_the_intersection() -> None:
    loss, isolation = scores(n=500)
    rcf, ndf = reverse_consistency_filter(loss, 0.2), neighbourhood_diversity_filter(isolation, 0.2)
    np.testing.assert_array_equal(initial_pool(rcf, ndf, loss, isolation), rcf & ndf)


def test_a_channel_with_an_empty_intersection_gets_the_best_ranked_member_of_the_union() -> None:
    loss = np.array([[0.0, 1.0, 2.0, 3.0]])
    isolation = np.array([[0.0, 5.0, 1.0, 9.0]])
    rcf, ndf = reverse_consistency_filter(loss, 0.25), neighbourhood_diversity_filter(isolation, 0.25)
    assert empty_channels(rcf & ndf) == [0]
    # Rank sums: unit 0 has 0 + 3, unit 3 has 3 + 0; of equals the earlier. Unit 1 (1 + 1) is in neither filter.
    np.testing.assert_array_equal(initial_pool(rcf, ndf, loss, isolation), [[True, False, False, False]])


@given(st.integers(1, 5000), st.integers(1, 100))
def test_quantile_count_is_the_floor_of_the_exact_product(n: int, percent: int) -> None:
    assert quantile_count(n, percent / 100) == n * percent // 100


def test_schedule_runs_from_alpha_to_beta_and_one_round_is_beta() -> None:
    gammas = [pool_fraction(e, 90, 0.2, 0.5) for e in range(90)]
    assert gammas[0] == 0.2
    assert gammas[-1] == pytest.approx(0.5, abs=1e-15)
    np.testing.assert_allclose(np.diff(gammas), 0.3 / 89)
    assert pool_fraction(0, 1, 0.2, 0.5) == 0.5


@given(st.integers(0, 1000), st.floats(0.05, 1.0), st.floats(1.0, 3.0))
def test_pool_has_exactly_the_asked_size_and_lies_within_the_candidates(seed: int, gamma: float, pi: float) -> None:
    loss, isolation = scores(seed)
    pool = drls(loss, isolation, gamma, pi)
    assert (pool.sum(axis=1) == quantile_count(101, gamma)).all()
    assert not (pool & ~candidates(isolation, gamma, pi)).any()
    # The threshold is the 1/pi quantile of the loss within the gate: nothing left in the gate has a smaller loss.
    for channel in range(3):
        rest = candidates(isolation, gamma, pi)[channel] & ~pool[channel]
        if rest.any() and pool[channel].any():
            assert loss[channel][pool[channel]].max() <= loss[channel][rest].min()


def test_wide_gate_is_pure_small_loss_and_narrow_gate_ignores_the_loss() -> None:
    loss, isolation = scores()
    np.testing.assert_array_equal(drls(loss, isolation, 0.5, 2.0), lowest(loss, 50))
    np.testing.assert_array_equal(drls(loss, isolation, 0.5, 1.0), neighbourhood_diversity_filter(isolation, 0.5))


def test_infinite_isolation_is_always_a_candidate() -> None:
    _loss, isolation = scores()
    isolation[0, 17] = np.inf
    assert candidates(isolation, 0.05, 1.0)[0, 17]


def test_selection_commutes_with_a_permutation_of_channels() -> None:
    loss, isolation = scores(channels=5)
    order = np.random.default_rng(1).permutation(5)
    np.testing.assert_array_equal(
        drls(loss[order], isolation[order], 0.4, 1.25), drls(loss, isolation, 0.4, 1.25)[order]
    )
