"""Choose the options of every method alike: ``tuning.toml`` holds one grid of eight settings for each, on the same seeds.

Usage: ``python benchmarks/tune.py [--jobs 2]``; 101 runs, and what the store has is reused. Writes ``tuning.csv``
beside this file (one run a row) and prints the means and what the rule chooses. ``--read`` only judges that file.

The rule, for TimeGuard as for the baselines: settings whose mean MAE_C is at most 1.2 x that of plain training come first, the
highest mean FDER ahead; then the others, the lowest MAE_C ahead; the earlier one of equals. All settings run on the first
seed, the best three of each grid on all seeds, and the best of those by the mean over seeds is chosen.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import icml26
from icml26.grid import Grid, read_bench
from icml26.plan import Choice

HERE = Path(__file__).parent
GRID, RESULTS = HERE / "tuning.toml", HERE / "tuning.csv"
REFERENCE = "none"
MOST_CLEAN_ERROR = 1.2
FINALISTS = 3


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
                *(statistics.fmean(getattr(run, name) for run in same) for name in ("mae_c", "mae_p", "fder")),
            )
            for options, same in grid.items()
        ]
        for method, grid in grouped.items()
    }


def ranked(grid: list[Setting], limit: float) -> list[Setting]:
    """A method's settings, best first by the rule above; ``limit`` is the most clean error that is admissible."""
    return sorted(grid, key=lambda s: (s.mae_c > limit, -s.fder if s.mae_c <= limit else s.mae_c))


def limit_of(runs: Iterable[Run], seeds: Iterable[int]) -> float:
    """1.2 x the mean MAE_C of plain training on ``seeds``."""
    wanted = set(seeds)
    return MOST_CLEAN_ERROR * statistics.fmean(
        run.mae_c for run in runs if run.method == REFERENCE and run.seed in wanted
    )


def finalists(runs: list[Run], seed: int) -> dict[str, list[str]]:
    """The options (JSON) of the best settings of each method's grid on one seed; the reference has only one."""
    limit = limit_of(runs, [seed])
    grids = settings(run for run in runs if run.seed == seed)
    return {method: [_json(s.options) for s in ranked(grid, limit)[:FINALISTS]] for method, grid in grids.items()}


def choose(runs: list[Run]) -> dict[str, Setting]:
    """The best setting of every method but the reference, among those that ran on all seeds."""
    seeds = tuple(sorted({run.seed for run in runs}))
    limit = limit_of(runs, seeds)
    return {
        method: ranked([setting for setting in grid if setting.seeds == seeds], limit)[0]
        for method, grid in settings(runs).items()
        if method != REFERENCE
    }


def _json(options: Mapping[str, Any]) -> str:
    return json.dumps(dict(options), sort_keys=True)


def measure(jobs: int, store: Path | None, output: Path | None) -> list[Run]:
    """Both rounds: all settings on the first seed, the finalists on the others."""
    grid = read_bench(GRID)
    first, *others = grid.seeds
    runs = _bench(grid.methods, grid, [first], jobs, store, output)
    keep = finalists(runs, first)
    best = [choice for choice in grid.methods if _json(choice.config) in keep[choice.name]]
    return runs + _bench(best, grid, others, jobs, store, output)


def _bench(
    choices: Iterable[Choice], grid: Grid, seeds: list[int], jobs: int, store: Path | None, output: Path | None
) -> list[Run]:
    """Run what the store does not have; raises RuntimeError when a run failed."""
    by_label = {choice.label or choice.name: choice for choice in choices}
    done = icml26.bench(
        by_label.values(),
        grid.datasets,
        seeds=seeds,
        metrics=grid.metrics,
        jobs=jobs,
        threads=1,
        figures="none",
        store=store,
        output=output,
    )
    if done.failures:
        raise RuntimeError(f"{len(done.failures)} runs failed, the first: {done.failures[0]}")
    runs = []
    for outcome in done.outcomes:
        choice = by_label[outcome.method]
        scores = {key: outcome.value(key) for key in ("mae-c", "mae-p", "fder")}
        # Plain training is what FDER compares with, so by definition it has 0.5.
        scores["fder"] = 0.5 if choice.name == REFERENCE else scores["fder"]
        missing = [key for key, value in scores.items() if value is None]
        if missing:
            raise RuntimeError(f"{outcome.method}, seed {outcome.seed}: no {', '.join(missing)}")
        seconds = float(outcome.record.seconds["run"])  # type: ignore[union-attr]
        runs.append(Run(choice.name, _json(choice.config), outcome.seed, *scores.values(), seconds))  # type: ignore[arg-type]
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


def show(runs: list[Run]) -> None:
    """A table in Markdown, the chosen setting of each method marked."""
    chosen = choose(runs)
    print("| method | setting | seeds | MAE_C | MAE_P | FDER | |\n| --- | --- | --- | --- | --- | --- | --- |")
    for method, grid in settings(runs).items():
        for setting in grid:
            options = ", ".join(f"{key} {value}" for key, value in setting.options.items())
            mark = "chosen" if chosen.get(method) == setting else ""
            numbers = f"{setting.mae_c:.2f} | {setting.mae_p:.2f} | {setting.fder:.3f}"
            print(f"| {method} | {options} | {len(setting.seeds)} | {numbers} | {mark} |")


def main() -> None:
    """Measure (or read) and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--store", type=Path, help="file of records (default: ICML26_HOME's)")
    parser.add_argument("--output", type=Path, help="folder of runs (default: ICML26_HOME's)")
    parser.add_argument("--read", action="store_true", help="judge tuning.csv without running anything")
    options = parser.parse_args()
    if options.read:
        runs = read(RESULTS)
    else:
        runs = measure(options.jobs, options.store, options.output)
        write(runs, RESULTS)
    show(runs)


if __name__ == "__main__":
    main()
