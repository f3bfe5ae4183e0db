"""What the templates show, as plain values: formatted numbers, table cells, plots. No HTML here but the plots' own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from icml26.digits import MISSING, number, spread
from icml26.leaderboard import MetricFacts, Outcome, Row, comparisons, default_baseline, rows
from icml26.report.collect import Board, Run, TaskBoard
from icml26.report.plots import Mark, mark
from icml26.statistics import Comparison, Estimate


def duration(seconds: float | None) -> str:
    """``0.4 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if seconds is None:
        return MISSING
    if seconds < 0.0001:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 0.1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    if seconds < 6000:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"


def size(count: int | float | None) -> str:
    """Bytes for people, in powers of 1024."""
    if not isinstance(count, int | float) or not math.isfinite(count):
        return MISSING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.3g} {unit}" if unit != "B" else f"{int(count)} B"
        count /= 1024
    return f"{count:.3g} TiB"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a leaderboard: text, sorting key, and where its interval lies within the column (percent)."""

    text: str
    pm: str = ""
    sort: str = ""
    title: str = ""
    best: bool = False
    missing: bool = False
    low: float | None = None
    middle: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a leaderboard."""

    method: str
    role: str
    look: Mark
    cells: list[Cell]
    runs: int
    failed: int
    seconds: Cell


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """The table of one dataset."""

    dataset: str
    anchor: str
    columns: list[MetricFacts]
    lines: list[Line]
    time_note: str | None
    plots: list[Plot] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Legend:
    """An entry of a plot's legend."""

    symbol: str
    color: int
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawn plot. ``svg`` is ours; everything else is escaped by the templates."""

    title: str
    svg: Any
    legend: list[Legend]
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Versus:
    """Paired differences of each method to the baseline."""

    baseline: str
    columns: list[MetricFacts]
    lines: list[tuple[str, list[Cell]]]


def leaderboard(task: TaskBoard, board: Board, anchor: str, plots: list[Plot]) -> Leaderboard:
    """The table of a dataset, best first by the task's first metric."""
    outcomes = board.outcomes
    columns = [facts for key, facts in task.metrics.items() if any(_has(item, key) for item in outcomes)]
    table = rows(outcomes, [facts.key for facts in columns])
    cells = {facts.key: _column(table, facts) for facts in columns}
    times, note = _times(board)
    lines = [
        Line(
            row.method,
            row.role,
            mark(task.place(row.method)),
            [cells[facts.key][row.method] for facts in columns],
            len(row.outcomes),
            row.failed,
            times.get(row.method, Cell(MISSING, missing=True)),
        )
        for row in _ordered(table, columns)
    ]
    return Leaderboard(board.dataset, anchor, columns, lines, note, plots)


def _has(outcome: Outcome, key: str) -> bool:
    return outcome.record is not None and key in outcome.record.metrics


def _ordered(table: Sequence[Row], columns: Sequence[MetricFacts]) -> list[Row]:
    if not columns:
        return list(table)
    facts = columns[0]
    sign = -1 if facts.direction == "higher" else 1

    def order(row: Row) -> tuple[bool, float]:
        cell = row.cells[facts.key]
        if isinstance(cell, str) or math.isnan(cell.value):
            return True, 0.0
        return False, sign * cell.value if facts.direction else 0.0

    return sorted(table, key=order)


def _column(table: Sequence[Row], facts: MetricFacts) -> dict[str, Cell]:
    estimates = {row.method: row.cells[facts.key] for row in table}
    finite = [e for e in estimates.values() if isinstance(e, Estimate) and math.isfinite(e.value)]
    bounds = [b for e in finite for b in (e.low, e.value, e.high) if b is not None and math.isfinite(b)]
    low, high = (min(bounds), max(bounds)) if bounds else (0.0, 0.0)
    honest = [
        row.cells[facts.key]
        for row in table
        if row.role != "oracle" and isinstance(row.cells[facts.key], Estimate) and not row.failed
    ]
    values = [e.value for e in honest if isinstance(e, Estimate) and math.isfinite(e.value)]
    best = None
    if facts.direction and len(set(values)) > 1:
        best = min(values) if facts.direction == "lower" else max(values)
    return {row.method: _cell(row, facts, low, high, best) for row in table}


def _cell(row: Row, facts: MetricFacts, low: float, high: float, best: float | None) -> Cell:
    estimate = row.cells[facts.key]
    if isinstance(estimate, str):
        return Cell(MISSING, title=estimate, missing=True)
    text, pm = spread(estimate)
    parts = [f"mean of {estimate.n} {'seeds' if estimate.n != 1 else 'seed'}"]
    if estimate.low is not None and estimate.high is not None:
        parts.append(f"95 % interval {number(estimate.low)} to {number(estimate.high)}")
    if estimate.note:
        parts.append(estimate.note)
    marked = best is not None and estimate.value == best and row.role != "oracle" and not row.failed
    if not math.isfinite(estimate.value) or high <= low:
        return Cell(text, pm, repr(estimate.value), "; ".join(parts), marked)
    at = [
        None if bound is None else round(100 * (bound - low) / (high - low), 2)
        for bound in (estimate.low, estimate.value, estimate.high)
    ]
    return Cell(text, pm, repr(estimate.value), "; ".join(parts), marked, False, *at)


def _times(board: Board) -> tuple[dict[str, Cell], str | None]:
    """Seconds a run, unless they were measured on different machines or under different loads."""
    by_method: dict[str, list[float]] = {}
    settings = set()
    for run in board.runs:
        if run.record.succeeded and run.seconds is not None:
            by_method.setdefault(run.method, []).append(run.seconds)
            settings.add(run.setting)
    if len(settings) > 1:
        return {}, "times are not compared: they come from different machines, thread counts or numbers of workers"
    cells = {}
    for method, values in by_method.items():
        mean = sum(values) / len(values)
        cells[method] = Cell(
            duration(mean), sort=repr(mean), title=f"mean of {len(values)} runs, the method's part alone"
        )
    return cells, None


def versus(task: TaskBoard) -> Versus | None:
    """Paired differences over all datasets of a task; None without a baseline or anyone to compare."""
    outcomes = task.outcomes
    baseline = default_baseline(outcomes)
    if baseline is None:
        return None
    columns = [facts for facts in task.metrics.values() if facts.direction is not None]
    found = {facts.key: comparisons(outcomes, facts.key, baseline) for facts in columns}
    methods = [method for method in task.methods if any(method in by_method for by_method in found.values())]
    if not methods or not columns:
        return None
    lines = [(method, [_versus_cell(found[facts.key].get(method), facts) for facts in columns]) for method in methods]
    return Versus(baseline, columns, lines)


def _versus_cell(comparison: Comparison | None, facts: MetricFacts) -> Cell:
    if comparison is None:
        return Cell(MISSING, title="no shared (dataset, seed) pair", missing=True)
    difference = comparison.difference
    interval = ""
    if difference.low is not None and difference.high is not None:
        interval = f"[{number(difference.low)}, {number(difference.high)}]"
    parts = [f"{difference.n} pairs"]
    parts.append(f"p = {comparison.p_value:.3g}" if comparison.p_value is not None else f"no p: {comparison.p_note}")
    if difference.note:
        parts.append(difference.note)
    better = difference.value < 0 if facts.direction == "lower" else difference.value > 0
    bounds = (difference.low, difference.high)
    clear = None not in bounds and (bounds[0] > 0) == (bounds[1] > 0)  # type: ignore[operator]
    sign = "+" if difference.value > 0 else ""
    return Cell(sign + number(difference.value), interval, repr(difference.value), "; ".join(parts), better and clear)


def metric_lines(run: Run) -> Iterator[tuple[str, str, str, str, str]]:
    """Name, value, unit, what is better, remark, of each metric of a run."""
    for key, entry in run.record.metrics.items():
        value = run.record.value(key)
        direction = entry.get("direction")
        better = {"lower": "lower is better", "higher": "higher is better"}.get(str(direction), "")
        remarks = [str(entry[name]) for name in ("missing",) if entry.get(name)]
        if entry.get("hidden"):
            remarks.append("serves other metrics")
        if entry.get("error_of"):
            remarks.append(f"standard error of {entry['error_of']}")
        if entry.get("relative_to"):
            remarks.append("relative to the reference's run")
        yield key, number(value), str(entry.get("unit") or ""), better, "; ".join(remarks)


def flat(config: Any, show: Callable[[Any], str] = str) -> list[tuple[str, str]]:
    """A config as (dotted key, text) pairs."""
    from icml26.labels import flatten

    return [(key, show(value)) for key, value in flatten(config).items()] if isinstance(config, Mapping) else []
