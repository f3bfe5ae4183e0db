"""Hops on hand-made scores, and exhaustive rollout against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from icml26_plugin_flashtrace.recursion import recursion_span, trace_back
from icml26_plugin_flashtrace.rollout import exhaustive_rollout, ifr_row, normalised_rows

KEPT = np.ones(6, dtype=bool)  # three prompt tokens, then two of reasoning, one of answer


class Hand:
    """Scores by the number of the call; remembers what was asked."""

    def __init__(self, *scores: list[float]) -> None:
        self.scores = [np.array(s, dtype=np.float32) for s in scores]
        self.calls: list[tuple[int, int, list[float]]] = []

    def __call__(self, lo: int, hi: int, w: np.ndarray) -> np.ndarray:
        self.calls.append((lo, hi, w.tolist()))
        return self.scores[len(self.calls) - 1]


def test_two_hops_by_hand() -> None:
    hand = Hand([1, 2, 1, 3, 1, 2], [4, 0, 0, 2, 2, 0], [0, 5, 0, 5, 0, 0])
    found = trace_back(hand, (5, 5), (3, 5), 3, 2, KEPT)
    assert hand.calls == [(5, 5, [1.0]), (3, 5, [3.0, 1.0, 2.0]), (3, 5, [2.0, 2.0, 0.0])]
    np.testing.assert_allclose(found.ratios, [0.6, 0.5, 0.5])
    np.testing.assert_allclose(found.hops, [[1, 2, 1], [2.4, 0, 0], [0, 0.6 * 0.5 * 5, 0]], rtol=1e-6)
    np.testing.assert_allclose(found.scores, [3.4, 3.5, 1], rtol=1e-6)
    np.testing.assert_array_equal(found.first, [1, 2, 1, 3, 1, 2])


@pytest.mark.parametrize("hops", [0, 1, 5])
def test_nothing_on_generated_tokens_ends_at_once(hops: int) -> None:
    hand = Hand([1, 2, 1, 0, 0, 0])
    found = trace_back(hand, (5, 5), (3, 5), 3, hops, KEPT)
    np.testing.assert_array_equal(found.scores, [1, 2, 1])
    assert found.hops.shape == (hops + 1, 3)
    assert len(hand.calls) == 1


def test_everything_on_generated_tokens_is_passed_on_whole() -> None:
    found = trace_back(Hand([0, 0, 0, 1, 1, 0], [2, 3, 4, 0, 0, 0]), (5, 5), (3, 5), 3, 1, KEPT)
    np.testing.assert_allclose(found.scores, [2, 3, 4])
    np.testing.assert_allclose(found.ratios, [1, 0])


def test_stop_tokens_are_no_targets_no_weights_and_get_no_scores() -> None:
    kept = np.array([True, False, True, False, True, True])
    hand = Hand([1, 9, 1, 9, 1, 1], [1, 1, 1, 1, 1, 1])
    found = trace_back(hand, (3, 5), (3, 5), 3, 1, kept)
    assert hand.calls == [(3, 5, [0.0, 1.0, 1.0]), (3, 5, [0.0, 1.0, 1.0])]
    np.testing.assert_allclose(found.ratios, [0.5, 0.5])
    np.testing.assert_allclose(found.scores, [1.5, 0, 1.5])


def test_weights_of_the_answer_are_used() -> None:
    hand = Hand([1, 0, 0, 0, 0, 0])
    trace_back(hand, (4, 5), (3, 5), 3, 0, KEPT, weights=np.array([0.25, 2.0]))
    assert hand.calls == [(4, 5, [0.25, 2.0])]


def test_weights_of_stop_tokens_do_not_count() -> None:
    hand = Hand([1, 0, 0, 0, 0, 0])
    trace_back(hand, (4, 5), (3, 5), 3, 0, np.array([True] * 4 + [False, True]), weights=np.array([0.25, 2.0]))
    assert hand.calls == [(4, 5, [0.0, 2.0])]


def test_scores_grow_with_every_hop() -> None:
    rng = np.random.default_rng(0)
    scores = [list(rng.uniform(size=6)) for _ in range(5)]
    before = np.zeros(3)
    for hops in range(5):
        found = trace_back(Hand(*scores), (5, 5), (3, 5), 3, hops, KEPT).scores
        assert (found >= before).all()
        before = found


def test_recursion_span_rules() -> None:
    assert recursion_span("generation", (7, 9), (2, 6), 10, 24) == (12, 19)
    assert recursion_span("reasoning", (7, 9), (2, 6), 10, 24) == (12, 16)
    assert recursion_span("generation", (7, 9), None, 10, 24) == (10, 23)
    assert recursion_span("reasoning", (7, 9), None, 10, 24) == (10, 23)


def test_rollout_is_the_definition() -> None:
    rng = np.random.default_rng(0)
    p, g = 4, 6
    rows = np.tril(rng.uniform(-0.2, 1, size=(g, p + g)), k=p)
    b = normalised_rows(rows)
    expected = np.zeros(p + g)
    for t in (2, 4, 5):
        r = b[t].copy()
        for k in range(t - 1, -1, -1):
            a = r[p + k]
            r += a * b[k]
            r[p + k] = 0
        expected += r
    found = exhaustive_rollout(rows, p, np.array([2, 4, 5]))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_rollout_conserves_the_mass_of_a_chain() -> None:
    """Token 0 reads the prompt, every later one only the one before: all of it ends on the prompt."""
    p, g = 2, 5
    rows = np.zeros((g, p + g))
    rows[0, :p] = [1, 3]
    for k in range(1, g):
        rows[k, p + k - 1] = 2.0
    np.testing.assert_allclose(exhaustive_rollout(rows, p, np.array([g - 1]))[:p], [0.25, 0.75], rtol=1e-6)


def test_ifr_row_sums_the_normalised_rows_of_the_targets() -> None:
    rows = np.array([[1.0, 1, 0], [-3, 1, 1], [5, 5, 5]])
    np.testing.assert_allclose(ifr_row(rows, np.array([True, True, False])), [0.5, 1.0, 0.5], rtol=1e-6)
