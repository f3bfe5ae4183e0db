"""Metrics have the values that their definitions give by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from icml26 import InputError
from icml26_plugin_flashtrace import metrics
from icml26_plugin_flashtrace.task import Attribution, Example, Output, Truth


def attribution(
    scores: list[float], *, kept: list[bool] | None = None, generated: list[float] | None = None
) -> Attribution:
    values = np.array(scores, dtype=np.float32)
    tail = np.array(generated or [0.0], dtype=np.float32)
    mask = np.array(kept if kept is not None else [True] * len(scores))
    return Attribution(
        values, values[None], tail, np.array([0.5], dtype=np.float32), np.concatenate([mask, np.ones(len(tail), bool)])
    )


def truth(*gold: list[int] | None, n: int = 20) -> Truth:
    marks = []
    for indices in gold:
        mask = np.zeros(n, dtype=bool)
        if indices is not None:
            mask[indices] = True
        marks.append(None if indices is None else mask)
    return Truth(tuple(marks))


def test_gold_as_scores_recovers_all_and_its_negative_nothing() -> None:
    gold = np.zeros(30, dtype=bool)
    gold[[4, 17, 25]] = True
    kept = np.ones(30, dtype=bool)
    assert metrics.recovery_of(gold.astype(float), gold, kept) == 1.0
    assert metrics.recovery_of(-gold.astype(float), gold, kept) == 0.0


def test_the_top_is_the_ceiling_of_a_tenth_of_the_kept_tokens() -> None:
    scores = np.arange(21.0)
    kept = np.ones(21, dtype=bool)
    assert metrics.top_tokens(scores, kept).tolist() == [20, 19, 18]
    kept[20] = False  # 20 are left, of which a tenth is 2
    assert metrics.top_tokens(scores, kept).tolist() == [19, 18]


def test_rounding_adds_no_token_to_the_top() -> None:
    """0.07 × 100 is 7.000000000000001 in floating point."""
    kept, gold = np.ones(100, dtype=bool), np.arange(100) < 10
    assert len(metrics.top_tokens(np.arange(100.0), kept, 0.07)) == 7
    assert metrics.recovery_ceiling(gold, kept, 0.07) == 0.7


def test_the_ceiling_counts_kept_tokens_only() -> None:
    gold, kept = np.arange(40) < 8, np.arange(40) < 30
    assert metrics.recovery_ceiling(gold, kept) == 3 / 8


def test_equal_scores_are_taken_by_index_and_negative_ones_are_equal() -> None:
    kept = np.ones(20, dtype=bool)
    assert metrics.top_tokens(np.zeros(20), kept).tolist() == [0, 1]
    assert metrics.top_tokens(np.linspace(-9, -1, 20), kept).tolist() == [0, 1]


def test_stop_tokens_are_never_among_the_top_but_count_as_gold() -> None:
    gold = np.zeros(20, dtype=bool)
    gold[[0, 1]] = True
    kept = np.ones(20, dtype=bool)
    kept[0] = False
    scores = gold.astype(float)
    assert metrics.recovery_of(scores, gold, kept) == 0.5
    assert metrics.recovery_ceiling(gold, kept) == 0.5


def test_the_ceiling_is_the_top_over_gold_where_gold_is_larger() -> None:
    gold = np.zeros(40, dtype=bool)
    gold[:8] = True
    kept = np.ones(40, dtype=bool)
    assert metrics.recovery_ceiling(gold, kept) == 0.5
    assert metrics.recovery_of(gold.astype(float), gold, kept) == 0.5


def test_examples_without_gold_are_left_out_of_the_mean() -> None:
    output = Output((attribution([1.0, 1.0] + [0.0] * 18), attribution([1.0] * 20)))
    found = metrics.recovery(output, truth([0, 1], None))
    assert found[""] == 1.0
    assert math.isnan(metrics.recovery(Output(output.attributions[1:]), truth(None))[""])
    assert math.isnan(metrics.recovery(Output(output.attributions[1:]), truth([]))[""])


def test_the_first_token_may_be_left_out() -> None:
    scores = [9.0, 0.0, 8.0, 7.0] + [0.0] * 16
    found = metrics.recovery(Output((attribution(scores),)), truth([0, 2]))
    assert found[""] == 1.0
    assert found["without-first"] == 0.5


def test_the_gold_share_is_a_share_of_clamped_mass() -> None:
    gold = np.array([True, False, False, False])
    assert metrics.gold_share_of(np.array([3.0, 1.0, -5.0, 0.0]), gold) == 0.75
    assert metrics.gold_share_of(np.zeros(4), gold) == 0.0
    assert math.isnan(metrics.gold_share_of(np.ones(4), np.zeros(4, dtype=bool)))


@pytest.mark.parametrize("fraction", [0.0, 1.5, -1.0])
def test_a_fraction_outside_0_to_1_is_refused(fraction: float) -> None:
    with pytest.raises(InputError, match="fraction"):
        metrics.recovery(Output((attribution([1.0]),)), truth([0], n=1), fraction=fraction)


def test_masses_are_shares_of_hop_0() -> None:
    hops = np.array([[2.0, 1.0], [1.0, 0.0]], dtype=np.float32)
    one = Attribution(
        hops.sum(0), hops, np.array([3.0, 1.0, 3.0], np.float32), np.array([0.7, 0.2], np.float32), np.ones(5, bool)
    )
    example = Example("e", ("a",) * 5, None, 2, (2, 2), (0, 1))
    found = metrics.mass(Output((one,)), Truth((None,), examples=(example,)))
    assert found == pytest.approx(
        {"prompt": 0.3, "reasoning": 0.4, "output": 0.3, "later-hops": 0.25, "prompt-growth": 4 / 3}
    )
    assert metrics.residual_ratio(Output((one,)), Truth((None,))) == pytest.approx({"hop-0": 0.7, "hop-1": 0.2})


def test_cost_names_only_what_was_measured() -> None:
    seconds = {"forward": 1.0, "attribution": 0.5, "attribution-cpu": 0.4}
    one = np.ones(1)
    timed = Attribution(one, one[None], one, one, np.ones(2, bool), seconds, 77)
    assert metrics.cost(Output((timed,)), Truth((None,))) == {
        "": 1.5, "forward": 1.0, "attribution": 0.5, "attribution-cpu": 0.4, "peak-memory": 77.0,
    }  # fmt: skip
    assert metrics.cost(Output((attribution([1.0]),)), Truth((None,))) == {"peak-memory": 0.0}
