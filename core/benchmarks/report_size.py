"""How long the report and ``results`` take on a store of many records, each with a folder, a log and curves.

    python core/benchmarks/report_size.py --records 10000 --max-report-seconds 30 --max-results-seconds 1

``results`` is measured in a process of its own, less the start-up of ``icml26 results`` on an empty store (medians of 5).
The bars are on wall time; CPU seconds stand beside it, since they mean something on a busy machine too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from icml26.ids import new_id
from icml26.keys import digest
from icml26.records import RunRecord, metric_entry
from icml26.report import build_report
from icml26.result_set import results
from icml26.store import Store

TASKS, DATASETS, METHODS = 4, 5, 25


def make_records(count: int, folder: Path) -> list[tuple[RunRecord, Path]]:
    """Records of 4 tasks × 5 datasets × 25 methods × as many seeds as it takes."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(count):
        rest, method = divmod(number, METHODS)
        rest, dataset = divmod(rest, DATASETS)
        seed, task = divmod(rest, TASKS)
        config = {"alpha": 0.1 * method, "layers": 3, "optimizer": "adam", "schedule": {"warmup": 10, "kind": "cosine"}}
        name = f"p{task}/method-{method}"
        failed = number % 97 == 0
        record = RunRecord(
            id=new_id(),
            key=digest([name, dataset, seed]),
            status="failed" if failed else "succeeded",
            method={"name": name, "role": ("paper", "baseline")[method % 2], "config": config, "profile": None},
            dataset={
                "name": f"p{task}/data-{dataset}",
                "config": {"n": 1000, "noise": 0.1},
                "revision": "1",
                "files": {},
            },
            task=f"field{task}.noun",
            seed=seed,
            metrics={}
            if failed
            else {
                key: metric_entry(float(rng.normal(method, 1)), unit="units", direction="lower")
                for key in ("error", "cost", "gap", "calibration")
            },
            seconds={"load": 0.1, "run": float(rng.uniform(1, 9)), "score": 0.1},
            peak_memory_bytes=10**8,
            error={"type": "ValueError", "message": "made up", "traceback": None, "signal": None} if failed else None,
            provenance={
                "started": "2026-08-01T10:00:00.000Z",
                "host": "h",
                "python": "3.11",
                "threads": 1,
                "workers": 2,
            },
        )
        own = folder / record.id
        own.mkdir(parents=True)
        (own / "log.txt").write_text("".join(f"epoch {i}: loss {1 / (i + 1):.4f}\n" for i in range(30)))
        points = [{"name": "loss", "value": 1 / (step + 1), "step": step} for step in range(30)]
        (own / "curves.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
        record.log, record.curves = "log.txt", "curves.jsonl"
        found.append((record, own))
    return found


def seconds_of(home: Path) -> tuple[float, float]:
    """The medians of five calls of ``icml26 results``: wall seconds, CPU seconds."""
    times = []
    for _ in range(5):
        begun, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "icml26", "results"],
            env={**os.environ, "ICML26_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        times.append((time.perf_counter() - begun, cpu))
    wall, cpu = zip(*times, strict=True)
    return statistics.median(wall), statistics.median(cpu)


def main() -> int:
    """Measure, print, and compare with the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--max-report-seconds", type=float, default=30.0)
    parser.add_argument("--max-results-seconds", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        records = make_records(options.records, base / "home" / "runs")
        with Store.open(base / "home" / "store.sqlite3") as store:
            store.ingest_all(records)
        begun, used = time.perf_counter(), time.process_time()
        found = results(store=base / "home" / "store.sqlite3")
        summary = build_report(zip(found, found.folders(), strict=True), base / "site")
        report, report_cpu = time.perf_counter() - begun, time.process_time() - used
        pages = sum(1 for _ in base.glob("site/runs/*.html"))
        (full, full_cpu), (empty, empty_cpu) = seconds_of(base / "home"), seconds_of(base / "empty")
    listing = full - empty
    print(
        f"report of {summary.runs} records: {report:.1f} s (CPU {report_cpu:.1f} s), {pages} pages, {summary.plots} plots"
    )
    print(f"results: {listing:.2f} s beyond start-up (CPU {full_cpu - empty_cpu:.2f} s)")
    met = report <= options.max_report_seconds and listing <= options.max_results_seconds
    return 0 if met and pages == options.records and summary.plots <= 100 else 1


if __name__ == "__main__":
    sys.exit(main())
