"""Choose the options of every method alike: ``tuning.toml`` holds a grid of as many points for each, all on the same seeds.

    python benchmarks/tune.py [--jobs 2] [--only uld whp]

Writes ``tuning.csv`` beside this file (one run a row) and prints the means over seeds and what the rules choose. Runs that
stand in the file are not run again, so that a search that was stopped goes on; delete it to measure anew. ``--read`` only
judges it. A bench of icml26 starts a process for each run and scores the reference points again in each: here a process
keeps them, at a quarter of the cost.

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
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import icml26
import torch
from icml26 import Problem, RunContext
from icml26.errors import InputError
from icml26.grid import read_bench
from icml26.plan import Choice
from icml26_plugin_divergence_decoding import metrics

HERE = Path(__file__).parent
GRID, RESULTS = HERE / "tuning.toml", HERE / "tuning.csv"
REFERENCES = ("target", "retrain")
MOST_FORGET = 0.10
SCORES = ("agg", "mem", "priv", "utility", "forget", "retain", "auc", "gap")


@dataclass(frozen=True)
class Run:
    """One run: ``row`` names the grid (a method or a variant of one), ``options`` are its values as JSON; scores 0 to 1.

    ``auc`` is the loss attack's, ``gap`` its distance from the retrained model's. Of a refused run all are NaN.
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
                {name: statistics.fmean(getattr(run, name) for run in same) for name in SCORES},
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


def measure(choices: Sequence[Choice], seeds: Sequence[int], done: list[Run], jobs: int) -> Iterator[list[Run]]:
    """The runs that ``done`` lacks, those of one row and seed at a time; ``jobs`` processes."""
    known = {(run.row, run.options, run.seed) for run in done}
    tasks: dict[tuple[int, str], list[Choice]] = {}
    for seed in seeds:
        for choice in choices:
            row = row_of(choice)
            if (row, _json(choice.config), seed) not in known:
                tasks.setdefault((seed, row), []).append(choice)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(run_row, wanted, seed) for (seed, _), wanted in tasks.items()]
        for future in as_completed(waiting):
            yield future.result()


def run_row(choices: Sequence[Choice], seed: int) -> list[Run]:
    """Run points of one row in this process, which keeps the data set and what is known of its reference points."""
    torch.set_num_threads(1)
    return [run_point(choice, seed) for choice in choices]


def run_point(choice: Choice, seed: int) -> Run:
    """One run as the runner does it: the same random stream, the paper's defaults under the point's options."""
    problem = load(seed)
    try:
        output = icml26.get_method(choice.name, choice.config).run(problem.inputs, *context(choice, seed, problem))
    except InputError as error:
        print(f"{choice.label}, seed {seed}: {error}", file=sys.stderr)
        return Run(row_of(choice), choice.name, _json(choice.config), seed, *[math.nan] * len(SCORES))
    parts, attack = metrics.agg(output, problem.truth), metrics.mia(output, problem.truth)
    scores = {
        "agg": parts[""],
        **{name: parts[name] for name in ("mem", "priv", "utility")},
        "forget": metrics.keyword_forget(output, problem.truth),
        "retain": metrics.keyword_retain(output, problem.truth),
        "auc": attack["loss"],
        "gap": metrics.mia_gap(output, problem.truth),
    }
    return Run(row_of(choice), choice.name, _json(choice.config), seed, **scores)


def context(choice: Choice, seed: int, problem: Problem[Any, Any]) -> tuple[Any, ...]:
    """What a method's ``run`` takes beside its inputs; the oracle is told the truth."""
    own = RunContext(seed)
    return (own, problem.truth) if choice.name == "retrain" else (own,)


@lru_cache(1)
def load(seed: int) -> Problem[Any, Any]:
    """The data set of a seed, whose models the first one to ask trains."""
    return icml26.load_dataset("divergence-decoding/mini-tofu", seed=seed)


def row_of(choice: Choice) -> str:
    """The name of the grid that a point belongs to: what its label begins with."""
    return (choice.label or choice.name).partition(" (")[0]


def write(runs: Iterable[Run], path: Path) -> None:
    """One run a row, scores to six digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Run.__dataclass_fields__)
        for run in runs:
            scores = (f"{getattr(run, name):.6g}" for name in SCORES)
            writer.writerow((run.row, run.method, run.options, run.seed, *scores))


def read(path: Path) -> list[Run]:
    """What :func:`write` wrote."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Run(
                line["row"],
                line["method"],
                line["options"],
                int(line["seed"]),
                *(float(line[name]) for name in SCORES),
            )
            for line in csv.DictReader(file)
        ]


def show(runs: list[Run]) -> None:
    """A table in Markdown, what the rules choose marked."""
    chosen = choose(runs)
    names = ("forget", "retain", "agg", "mem", "priv", "utility", "auc", "gap")
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
    parser.add_argument("--only", nargs="+", default=[], help="rows to run")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of runs (default: tuning.csv)")
    parser.add_argument("--read", action="store_true", help="judge tuning.csv without running anything")
    options = parser.parse_args()
    runs = read(options.results) if options.results.exists() else []
    if not options.read:
        grid = read_bench(GRID)
        order = {(row_of(c), _json(c.config)): i for i, c in enumerate(grid.methods)}
        runs = [run for run in runs if (run.row, run.options) in order]
        wanted = [c for c in grid.methods if not options.only or row_of(c) in options.only]
        for found in measure(wanted, grid.seeds, runs, options.jobs):
            runs = sorted([*runs, *found], key=lambda run: (order[run.row, run.options], run.seed))
            write(runs, options.results)
    show(runs)


if __name__ == "__main__":
    main()
