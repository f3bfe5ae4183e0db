"""What a run costs beside the method itself: no-op runs in one process, with the durable commit measured apart.

    python core/benchmarks/run_overhead.py [--runs 300] [--max-milliseconds 3]

Prints medians in milliseconds; exits with 1 when the overhead without the commit is above the bar.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icml26 import DatasetSpec, Method, MethodSpec, MetricSpec, Problem, TaskSpec
from icml26.catalog import Catalog, Entry, Kind
from icml26.dataset import Dataset
from icml26.plan import Choice, Planner, applicable
from icml26.records import RunRecord
from icml26.runner import ProblemCache, run_request


@dataclass(frozen=True)
class Nothing:
    """Inputs, truth and output of the no-op task."""

    value: float = 0.0


class NoMethod(Method[Nothing, Nothing]):
    """Returns its inputs."""

    def run(self, inputs: Nothing, ctx: Any) -> Nothing:
        return inputs


class NoData(Dataset[Nothing, Nothing]):
    """An empty problem."""

    def load(self, ctx: Any) -> Problem[Nothing, Nothing]:
        return Problem(Nothing(), Nothing())


def zero(output: Nothing, truth: Nothing) -> float:
    """The only score."""
    return output.value - truth.value


def catalog() -> Catalog:
    """A catalog of one no-op method, dataset and metric."""
    here = "run_overhead"
    specs: list[tuple[Kind, Any]] = [
        (
            "task",
            TaskSpec("toy.nothing", "nothing", f"{here}:Nothing", f"{here}:Nothing", f"{here}:Nothing", ("zero",)),
        ),
        ("method", MethodSpec("noop", "toy.nothing", f"{here}:NoMethod", "nothing", default_dataset="empty")),
        ("dataset", DatasetSpec("empty", "toy.nothing", f"{here}:NoData", "nothing")),
        ("metric", MetricSpec("zero", "toy.nothing", f"{here}:zero")),
    ]
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    return Catalog((), tuple(Entry(kind, "noop", "icml26", spec, schema) for kind, spec in specs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--max-milliseconds", type=float, default=3.0)
    args = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    planner = Planner(catalog())
    problems = ProblemCache()
    commits: list[float] = []
    write = RunRecord.write

    def timed_write(record: RunRecord, folder: Path) -> Path:
        begun = time.perf_counter()
        path = write(record, folder)
        commits.append(time.perf_counter() - begun)
        return path

    RunRecord.write = timed_write  # type: ignore[method-assign]
    totals = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.runs + 5):
            begun = time.perf_counter()
            request = applicable(planner.plan(Choice("noop"), seed=seed))
            execution = run_request(
                request, Path(folder) / request.record_id, catalog=planner.catalog, problems=problems
            )
            totals.append(time.perf_counter() - begun)
            assert execution.record.succeeded, execution.record.error
    overhead = statistics.median(total - commit for total, commit in zip(totals[5:], commits[5:], strict=True))
    commit = statistics.median(commits[5:])
    print(
        f"runs {args.runs}: overhead {1e3 * overhead:.2f} ms median, durable commit {1e3 * commit:.2f} ms median beside it"
    )
    return 0 if 1e3 * overhead <= args.max_milliseconds else 1


if __name__ == "__main__":
    sys.modules["run_overhead"] = sys.modules["__main__"]
    sys.exit(main())
