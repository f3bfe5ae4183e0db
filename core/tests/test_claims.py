"""Claims are judged from records: what holds, what fails, what was not measured, what is void."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from icml26.claims import judge, judge_claim, verdict_json
from icml26.leaderboard import Outcome
from icml26.recipes import Claim, Measure, Precondition
from made_up import outcomes

SEEDS = (0, 1, 2)


def claim(kind: str = "value", over: tuple[str, ...] = (), of: str = "ours", **more: Any) -> Claim:
    return Claim(more.pop("id", "c"), "text", Measure("loss", of, "d", kind, over), **more)  # type: ignore[arg-type]


RUNS = outcomes(
    {"ours": [1.0, 2.0, 3.0], "base": [4.0, 6.0, 8.0], "weak": [9.0, 9.0, 9.5], "cheat": [0.1, 0.1, 0.2]},
    roles={"base": "baseline", "weak": "reference", "cheat": "oracle"},
)


def test_a_value_is_the_mean_over_seeds_with_a_t_interval() -> None:
    verdict = judge_claim(claim(at_most=2.0), RUNS, SEEDS)
    assert verdict.holds is True
    assert verdict.measured is not None
    assert (verdict.measured.value, verdict.measured.n) == (2.0, 3)
    assert verdict.measured.low == pytest.approx(2 - 4.302652729911275 / math.sqrt(3))


def test_a_ratio_is_the_ratio_of_means() -> None:
    verdict = judge_claim(claim("ratio", ("base",), at_most=0.34), RUNS, SEEDS)
    assert verdict.measured is not None and verdict.measured.value == pytest.approx(2 / 6)
    assert verdict.state == "holds"
    assert judge_claim(claim("ratio", ("base",), at_most=0.33), RUNS, SEEDS).state == "fails"


def test_a_difference_is_paired() -> None:
    verdict = judge_claim(claim("difference", ("base",), at_most=-3.0), RUNS, SEEDS)
    assert verdict.measured is not None and verdict.measured.value == pytest.approx(-4.0)
    assert verdict.measured.low == pytest.approx(-5.0)


def test_the_best_baseline_is_never_an_oracle_and_respects_direction() -> None:
    lower = judge_claim(claim("ratio", ("best-baseline",), at_most=1), RUNS, SEEDS)
    assert (lower.over, lower.state) == ("base", "holds")
    higher = outcomes(
        {"ours": [1.0, 2.0, 3.0], "base": [4.0, 6.0, 8.0], "weak": [9.0, 9.0, 9.5]},
        roles={"base": "baseline", "weak": "reference"},
        direction="higher",
    )
    assert judge_claim(claim("ratio", ("best-baseline",), at_most=1), higher, SEEDS).over == "weak"


def test_of_a_list_the_better_one_counts() -> None:
    verdict = judge_claim(claim("difference", ("weak", "base"), at_most=0), RUNS, SEEDS)
    assert verdict.over == "base"


def test_without_a_direction_there_is_no_better_one() -> None:
    runs = outcomes({"ours": [1.0], "a": [2.0], "b": [3.0]}, direction=None)
    verdict = judge_claim(claim("ratio", ("a", "b"), at_most=1), runs, (0,))
    assert verdict.state == "not-measured"
    assert "no direction" in (verdict.reason or "")


def test_a_failed_seed_leaves_a_claim_unmeasured_but_shows_the_number() -> None:
    runs = outcomes({"ours": [1.0, None, 3.0]})
    verdict = judge_claim(claim(at_most=10), runs, SEEDS)
    assert verdict.state == "not-measured"
    assert verdict.holds is None
    assert verdict.measured is not None and verdict.measured.n == 2
    assert verdict.reason == "ours: 1 of 3 seeds have no loss (failed: broken)"


def test_a_crashed_baseline_does_not_make_the_rest_the_best() -> None:
    runs = outcomes(
        {"ours": [1.0] * 3, "base": [None] * 3, "weak": [9.0] * 3}, roles={"base": "baseline", "weak": "baseline"}
    )
    assert judge_claim(claim("ratio", ("best-baseline",), at_most=1), runs, SEEDS).state == "not-measured"


def test_a_baseline_that_does_not_apply_is_left_out() -> None:
    runs = [
        *outcomes({"ours": [1.0] * 3, "weak": [9.0] * 3}, roles={"weak": "baseline"}),
        *(Outcome("base", "d", seed, None, "baseline", applicable=False, reason="needs 'x'") for seed in SEEDS),
    ]
    verdict = judge_claim(claim("ratio", ("best-baseline",), at_most=1), runs, SEEDS)
    assert (verdict.over, verdict.state) == ("weak", "holds")


def test_strict_demands_the_whole_interval() -> None:
    assert judge_claim(claim(at_most=2.5), RUNS, SEEDS).state == "holds"
    strict = judge_claim(claim(at_most=2.5, strict=True), RUNS, SEEDS)
    assert (strict.state, strict.reason) == ("fails", "strict: the interval must hold as a whole")
    assert judge_claim(claim(at_most=5, strict=True), RUNS, SEEDS).state == "holds"
    assert judge_claim(claim(at_least=1.0), RUNS, SEEDS).state == "holds"
    assert judge_claim(claim(at_least=1.0, strict=True), RUNS, SEEDS).state == "fails"


def test_strict_needs_an_interval_unless_nothing_varies() -> None:
    one = outcomes({"ours": [1.0]})
    assert judge_claim(claim(at_most=5, strict=True), one, (0,)).state == "fails"
    same = outcomes({"ours": [1.0, 1.0, 1.0]})
    assert judge_claim(claim(at_most=5, strict=True), same, SEEDS).state == "holds"


def test_the_median_ignores_a_wild_seed() -> None:
    runs = outcomes({"ours": [1.0, 1.1, 500.0]})
    assert judge_claim(claim(at_most=2, aggregate="median"), runs, SEEDS).state == "holds"
    assert judge_claim(claim(at_most=2), runs, SEEDS).state == "fails"


def test_a_value_that_is_not_finite_never_holds() -> None:
    runs = outcomes({"ours": [1.0, math.inf, 1.0], "base": [1.0, 1.0, 1.0]})
    assert judge_claim(claim(at_least=0), runs, SEEDS).state == "not-measured"
    zero = outcomes({"ours": [1.0], "base": [0.0]})
    assert judge_claim(claim("ratio", ("base",), at_least=0), zero, (0,)).state == "not-measured"


def test_a_broken_precondition_makes_claims_void() -> None:
    broken = Precondition(claim(id="works", of="base", at_most=1.0))
    holds = claim(id="holds", at_most=5)
    first, verdicts = judge([holds], [broken], RUNS, SEEDS)
    assert first[0].state == "fails"
    assert verdicts[0].state == "void"
    assert verdicts[0].holds is None
    assert verdicts[0].measured is not None
    assert "precondition works does not hold" in (verdicts[0].reason or "")


def test_a_precondition_may_guard_only_some_claims() -> None:
    broken = Precondition(claim(id="works", of="base", at_most=1.0), claims=("guarded",))
    _, verdicts = judge([claim(id="guarded", at_most=5), claim(id="free", at_most=5)], [broken], RUNS, SEEDS)
    assert [verdict.state for verdict in verdicts] == ["void", "holds"]


def test_an_unmeasured_precondition_guards_too() -> None:
    _, verdicts = judge([claim(at_most=5)], [Precondition(claim(id="p", of="nobody", at_most=1))], RUNS, SEEDS)
    assert verdicts[0].state == "void"


def test_a_method_that_does_not_apply_is_not_measured() -> None:
    runs = [Outcome("ours", "d", 0, None, applicable=False, reason="needs 'attack'")]
    verdict = judge_claim(claim(at_most=1), runs, (0,))
    assert verdict.state == "not-measured"
    assert "needs 'attack'" in (verdict.reason or "")


def test_the_json_of_a_verdict_is_strict() -> None:
    runs = outcomes({"ours": [1.0, math.nan, 1.0]})
    for runs_ in (RUNS, runs):
        body = verdict_json(judge_claim(claim(at_most=5, paper="1.9 x"), runs_, SEEDS))
        json.loads(json.dumps(body, allow_nan=False))
    assert verdict_json(judge_claim(claim(at_most=5), RUNS, SEEDS))["holds"] is True


def test_a_baseline_is_not_compared_with_itself() -> None:
    verdict = judge_claim(claim("ratio", ("best-baseline",), of="base", at_most=1), RUNS, SEEDS)
    assert verdict.over == "weak"
