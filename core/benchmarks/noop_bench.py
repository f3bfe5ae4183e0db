"""A grid of runs that do nothing: what recording, processes and scheduling cost, beside benchopt on the same grid.

    python core/benchmarks/noop_bench.py [--runs 1000] [--jobs 2] [--max-seconds 10] [--benchopt PATH]

Ours is ``icml26 bench`` as a whole process, from its start to its end, with every record on disk and in the store.
``--benchopt`` names the program of an environment that has it (two solvers, half as many datasets, one run each, no plots,
its own loky workers).
Exit code 1 when ours takes longer than ``--max-seconds``, longer than half of benchopt's time, or when a record is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from icml26.store import Store  # noqa: E402
from lab_environment import make_environment  # noqa: E402

_OBJECTIVE = """
from benchopt import BaseObjective
class Objective(BaseObjective):
    name = "Nothing"
    sampling_strategy = "run_once"
    def set_data(self, seed):
        self.seed = seed
    def get_objective(self):
        return dict(seed=self.seed)
    def evaluate_result(self, value):
        return dict(value=value)
    def get_one_result(self):
        return dict(value=0.0)
"""
_DATASET = """
from benchopt import BaseDataset
class Dataset(BaseDataset):
    name = "nothing"
    parameters = {{"seed": list(range({count}))}}
    def get_data(self):
        return dict(seed=self.seed)
"""
_SOLVER = """
from benchopt import BaseSolver
class Solver(BaseSolver):
    name = "{name}"
    sampling_strategy = "run_once"
    def set_objective(self, seed):
        self.seed = seed
    def run(self, _):
        self.value = float(self.seed)
    def get_result(self):
        return dict(value=self.value)
"""


def ours(folder: Path, runs: int, jobs: int) -> float:
    """Seconds of wall time of a process that runs the grid; raises when a record is missing."""
    python = make_environment(folder / "environment")
    store, records = folder / "store.sqlite3", folder / "runs"
    command = [
        python,
        "-m",
        "icml26",
        "bench",
        "noop",
        "other",
        "--dataset",
        "nothing",
        "--seeds",
        f"0..{runs // 2 - 1}",
    ]
    command += ["--jobs", jobs, "--store", store, "--output", records, "--quiet"]
    environment = {**os.environ, "ICML26_HOME": str(folder / "home")}
    started = time.perf_counter()
    subprocess.run([str(item) for item in command], check=True, stdout=subprocess.DEVNULL, env=environment)
    seconds = time.perf_counter() - started
    with Store.open(store, readonly=True) as opened:
        found = sum(run.status == "succeeded" for run in opened.query(latest=True))
    files = len(list(records.glob("*/record.json")))
    if not found == files == runs:
        raise SystemExit(f"{runs} runs, but {found} records in the store and {files} files")
    return seconds


def benchopts(folder: Path, runs: int, jobs: int, program: str) -> float:
    """Seconds of wall time of benchopt on a grid of the same size."""
    bench = folder / "bench"
    for part in ("datasets", "solvers"):
        (bench / part).mkdir(parents=True)
    (bench / "objective.py").write_text(_OBJECTIVE, encoding="utf-8")
    (bench / "datasets" / "nothing.py").write_text(_DATASET.format(count=runs // 2), encoding="utf-8")
    for name in ("noop", "other"):
        (bench / "solvers" / f"{name}.py").write_text(_SOLVER.format(name=name), encoding="utf-8")
    command = [program, "run", str(bench), "-j", str(jobs), "--no-html", "--no-plot", "--no-display"]
    started = time.perf_counter()
    with (folder / "benchopt.log").open("wb") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)
    seconds = time.perf_counter() - started
    if not list((bench / "outputs").glob("*.parquet")):
        raise SystemExit(f"benchopt left no results; see {folder / 'benchopt.log'}")
    return seconds


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--max-seconds", type=float, default=10.0)
    parser.add_argument("--benchopt", default=shutil.which("benchopt"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found: dict[str, float | int | None] = {"runs": options.runs, "jobs": options.jobs}
        found["seconds"] = round(ours(Path(name), options.runs, options.jobs), 2)
        found["benchopt_seconds"] = None
        if options.benchopt:
            found["benchopt_seconds"] = round(benchopts(Path(name), options.runs, options.jobs, options.benchopt), 2)
    print(json.dumps(found))
    peer = found["benchopt_seconds"]
    good = found["seconds"] <= options.max_seconds and (peer is None or found["seconds"] <= peer / 2)  # type: ignore[operator]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
