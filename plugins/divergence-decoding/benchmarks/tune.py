"""Choose the options of every method alike: ``tuning.toml`` holds a grid of as many points for each, all on the same seeds.

    python benchmarks/tune.py [--jobs 2] [--only uld whp]

What the store has is reused. Writes ``tuning.csv`` beside this file (one run a row; not with ``--only``) and prints the
means over seeds and what the rules choose. ``--read`` only judges that file.

The rules, the same for all methods and fixed before the first run:

- ``keeps``, which the profiles follow: among points whose mean ``keyword-forget`` is at most 0.10 the one of the largest mean
  ``keyword-retain``; when there is none, the one of the lowest ``keyword-forget``.
- ``agg``: the largest mean Agg.

The earlier one of equals. A point that was refused on a seed (its training diverged) is never chosen.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import icml26
from icml26.grid import read_bench

HERE = Path(__file__).parent
GRID, RESULTS = HERE / "tuning.toml", HERE / "tuning.csv"
REFERENCES = ("target", "retrain")
MOST_FORGET = 0.10
SCORES = {
    "agg": "agg",
    "mem": "agg.mem",
    "priv": "agg.priv",
    "utility": "agg.utility",
    "forget": "keyword-forget",
    "retain": "keyword-retain",
    "auc": "mia.loss",
    "gap": "mia-gap",
}


@dataclass(frozen=True)
class Run:
    """One run: ``row`` names the grid (a method or a variant of one), ``options`` are its values as JSON; scores 0 to 1.

    Scores of a run that was refused are NaN.
    """

    row: str
    method: str
    options: str
    seed: int
    agg: float
    mem: float
    priv: float
    utility: float
    forget: float
    retain: float
    auc: float
    gap: float
    seconds: float


@dataclass(frozen=True)
class Point:
    """A point of a grid with its means over seeds."""

    method: str
    options: dict[str, Any]
    seeds: tuple[int, ...]
    means: dict[str, float]


def points(runs: Iterable[Run]) -> dict[str, list[Point]]:
    """The points of each row's grid in the order of its runs, means over seeds."""
    grouped: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        grouped.setdefault(run.row, {}).setdefault(run.options, []).append(run)
    return {
        row: [
            Point(
                same[0].method,
                json.loads(options),
                tuple(sorted(run.seed for run in same)),
                {name: statistics.fmean(getattr(run, name) for run in same) for name in (*SCORES, "seconds")},
            )
            for options, same in grid.items()
        ]
        for row, grid in grouped.items()
    }


def keeps(grid: Iterable[Point]) -> Point:
    """The point that keeps most of those that forget; when none does, the one that forgets most."""
    valid = [point for point in grid if not math.isnan(point.means["agg"])]
    forgetting = [point for point in valid if point.means["forget"] <= MOST_FORGET]
    if forgetting:
        return max(forgetting, key=lambda point: point.means["retain"])
    return min(valid, key=lambda point: point.means["forget"])


def best_agg(grid: Iterable[Point]) -> Point:
    """The point of the largest Agg."""
    return max((p for p in grid if not math.isnan(p.means["agg"])), key=lambda point: point.means["agg"])


def choose(runs: Iterable[Run]) -> dict[str, tuple[Point, Point]]:
    """What the rules ``keeps`` and ``agg`` choose for each row but the reference points."""
    return {row: (keeps(grid), best_agg(grid)) for row, grid in points(runs).items() if row not in REFERENCES}


def _json(options: Mapping[str, Any]) -> str:
    return json.dumps(dict(options), sort_keys=True)


def measure(only: list[str], jobs: int, store: Path | None, output: Path | None) -> list[Run]:
    """Run what the store does not have; raises RuntimeError when a run failed for another reason than its options."""
    grid = read_bench(GRID)
    chosen = {c.label or c.name: c for c in grid.methods}
    if only:
        chosen = {label: c for label, c in chosen.items() if row_of(label) in only}
    done = icml26.bench(
        chosen.values(),
        grid.datasets,
        seeds=grid.seeds,
        metrics=grid.metrics,
        jobs=jobs,
        threads=1,
        figures="none",
        store=store,
        output=output,
    )
    runs = []
    for outcome in done.outcomes:
        record, choice = outcome.record, chosen[outcome.method]
        if record is None or record.status not in ("succeeded", "refused"):
            raise RuntimeError(f"{outcome.method}, seed {outcome.seed}: {record and record.error}")
        values = [outcome.value(key) for key in SCORES.values()]
        scores = [math.nan if value is None else value for value in values]
        if record.status == "succeeded" and any(map(math.isnan, scores)):
            raise RuntimeError(f"{outcome.method}, seed {outcome.seed}: a score is missing")
        seconds = float(record.seconds.get("run", math.nan))
        runs.append(
            Run(row_of(outcome.method), choice.name, _json(choice.config), outcome.seed, *scores, seconds=seconds)
        )
    order = {(row_of(label), _json(c.config)): i for i, (label, c) in enumerate(chosen.items())}
    return sorted(runs, key=lambda run: (order[run.row, run.options], run.seed))


def row_of(label: str) -> str:
    """The name of a grid, from the label of one of its points."""
    return label.partition(" (")[0]


def write(runs: Iterable[Run], path: Path) -> None:
    """One run a row, scores to six digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Run.__dataclass_fields__)
        for run in runs:
            scores = (f"{getattr(run, name):.6g}" for name in SCORES)
            writer.writerow((run.row, run.method, run.options, run.seed, *scores, f"{run.seconds:.1f}"))


def read(path: Path) -> list[Run]:
    """What :func:`write` wrote."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Run(
                line["row"],
                line["method"],
                line["options"],
                int(line["seed"]),
                *(float(line[name]) for name in (*SCORES, "seconds")),
            )
            for line in csv.DictReader(file)
        ]


def show(runs: list[Run]) -> None:
    """A table in Markdown, what the rules choose marked."""
    chosen = choose(runs)
    names = ("forget", "retain", "agg", "mem", "priv", "utility", "auc", "gap", "seconds")
    print(f"| row | point | seeds | {' | '.join(names)} | |\n{'| --- ' * (len(names) + 4)}|")
    for row, grid in points(runs).items():
        swept = {key for point in grid for key, value in point.options.items() if value != grid[0].options.get(key)}
        for point in grid:
            options = ", ".join(f"{key} {value}" for key, value in point.options.items() if key in swept)
            rules = zip(("keeps", "agg"), chosen.get(row, ()), strict=False)
            marks = " ".join(name for name, best in rules if best is point or best == point)
            numbers = " | ".join(f"{point.means[name]:.3f}" for name in names)
            print(f"| {row} | {options} | {len(point.seeds)} | {numbers} | {marks} |")


def main() -> None:
    """Measure (or read) and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--only", nargs="+", default=[], help="rows to run and show; tuning.csv is not written")
    parser.add_argument("--store", type=Path, help="file of records (default: ICML26_HOME's)")
    parser.add_argument("--output", type=Path, help="folder of runs (default: ICML26_HOME's)")
    parser.add_argument("--read", action="store_true", help="judge tuning.csv without running anything")
    options = parser.parse_args()
    if options.read:
        runs = read(RESULTS)
    else:
        runs = measure(options.only, options.jobs, options.store, options.output)
        if not options.only:
            write(runs, RESULTS)
    show(runs)


if __name__ == "__main__":
    main()
