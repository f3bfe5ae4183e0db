"""Choose the options of every method alike: ``tuning.toml`` holds one grid of equal size for each, on the same seeds.

Usage: ``python benchmarks/tune.py [--jobs 2] [--seeds 11]``; about half an hour of CPU, and what the store has is reused. Writes
``tuning.csv`` beside this file (one run a row) and prints the means and what the rule chooses. ``--read`` only judges that file.

The rule, for TimeGuard as for the baselines: the highest mean FDER among the settings whose mean MAE_C is at most
1.2 x that of plain training; the earlier one of equals; when no setting is admissible, the one with the lowest MAE_C.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import icml26
from icml26.grid import parse_seeds, read_bench

HERE = Path(__file__).parent
GRID, RESULTS = HERE / "tuning.toml", HERE / "tuning.csv"
REFERENCE = "none"
MOST_CLEAN_ERROR = 1.2


@dataclass(frozen=True)
class Run:
    """One run: ``options`` are the values of the grid as JSON, so that they can be compared and stored."""

    method: str
    options: str
    seed: int
    mae_c: float
    mae_p: float
    fder: float
    seconds: float


@dataclass(frozen=True)
class Setting:
    """A point of a method's grid with its means over seeds."""

    options: dict[str, Any]
    seeds: tuple[int, ...]
    mae_c: float
    mae_p: float
    fder: float
    seconds: float


def settings(runs: Iterable[Run]) -> dict[str, list[Setting]]:
    """The grid of each method in the order of its runs, means over seeds."""
    grouped: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        grouped.setdefault(run.method, {}).setdefault(run.options, []).append(run)
    return {
        method: [
            Setting(
                json.loads(options),
                tuple(sorted(run.seed for run in same)),
                *(statistics.fmean(getattr(run, name) for run in same) for name in ("mae_c", "mae_p", "fder", "seconds")),
            )
            for options, same in grid.items()
        ]
        for method, grid in grouped.items()
    }


def choose(grids: dict[str, list[Setting]]) -> dict[str, Setting]:
    """The rule above, applied to every method but the reference."""
    (reference,) = grids[REFERENCE]
    limit = MOST_CLEAN_ERROR * reference.mae_c
    chosen = {}
    for method, grid in grids.items():
        if method == REFERENCE:
            continue
        admissible = [setting for setting in grid if setting.mae_c <= limit]
        chosen[method] = (
            max(admissible, key=lambda setting: setting.fder)
            if admissible
            else min(grid, key=lambda setting: setting.mae_c)
        )
    return chosen


def measure(jobs: int, seeds: tuple[int, ...] | None, store: Path | None, output: Path | None) -> list[Run]:
    """Run what the store does not have; raises RuntimeError when a run failed."""
    grid = read_bench(GRID)
    done = icml26.bench(
        grid.methods,
        grid.datasets,
        seeds=seeds or grid.seeds,
        metrics=grid.metrics,
        jobs=jobs,
        threads=1,
        figures="none",
        store=store,
        output=output,
    )
    if done.failures:
        raise RuntimeError(f"{len(done.failures)} runs failed, the first: {done.failures[0]}")
    choices = {choice.label or choice.name: choice for choice in grid.methods}
    runs = []
    for outcome in done.outcomes:
        choice = choices[outcome.method]
        scores = {key: outcome.value(key) for key in ("mae-c", "mae-p", "fder")}
        # Plain training is what FDER compares with, so by definition it has 0.5.
        scores["fder"] = 0.5 if choice.name == REFERENCE else scores["fder"]
        missing = [key for key, value in scores.items() if value is None]
        if missing:
            raise RuntimeError(f"{outcome.method}, seed {outcome.seed}: no {', '.join(missing)}")
        seconds = float(outcome.record.seconds["run"])  # type: ignore[union-attr]
        options = json.dumps(dict(choice.config), sort_keys=True)
        runs.append(Run(choice.name, options, outcome.seed, *scores.values(), seconds))  # type: ignore[arg-type]
    return runs


def write(runs: Iterable[Run], path: Path) -> None:
    """One run a row, numbers to six digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Run.__dataclass_fields__)
        for run in runs:
            numbers = (f"{value:.6g}" for value in (run.mae_c, run.mae_p, run.fder))
            writer.writerow((run.method, run.options, run.seed, *numbers, f"{run.seconds:.1f}"))


def read(path: Path) -> list[Run]:
    """What :func:`write` wrote."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Run(
                row["method"],
                row["options"],
                int(row["seed"]),
                *(float(row[name]) for name in ("mae_c", "mae_p", "fder", "seconds")),
            )
            for row in csv.DictReader(file)
        ]


def show(grids: dict[str, list[Setting]]) -> None:
    """A table in Markdown, the chosen setting of each method marked."""
    chosen = choose(grids)
    print("| method | setting | MAE_C | MAE_P | FDER | seconds | |\n| --- | --- | --- | --- | --- | --- | --- |")
    for method, grid in grids.items():
        for setting in grid:
            options = ", ".join(f"{key} {value}" for key, value in setting.options.items())
            mark = "chosen" if chosen.get(method) is setting else ""
            numbers = f"{setting.mae_c:.2f} | {setting.mae_p:.2f} | {setting.fder:.3f} | {setting.seconds:.0f}"
            print(f"| {method} | {options} | {numbers} | {mark} |")


def main() -> None:
    """Measure (or read) and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--seeds", help="some of the seeds only; then nothing is written")
    parser.add_argument("--store", type=Path, help="file of records (default: ICML26_HOME's)")
    parser.add_argument("--output", type=Path, help="folder of runs (default: ICML26_HOME's)")
    parser.add_argument("--read", action="store_true", help="judge tuning.csv without running anything")
    options = parser.parse_args()
    if options.read:
        runs = read(RESULTS)
    else:
        seeds = None if options.seeds is None else parse_seeds(options.seeds)
        runs = measure(options.jobs, seeds, options.store, options.output)
        if seeds is None:
            write(runs, RESULTS)
    show(settings(runs))


if __name__ == "__main__":
    main()
