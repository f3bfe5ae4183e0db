"""Deletion curves have known areas on likelihoods that are known functions of the prompt."""

from __future__ import annotations

import numpy as np
import pytest
from icml26_plugin_flashtrace.deletion import (
    deleted_sequences,
    deletion_areas,
    deletion_groups,
    deletion_of,
    leave_one_out,
    spearman,
    target_likelihood,
)
from icml26_plugin_flashtrace.task import Example

P, FILLER = 100, 0
IMPORTANT = np.arange(40, 50)


def copy_model(ids: np.ndarray) -> np.ndarray:
    """A target that is copied from ten prompt tokens: each that is replaced costs one nat."""
    return -(ids[:, IMPORTANT] == FILLER).sum(axis=1).astype(float)


def example() -> Example:
    ids = np.arange(1, P + 4)
    return Example("copy", ("t",) * len(ids), ids, P, (0, 2))


def areas(scores: np.ndarray, kept: np.ndarray | None = None) -> tuple[float, float, float]:
    found = deletion_of(example(), scores, np.ones(P, bool) if kept is None else kept, copy_model, FILLER)
    return found.rise, found.mas, found.rise_ap


def test_a_perfect_attribution_of_a_copy_has_the_lowest_areas() -> None:
    perfect = np.zeros(P)
    perfect[IMPORTANT] = 1.0
    # Ten tokens leave in the first two of twenty groups: n = 1, 0.5, 0, … and the removed share falls alike.
    assert areas(perfect) == pytest.approx(((0.75 + 0.25) / 20, (0.75 + 0.25) / 20, (0.75 + 0.25) / 20))
    rng = np.random.default_rng(0)
    others = [areas(rng.random(P)) for _ in range(20)]
    assert all(rise > 0.05 and mas > 0.05 for rise, mas, _ in others)


def test_random_orders_lie_near_the_diagonal_and_the_reverse_at_the_end() -> None:
    rng = np.random.default_rng(1)
    mean = np.mean([areas(rng.random(P))[0] for _ in range(200)])
    assert mean == pytest.approx(0.5, abs=0.03)
    worst = np.ones(P)
    worst[IMPORTANT] = 0.0
    assert areas(worst)[0] == pytest.approx(0.95)


def test_mas_charges_a_right_order_with_wrong_sizes() -> None:
    flat = np.linspace(1.0, 0.9, P)  # claims that all tokens matter nearly alike
    order = np.concatenate([IMPORTANT, np.delete(np.arange(P), IMPORTANT)])
    scores = np.empty(P)
    scores[order] = flat
    perfect = np.zeros(P)
    perfect[IMPORTANT] = 1.0
    assert areas(scores)[0] == areas(perfect)[0]
    assert areas(scores)[1] > areas(perfect)[1] + 0.3


def test_groups_are_as_equal_as_possible_the_first_ones_larger() -> None:
    kept = np.ones(10, bool)
    kept[3] = False
    groups = deletion_groups(np.arange(10.0), kept, steps=4)
    assert [len(group) for group in groups] == [3, 2, 2, 2]
    assert groups[0].tolist() == [9, 8, 7]
    assert 3 not in np.concatenate(groups)


def test_groups_are_replaced_cumulatively_and_the_generation_never() -> None:
    ids = np.arange(1, 8)
    rows = deleted_sequences(ids, [np.array([2]), np.array([0, 1])], filler=0)
    assert rows.tolist() == [[1, 2, 3, 4, 5, 6, 7], [1, 2, 0, 4, 5, 6, 7], [0, 0, 0, 4, 5, 6, 7]]


def test_the_curve_is_clipped_and_never_rises() -> None:
    groups = [np.array([k]) for k in range(4)]
    s = np.array([-1.0, 3.0, -2.0, -1.5, -5.0])  # n: 1, 1 (clipped), 0.75, 0.75 (minimum so far), 0
    found = deletion_areas(s, np.array([4.0, 3.0, 2.0, 1.0]), groups)
    assert found.rise == pytest.approx((1 + 0.875 + 0.75 + 0.375) / 4)
    density = np.array([1.0, 0.6, 0.3, 0.1, 0.0])
    n = np.array([1.0, 1.0, 0.75, 0.75, 0.0])
    curve = n + np.abs(n - density)
    assert found.rise_ap == pytest.approx(((curve[1:] + curve[:-1]) / 2).mean())
    clipped = np.clip(curve, 0, 1)
    assert found.mas == pytest.approx(((clipped[1:] + clipped[:-1]) / 2).mean())


def test_a_target_that_becomes_likelier_has_no_area() -> None:
    found = deletion_areas(np.array([-4.0, -3.0, -2.0]), np.array([1.0, 1.0]), [np.array([0]), np.array([1])])
    assert found.rise == 0.0 and not found.flat


def test_negative_scores_claim_nothing() -> None:
    groups = [np.array([k]) for k in range(4)]
    s = np.array([0.0, -1.0, -2.0, -3.0, -4.0])
    signed, clamped = np.array([3.0, 1.0, -2.0, -5.0]), np.array([3.0, 1.0, 0.0, 0.0])
    assert deletion_areas(s, signed, groups) == deletion_areas(s, clamped, groups)


@pytest.mark.parametrize(("ids", "asked"), [([5, 6, 7], [5, 6, 7, 1]), ([5, 6, 1], [5, 6, 1])])
def test_the_target_ends_with_one_end_of_sequence(
    ids: list[int], asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[list[int]]] = []

    def log_probs(model: object, rows: np.ndarray, n_prompt: int, batch_size: int) -> np.ndarray:
        seen.append(rows.tolist())
        return np.array([[-1.0, -2.0]] * len(rows))

    monkeypatch.setattr("icml26_plugin_flashtrace.likelihood.log_probs", log_probs)
    monkeypatch.setattr("icml26_plugin_flashtrace.likelihood.eos_id", lambda tokenizer, model: 1)
    likelihood = target_likelihood(None, None, Example("e", ("t",) * 3, None, 2, (0, 0)), 4)
    assert likelihood(np.array([ids, ids])).tolist() == [-3.0, -3.0]
    assert seen == [[asked, asked]]


def test_a_target_that_does_not_depend_on_the_prompt_counts_as_the_ramp() -> None:
    found = deletion_areas(np.full(5, -2.0), np.zeros(4), [np.array([k]) for k in range(4)])
    assert found.flat
    assert (found.rise, found.mas, found.rise_ap) == pytest.approx((0.5, 0.5, 0.5))


def test_leave_one_out_finds_the_copied_tokens() -> None:
    kept = np.ones(P, bool)
    kept[40] = False
    effect = leave_one_out(example(), kept, copy_model, FILLER)
    expected = np.zeros(P)
    expected[IMPORTANT[1:]] = 1.0
    assert np.array_equal(effect, expected)


def test_spearman_knows_ties_and_constants() -> None:
    assert spearman(np.array([1, 2, 3, 4]), np.array([10, 20, 30, 40])) == pytest.approx(1.0)
    assert spearman(np.array([1, 2, 3]), np.array([3, 2, 1])) == pytest.approx(-1.0)
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: the textbook value with average ranks.
    assert spearman(np.array([0, 5, 5, 9]), np.array([0, 1, 2, 3])) == pytest.approx(0.9486833)
    assert spearman(np.array([1, 1, 1]), np.array([1, 2, 3])) == 0.0
