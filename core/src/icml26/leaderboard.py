"""Tables of repeated runs: one row a method and dataset, every metric with its interval over seeds, paired comparisons.

Works on outcomes, which are records under the labels of a bench, so that it knows neither stores nor plugins.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from icml26.records import number_of
from icml26.statistics import Comparison, Estimate, paired_difference, summarize

BASELINE_ROLES = ("reference", "baseline")


class Scored(Protocol):
    """What a table needs of a record."""

    @property
    def status(self) -> str:
        """How the run ended."""

    @property
    def metrics(self) -> Mapping[str, Mapping[str, Any]]:
        """The record's metrics."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One cell of a bench: labels, seed, and the record; without one ``reason`` says why.

    ``applicable`` is False for pairs that do not fit, which never counts as a failure.
    """

    method: str
    dataset: str
    seed: int
    record: Scored | None
    role: str = "paper"
    applicable: bool = True
    reason: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether there are scores."""
        return self.record is not None and self.record.status == "succeeded"

    def value(self, metric: str) -> float | None:
        """The number of a metric's key, None when there is none; NaN and inf come back."""
        if self.record is None or not self.succeeded:
            return None
        return number_of(self.record.metrics.get(metric))


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """What a metric's key means: unit, and which way is better (None: neither)."""

    key: str
    unit: str | None = None
    direction: str | None = None
    error_of: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A method on a dataset over its seeds. ``cells`` maps metric keys to estimates, or to the reason why there is none."""

    method: str
    dataset: str
    role: str
    cells: dict[str, Estimate | str]
    statuses: dict[str, int]
    not_applicable: str | None = None
    outcomes: tuple[Outcome, ...] = field(default=(), repr=False)

    @property
    def failed(self) -> int:
        """How many runs ended otherwise than with scores."""
        return sum(count for status, count in self.statuses.items() if status != "succeeded")


def metric_facts(outcomes: Iterable[Outcome], *, hidden: bool = False) -> dict[str, MetricFacts]:
    """The metrics that the outcomes carry, in order of appearance; those that only serve others on request."""
    facts: dict[str, MetricFacts] = {}
    for outcome in outcomes:
        if outcome.record is None:
            continue
        for key, entry in outcome.record.metrics.items():
            if entry.get("hidden") and not hidden:
                continue
            known = facts.get(key)
            if known is None or (known.unit is None and known.direction is None):
                facts[key] = MetricFacts(key, entry.get("unit"), entry.get("direction"), entry.get("error_of"))
    return facts


def rows(outcomes: Sequence[Outcome], metrics: Iterable[str]) -> list[Row]:
    """One row for each (dataset, method), datasets first, both in order of appearance."""
    keys = list(metrics)
    datasets = list(dict.fromkeys(outcome.dataset for outcome in outcomes))
    grouped: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        grouped.setdefault((outcome.dataset, outcome.method), []).append(outcome)
    order = sorted(grouped, key=lambda pair: datasets.index(pair[0]))
    return [_row(dataset, method, grouped[dataset, method], keys) for dataset, method in order]


def _row(dataset: str, method: str, group: list[Outcome], keys: list[str]) -> Row:
    unfit = [outcome for outcome in group if not outcome.applicable]
    if len(unfit) == len(group):
        reason = unfit[0].reason or "not applicable"
        return Row(method, dataset, group[0].role, dict.fromkeys(keys, reason), {}, reason, tuple(group))
    fit = [outcome for outcome in group if outcome.applicable]
    statuses = Counter("missing" if outcome.record is None else outcome.record.status for outcome in fit)
    return Row(method, dataset, fit[0].role, {key: _cell(fit, key) for key in keys}, dict(statuses), None, tuple(fit))


def _cell(group: list[Outcome], key: str) -> Estimate | str:
    values = [value for outcome in group if (value := outcome.value(key)) is not None]
    if values:
        return summarize(values)
    for outcome in group:
        if outcome.succeeded and outcome.record is not None:
            return str(outcome.record.metrics.get(key, {}).get("missing", "not scored"))
    return group[0].reason or (group[0].record.status if group[0].record is not None else "no run")


def paired_values(outcomes: Iterable[Outcome], metric: str) -> dict[str, dict[tuple[str, int], float]]:
    """The values of each method by (dataset, seed)."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    for outcome in outcomes:
        value = outcome.value(metric)
        if value is not None:
            found.setdefault(outcome.method, {})[outcome.dataset, outcome.seed] = value
    return found


def default_baseline(outcomes: Sequence[Outcome]) -> str | None:
    """Whom the others are compared with: the first reference, else the first baseline; None when there is neither."""
    for role in BASELINE_ROLES:
        for outcome in outcomes:
            if outcome.role == role and outcome.applicable:
                return outcome.method
    return None


def comparisons(outcomes: Sequence[Outcome], metric: str, baseline: str) -> dict[str, Comparison]:
    """The paired difference of each other method to the baseline, over shared (dataset, seed) pairs of all datasets."""
    values = paired_values(outcomes, metric)
    base = values.get(baseline, {})
    found = {
        method: paired_difference(values.get(method, {}), base)
        for method in dict.fromkeys(outcome.method for outcome in outcomes)
        if method != baseline
    }
    return {method: comparison for method, comparison in found.items() if comparison is not None}


def best(candidates: Mapping[str, float], direction: str) -> str:
    """The candidate with the better number; the first of equals."""
    choose: Callable[..., str] = min if direction == "lower" else max
    return choose(candidates, key=lambda name: candidates[name])


def json_number(key: str, value: float) -> dict[str, Any]:
    """A number under ``key`` in strict JSON: null with ``nonfinite`` beside it when it is not finite."""
    return {key: value} if math.isfinite(value) else {key: None, "nonfinite": repr(value)}


def estimate_json(cell: Estimate | str, facts: MetricFacts | None = None) -> dict[str, Any]:
    """A table cell as JSON."""
    if isinstance(cell, str):
        return {"mean": None, "missing": cell}
    body = {**json_number("mean", cell.value), "low": cell.low, "high": cell.high, "n": cell.n}
    if cell.note is not None:
        body["note"] = cell.note
    if facts is not None:
        body |= {"unit": facts.unit, "direction": facts.direction}
    return body


def comparison_json(comparison: Comparison, baseline: str) -> dict[str, Any]:
    """A paired comparison as JSON."""
    difference = comparison.difference
    body = {"to": baseline, **json_number("difference", difference.value)}
    body |= {"low": difference.low, "high": difference.high, "n": difference.n, "p": comparison.p_value}
    notes = dict.fromkeys(note for note in (difference.note, comparison.p_note) if note)
    return body | ({"note": "; ".join(notes)} if notes else {})
