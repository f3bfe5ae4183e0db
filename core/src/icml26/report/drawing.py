"""Which plots a site has, and drawing them: at most a hundred, the most telling ones of every task first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from icml26.figures import FigureData
from icml26.leaderboard import MetricFacts
from icml26.report import plots
from icml26.report.collect import Board, Run, TaskBoard, same_setting
from icml26.report.curves import Points, average, read_curves
from icml26.report.views import Legend, Plot
from icml26.statistics import Estimate, summarize

MAXIMUM_PLOTS = 100
_CURVES_A_BOARD = 4
_METHODS_A_PLOT = 12
_SEEDS_A_LINE = 5

Draw = Callable[[], "Plot | None"]


@dataclass(frozen=True, slots=True)
class Sketch:
    """A plot that may be drawn, for a board of a task."""

    task: str
    dataset: str
    draw: Draw


def sketches(task: TaskBoard) -> list[Sketch]:
    """The plots of a task, the most telling first: trade-offs of each dataset, then learning curves."""
    first: list[Sketch] = []
    later: list[Sketch] = []
    for number, board in enumerate(task.boards):
        salt = f"{task.page}-{number}"
        for place, draw in enumerate(_trade_offs(task, board, salt)):
            (later if place else first).append(Sketch(task.name, board.dataset, draw))
        later += [Sketch(task.name, board.dataset, draw) for draw in _curves(task, board, salt)]
    return first + later


def draw_all(planned: Iterable[Sequence[Sketch]], budget: int) -> tuple[dict[tuple[str, str], list[Plot]], int, int]:
    """Draw up to ``budget`` sketches, each task in turn: plots by (task, dataset), how many, how many are left out."""
    queues = [list(queue) for queue in planned]
    drawn: dict[tuple[str, str], list[Plot]] = {}
    count = left = 0
    while any(queues):
        for queue in queues:
            if not queue:
                continue
            sketch = queue.pop(0)
            if count >= budget:
                left += 1
                continue
            plot = sketch.draw()
            if plot is not None:
                drawn.setdefault((sketch.task, sketch.dataset), []).append(plot)
                count += 1
    return drawn, count, left


def recipe_plot(data: FigureData, salt: str) -> Plot | None:
    """A recipe's figure."""
    series = data.series[:_METHODS_A_PLOT]
    if not series:
        return None
    categories: list[str] = []
    if not data.x_is_metric:
        places = [point.x for line in series for point in line.points]
        if not all(isinstance(x, float) and math.isfinite(x) for x in places):
            categories = list(dict.fromkeys(_tick(x) for x in places))
    lines = []
    for line in series:
        dots = []
        for point in line.points:
            x = point.x
            if isinstance(x, Estimate):
                dots.append(_dot(x, point.y))
            else:
                at = float(categories.index(_tick(x))) if categories else float(x)
                dots.append(plots.Dot(at, point.y.value, None, None, point.y.low, point.y.high))
        lines.append(plots.Line(line.name, dots))
    look = list(range(len(lines)))
    options = {"x_label": data.x_label, "y_label": data.y_label, "log": data.figure.log, "salt": salt}
    if data.x_is_metric:
        svg = plots.scatter(lines, look, **options)  # type: ignore[arg-type]
    else:
        svg = plots.lines(lines, look, x_ticks=categories or None, **options)  # type: ignore[arg-type]
    title = data.figure.title or f"{data.figure.y} against {data.figure.x}"
    return Plot(title, Markup(svg), _legend([(line.name, place) for place, line in enumerate(lines)]))


def _tick(x: float | str | Estimate) -> str:
    return f"{x:g}" if isinstance(x, float) else str(x)


def _trade_offs(task: TaskBoard, board: Board, salt: str) -> list[Draw]:
    primary = task.primary
    methods = {run.method for run in board.runs if run.record.succeeded}
    if primary is None or len(methods) < 2:
        return []
    scored = list(task.metrics.values())[1:]
    partner = next((facts for facts in scored if any(facts.key in run.record.metrics for run in board.runs)), None)
    draws: list[Draw] = [lambda: _time_plot(task, board, primary, f"{salt}-time")]
    if partner is not None:
        draws.insert(0, lambda: _metric_plot(task, board, primary, partner, f"{salt}-metric"))
    return draws


def _metric_plot(task: TaskBoard, board: Board, primary: MetricFacts, partner: MetricFacts, salt: str) -> Plot | None:
    runs = [run for run in board.runs if run.record.succeeded]
    x = {method: [run.record.value(partner.key) for run in group] for method, group in _by_method(runs).items()}
    y = {method: [run.record.value(primary.key) for run in group] for method, group in _by_method(runs).items()}
    title = f"{primary.key} against {partner.key}"
    return _scatter(task, title, x, y, partner, primary, None, salt)


def _time_plot(task: TaskBoard, board: Board, primary: MetricFacts, salt: str) -> Plot | None:
    runs, left = same_setting([run for run in board.runs if run.record.succeeded and run.seconds is not None])
    x = {method: [run.seconds for run in group] for method, group in _by_method(runs).items()}
    y = {method: [run.record.value(primary.key) for run in group] for method, group in _by_method(runs).items()}
    note = f"{left} runs on other machines or under other loads are left out" if left else None
    facts = MetricFacts("time of a run", "s", "lower")
    return _scatter(task, f"{primary.key} against time", x, y, facts, primary, note, salt)


def _by_method(runs: Iterable[Run]) -> dict[str, list[Run]]:
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(run.method, []).append(run)
    return grouped


def _scatter(
    task: TaskBoard,
    title: str,
    x: Mapping[str, Sequence[float | None]],
    y: Mapping[str, Sequence[float | None]],
    x_facts: MetricFacts,
    y_facts: MetricFacts,
    note: str | None,
    salt: str,
) -> Plot | None:
    lines, places = [], []
    for method in sorted(x, key=task.place):
        both = [_finite(x[method]), _finite(y[method])]
        if all(both):
            lines.append(plots.Line(method, [_dot(summarize(both[0]), summarize(both[1]))]))
            places.append(task.place(method))
    if len(lines) < 2:
        return None
    lines, places, note = _limited(lines, places, note, y_facts.direction)
    dots = [line.dots[0] for line in lines]
    log = "".join(axis for axis in "xy" if _wide([getattr(dot, axis) for dot in dots]))
    front = _front(dots, x_facts.direction, y_facts.direction)
    svg = plots.scatter(lines, places, x_label=_axis(x_facts), y_label=_axis(y_facts), log=log, front=front, salt=salt)
    if front:
        note = "; ".join(filter(None, ["dashed: nobody is better in both", note]))
    return Plot(
        title, Markup(svg), _legend([(line.name, place) for line, place in zip(lines, places, strict=True)]), note
    )


def _limited(
    lines: list[plots.Line], places: list[int], note: str | None, direction: str | None = None
) -> tuple[list[plots.Line], list[int], str | None]:
    """At most a dozen methods: those with the best y where a direction says what is best, else the first."""
    if len(lines) <= _METHODS_A_PLOT:
        return lines, places, note
    order = list(range(len(lines)))
    if direction is not None:
        sign = 1 if direction == "lower" else -1
        order.sort(key=lambda i: sign * lines[i].dots[0].y)
    kept = sorted(order[:_METHODS_A_PLOT])
    more = f"the {'best' if direction else 'first'} {_METHODS_A_PLOT} of {len(lines)} methods"
    return [lines[i] for i in kept], [places[i] for i in kept], "; ".join(filter(None, [more, note]))


def _finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _dot(x: Estimate, y: Estimate) -> plots.Dot:
    return plots.Dot(x.value, y.value, x.low, x.high, y.low, y.high)


def _wide(values: Sequence[float]) -> bool:
    """Whether a logarithmic axis serves: all positive, more than a factor of 50 apart."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > 50


def _axis(facts: MetricFacts) -> str:
    arrow = {"lower": " ↓", "higher": " ↑"}.get(facts.direction or "", "")
    return f"{facts.key}{f' [{facts.unit}]' if facts.unit else ''}{arrow}"


def _front(dots: Sequence[plots.Dot], x_direction: str | None, y_direction: str | None) -> list[tuple[float, float]]:
    """The points that no other point beats in both, along x; empty unless both directions are known and two remain."""
    if x_direction is None or y_direction is None:
        return []
    sx, sy = (1 if direction == "lower" else -1 for direction in (x_direction, y_direction))
    front = [
        (dot.x, dot.y)
        for dot in dots
        if not any(
            sx * other.x <= sx * dot.x and sy * other.y <= sy * dot.y and (other.x, other.y) != (dot.x, dot.y)
            for other in dots
        )
    ]
    return sorted(set(front)) if len(set(front)) > 1 else []


def _curves(task: TaskBoard, board: Board, salt: str) -> list[Draw]:
    """One plot a curve name that runs of this dataset logged; files are read when the plot is drawn."""
    runs = [run for run in board.runs if run.record.curves and run.folder is not None]
    if not runs:
        return []
    cache: dict[str, dict[str, list[Points]]] = {}

    def load() -> dict[str, dict[str, list[Points]]]:
        if not cache:
            counted: dict[str, int] = {}
            for run in runs:
                counted[run.method] = counted.get(run.method, 0) + 1
                if counted[run.method] > _SEEDS_A_LINE:
                    continue
                for name, points in read_curves(run.folder, run.record.curves).items():
                    cache.setdefault(name, {}).setdefault(run.method, []).append(points)
        return cache

    def nth(place: int) -> Plot | None:
        names = list(load())
        return _curve_plot(task, names[place], load()[names[place]], f"{salt}-c{place}") if place < len(names) else None

    return [lambda place=place: nth(place) for place in range(_CURVES_A_BOARD)]  # type: ignore[misc]


def _curve_plot(task: TaskBoard, name: str, by_method: Mapping[str, list[Points]], salt: str) -> Plot | None:
    lines, places = [], []
    for method in sorted(by_method, key=task.place):
        finite = [[p for p in points if all(map(math.isfinite, p))] for points in by_method[method]]
        finite = [points for points in finite if points]
        mean = average(finite) if finite else []
        if mean:
            faint = finite if len(finite) > 1 else []
            lines.append(plots.Line(method, [plots.Dot(step, value) for step, value in mean], faint))
            places.append(task.place(method))
    if not lines:
        return None
    lines, places, note = _limited(lines, places, None)
    values = [dot.y for line in lines for dot in line.dots]
    svg = plots.lines(
        lines, places, x_label="step", y_label=name, log="y" if _wide(values) else "", markers=False, salt=salt
    )
    if any(line.faint for line in lines):
        note = "; ".join(filter(None, ["bold: mean over seeds; faint: single seeds", note]))
    legend = _legend([(line.name, place) for line, place in zip(lines, places, strict=True)], symbol="━")
    return Plot(name, Markup(svg), legend, note)


def _legend(entries: Iterable[tuple[str, int]], symbol: str | None = None) -> list[Legend]:
    return [Legend(symbol or plots.mark(place).symbol, plots.mark(place).color, name) for name, place in entries]
