"""Do the claims of a recipe hold? Judged on outcomes alone, so that it can be tested with made-up records."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from icml26.leaderboard import BASELINE_ROLES, Outcome, best, json_number, metric_facts
from icml26.recipes import BEST_BASELINE, Claim, Precondition
from icml26.statistics import Aggregate, Estimate, paired_difference, ratio, summarize, summarize_median

State: TypeAlias = Literal["holds", "fails", "void", "not-measured"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a claim. ``over`` is the label that counted; ``reason`` explains what is not plain from the numbers."""

    claim: Claim
    state: State
    measured: Estimate | None = None
    over: str | None = None
    unit: str | None = None
    reason: str | None = None

    @property
    def holds(self) -> bool | None:
        """True, False, or None when it was not measured or is void."""
        return {"holds": True, "fails": False}.get(self.state)


def judge(
    claims: Sequence[Claim], preconditions: Sequence[Precondition], outcomes: Sequence[Outcome], seeds: Sequence[int]
) -> tuple[list[Verdict], list[Verdict]]:
    """The verdicts of the preconditions and of the claims.

    A claim is measured when every run that it speaks of succeeded for every seed; where a precondition does not hold, the
    claims that it guards are void.
    """
    first = [judge_claim(item.claim, outcomes, seeds) for item in preconditions]
    broken = [(item, verdict) for item, verdict in zip(preconditions, first, strict=True) if verdict.state != "holds"]
    verdicts = []
    for claim in claims:
        verdict = judge_claim(claim, outcomes, seeds)
        guards = [item.claim for item, _ in broken if not item.claims or claim.id in item.claims]
        if guards:
            reason = "; ".join(f"precondition {guard.id} does not hold" for guard in guards)
            verdict = Verdict(claim, "void", verdict.measured, verdict.over, verdict.unit, reason)
        verdicts.append(verdict)
    return first, verdicts


def judge_claim(claim: Claim, outcomes: Sequence[Outcome], seeds: Sequence[int]) -> Verdict:
    """The verdict of one claim, preconditions aside."""
    measure = claim.measure
    here = [outcome for outcome in outcomes if outcome.dataset == measure.on]
    facts = metric_facts(here, hidden=True).get(measure.metric)
    unit = facts.unit if facts is not None and measure.kind != "ratio" else None
    of, gap = _values(here, measure.of, measure.metric, seeds)
    over: str | None = None
    other: Mapping[int, float] = {}
    if measure.over and gap is None:
        direction = facts.direction if facts is not None else None
        over, other, gap = _counterpart(claim, here, seeds, direction)
    if not of or (measure.over and not other):
        return Verdict(claim, "not-measured", None, over, unit, gap or "no run has this metric")
    measured = _measured(claim, of, other)
    if measured is None:
        return Verdict(claim, "not-measured", None, over, unit, "no seed is shared")
    if gap is not None:
        return Verdict(claim, "not-measured", measured, over, unit, gap)
    if not math.isfinite(measured.value):
        return Verdict(claim, "not-measured", measured, over, unit, measured.note or "the value is not finite")
    holds, reason = _decide(claim, measured)
    return Verdict(claim, "holds" if holds else "fails", measured, over, unit, reason)


def _decide(claim: Claim, measured: Estimate) -> tuple[bool, str | None]:
    low = high = measured.value
    reason = None
    if claim.strict:
        if measured.low is not None and measured.high is not None:
            low, high = measured.low, measured.high
        elif measured.note != "zero variance":
            return False, f"strict, but there is no interval ({measured.note})"
    holds = (claim.at_least is None or low >= claim.at_least) and (claim.at_most is None or high <= claim.at_most)
    if claim.strict and not holds:
        reason = "strict: the interval must hold as a whole"
    return holds, reason


def _measured(claim: Claim, of: Mapping[int, float], other: Mapping[int, float]) -> Estimate | None:
    if claim.measure.kind == "ratio":
        return ratio(of, other, aggregate=claim.aggregate)
    if claim.measure.kind == "difference":
        comparison = paired_difference(of, other, aggregate=claim.aggregate)
        return None if comparison is None else comparison.difference
    values = list(of.values())
    return summarize(values) if claim.aggregate == "mean" else summarize_median(values)


def _values(
    outcomes: Iterable[Outcome], label: str, metric: str, seeds: Sequence[int]
) -> tuple[dict[int, float], str | None]:
    """The values by seed, and why some are missing (None when none is)."""
    runs = {outcome.seed: outcome for outcome in outcomes if outcome.method == label}
    values: dict[int, float] = {}
    gaps: list[str] = []
    for seed in seeds:
        outcome = runs.get(seed)
        value = None if outcome is None else outcome.value(metric)
        if value is None:
            gaps.append(_why(outcome, metric))
        else:
            values[seed] = value
    if not gaps:
        return values, None
    return values, f"{label}: {len(gaps)} of {len(seeds)} seeds have no {metric} ({gaps[0]})"


def _why(outcome: Outcome | None, metric: str) -> str:
    if outcome is None:
        return "not run"
    if not outcome.applicable:
        return f"not applicable: {outcome.reason}"
    if outcome.record is None:
        return outcome.reason or "not run"
    if not outcome.succeeded:
        return outcome.reason or outcome.record.status
    return str(outcome.record.metrics.get(metric, {}).get("missing", "not scored"))


def _counterpart(
    claim: Claim, outcomes: Sequence[Outcome], seeds: Sequence[int], direction: str | None
) -> tuple[str | None, dict[int, float], str | None]:
    """With whom the method is compared: label, values by seed, and what is missing."""
    measure = claim.measure
    candidates = list(measure.over)
    if candidates == [BEST_BASELINE]:
        candidates = _baselines(outcomes, measure.of)
        if not candidates:
            return None, {}, "no baseline is applicable here"
    values, gaps = {}, []
    for label in candidates:
        values[label], gap = _values(outcomes, label, measure.metric, seeds)
        if gap is not None:
            gaps.append(gap)
    gap = "; ".join(gaps) or None
    if len(candidates) == 1:
        return candidates[0], values[candidates[0]], gap
    if direction is None:
        return (
            None,
            {},
            gap or f"{measure.metric} has no direction, so none of {', '.join(candidates)} is the better one",
        )
    centers = {label: _center(found.values(), claim.aggregate) for label, found in values.items() if found}
    strange = [label for label, center in centers.items() if not math.isfinite(center)]
    if strange:
        gap = gap or f"{', '.join(strange)}: {measure.metric} is not finite"
        centers = {label: center for label, center in centers.items() if label not in strange}
    if not centers:
        return None, {}, gap
    chosen = best(centers, direction)
    return chosen, values[chosen], gap


def _baselines(outcomes: Sequence[Outcome], of: str) -> list[str]:
    """The applicable baselines and references, never an oracle, a variant of a paper's method or the method itself."""
    labels = [
        outcome.method
        for outcome in outcomes
        if outcome.role in BASELINE_ROLES and outcome.applicable and outcome.method != of
    ]
    return list(dict.fromkeys(labels))


def _center(values: Iterable[float], aggregate: Aggregate) -> float:
    numbers = list(values)
    return statistics.median(numbers) if aggregate == "median" else sum(numbers) / len(numbers)


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as ``reproduce --json`` prints it."""
    claim, measured = verdict.claim, verdict.measured
    body: dict[str, Any] = {
        "id": claim.id,
        "text": claim.text,
        "paper": claim.paper,
        **({"measured": None} if measured is None else json_number("measured", measured.value)),
        "interval": None if measured is None or measured.low is None else [measured.low, measured.high],
        "n": 0 if measured is None else measured.n,
        "must": claim.must,
        "holds": verdict.holds,
        "state": verdict.state,
        "as": claim.measure.kind,
        "metric": claim.measure.metric,
        "of": claim.measure.of,
        "over": verdict.over,
        "on": claim.measure.on,
        "unit": verdict.unit,
        "at_least": claim.at_least,
        "at_most": claim.at_most,
    }
    notes = dict.fromkeys(note for note in (verdict.reason, measured.note if measured else None) if note)
    return body | ({"note": "; ".join(notes)} if notes else {})
