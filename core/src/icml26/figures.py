"""The numbers behind a recipe's figures: lines of an outcome's metric against a config key or another metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from icml26.keys import from_jsonable
from icml26.leaderboard import Outcome, metric_facts
from icml26.recipes import Figure
from icml26.statistics import Estimate, summarize


@dataclass(frozen=True, slots=True)
class Point:
    """One point: ``x`` as an estimate too when it is a metric."""

    x: float | str | Estimate
    y: Estimate


@dataclass(frozen=True, slots=True)
class Series:
    """A named line (or cloud, when x is a metric)."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class FigureData:
    """What to draw; without series ``note`` says why there is nothing."""

    figure: Figure
    series: tuple[Series, ...]
    x_label: str
    y_label: str
    x_is_metric: bool = False
    note: str | None = None


def figure_data(figure: Figure, outcomes: Sequence[Outcome]) -> FigureData:
    """Average over the seeds of each (line, x); several datasets become several lines."""
    here = [item for item in outcomes if item.succeeded and figure.on in (None, item.dataset)]
    facts = metric_facts(here, hidden=True)
    y_label = _label(figure.y, facts[figure.y].unit if figure.y in facts else None)
    if figure.y not in facts:
        return FigureData(figure, (), figure.x, y_label, note=f"no run has {figure.y}")
    as_metric = not any(config_value(item, figure.x) is not None for item in here)
    if as_metric and figure.x not in facts:
        return FigureData(figure, (), figure.x, y_label, note=f"{figure.x} is neither a config key nor a metric here")
    # along an option of the dataset several datasets are one line
    from_dataset = not as_metric and all(_option(item, "method", figure.x) is None for item in here)
    several = figure.by != "dataset" and not from_dataset and len({item.dataset for item in here}) > 1
    grouped: dict[str, dict[Any, list[Outcome]]] = {}
    for item in here:
        line = str(_line(item, figure.by))
        line = f"{line} · {item.dataset}" if several else line
        place = item.method if as_metric else config_value(item, figure.x)
        if place is not None and item.value(figure.y) is not None:
            grouped.setdefault(line, {}).setdefault(place, []).append(item)
    series = tuple(
        Series(line, tuple(_points(places, figure, as_metric))) for line, places in grouped.items() if places
    )
    x_label = _label(figure.x, facts[figure.x].unit) if as_metric else figure.x
    return FigureData(figure, series, x_label, y_label, as_metric)


def _points(places: Mapping[Any, list[Outcome]], figure: Figure, as_metric: bool) -> list[Point]:
    points = []
    for place, group in places.items():
        y = summarize([value for item in group if (value := item.value(figure.y)) is not None])
        if as_metric:
            values = [value for item in group if (value := item.value(figure.x)) is not None]
            if values:
                points.append(Point(summarize(values), y))
        else:
            points.append(Point(place, y))
    if not as_metric and all(isinstance(point.x, float) for point in points):
        order: Callable[[Point], Any] = lambda point: point.x  # noqa: E731
        points.sort(key=order)
    return points


def config_value(outcome: Outcome, key: str) -> float | str | None:
    """A config value by ``key``, ``method.key`` or ``dataset.key`` (dots go into tables); numbers as floats."""
    value = _option(outcome, "method", key)
    return _option(outcome, "dataset", key) if value is None else value


def _option(outcome: Outcome, part: str, key: str) -> float | str | None:
    description = getattr(outcome.record, part, None)
    value: Any = description.get("config") if isinstance(description, Mapping) else None
    for name in key.removeprefix(f"{part}.").split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    value = from_jsonable(value)
    if isinstance(value, bool | str):
        return str(value)
    return float(value) if isinstance(value, int | float) else None


def _line(outcome: Outcome, by: str) -> Any:
    if by == "label":
        return outcome.method
    if by == "dataset":
        return outcome.dataset
    if by == "method":
        method = getattr(outcome.record, "method", None)
        return method["name"].rpartition("/")[2] if isinstance(method, Mapping) else outcome.method
    value = config_value(outcome, by)
    return f"{by} = {value:g}" if isinstance(value, float) else f"{by} = {value}"


def _label(name: str, unit: str | None) -> str:
    return f"{name} [{unit}]" if unit else name
