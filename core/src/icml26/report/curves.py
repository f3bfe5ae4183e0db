"""Learning curves as runs left them (``curves.jsonl``), thinned out to what a plot can show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from icml26.keys import from_jsonable
from icml26.smallfiles import open_regular

_MAXIMUM_BYTES = 8_000_000
_MAXIMUM_POINTS = 200
_MAXIMUM_NAMES = 24

Points = list[tuple[float, float]]


def read_curves(folder: Path | None, name: str | None) -> dict[str, Points]:
    """The curves of a run by name, at most 200 points each; without a step the order counts. Broken lines are skipped."""
    if folder is None or name != "curves.jsonl":
        return {}
    try:
        with open_regular(folder / name) as file:
            text = file.read(_MAXIMUM_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return {}
    curves: dict[str, Points] = {}
    for line in text.splitlines():
        try:
            point = json.loads(line)
            label, value, step = str(point["name"]), float(from_jsonable(point["value"])), point.get("step")
        except (ValueError, TypeError, KeyError):
            continue
        if label not in curves and len(curves) >= _MAXIMUM_NAMES:
            continue
        points = curves.setdefault(label, [])
        place = float(step) if isinstance(step, int | float) else float(len(points))
        points.append((place, value))
    return {label: thin(points) for label, points in curves.items()}


def thin(points: Points) -> Points:
    """At most 200 of the points, evenly chosen, the last one always."""
    if len(points) <= _MAXIMUM_POINTS:
        return points
    step = len(points) / (_MAXIMUM_POINTS - 1)
    return [*(points[int(place * step)] for place in range(_MAXIMUM_POINTS - 1)), points[-1]]


def average(curves: Sequence[Points]) -> Points:
    """The mean over seeds where the seeds share steps; of one curve, the curve."""
    if len(curves) == 1:
        return curves[0]
    values: dict[float, list[float]] = {}
    for points in curves:
        for step, value in points:
            values.setdefault(step, []).append(value)
    return [(step, _mean(found)) for step, found in sorted(values.items()) if len(found) == len(curves)]


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
