"""Run a planned bench: reuse what the store has, run the rest, relate runs to their references, tabulate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from icml26.coordinator import Notice, run_all
from icml26.errors import UsageError
from icml26.executors import Executor
from icml26.experiment import Cell, Experiment
from icml26.leaderboard import (
    MetricFacts,
    Outcome,
    Row,
    comparison_json,
    comparisons,
    default_baseline,
    estimate_json,
    metric_facts,
    rows,
)
from icml26.metric import values_by_key
from icml26.plan import Planner
from icml26.provenance import provenance
from icml26.records import RunRecord
from icml26.relations import Relation, relate_all
from icml26.store import Store, StoredRun

if TYPE_CHECKING:
    import pandas

Stale: TypeAlias = Literal["keep", "rerun"]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What a bench measured: outcomes under labels, and where each run lies."""

    experiment: Experiment
    outcomes: tuple[Outcome, ...]
    records: tuple[RunRecord, ...]
    folders: Mapping[str, Path | None]
    reused: int
    stale: tuple[str, ...] = ()

    @property
    def metrics(self) -> dict[str, MetricFacts]:
        """The metrics of the table, without standard errors of others."""
        return {key: facts for key, facts in metric_facts(self.outcomes).items() if facts.error_of is None}

    @property
    def rows(self) -> list[Row]:
        """The table: a method on a dataset a row, means and intervals over seeds."""
        return rows(self.outcomes, self.metrics)

    @property
    def failures(self) -> list[Outcome]:
        """The runs that ended otherwise than with scores."""
        return [outcome for outcome in self.outcomes if outcome.applicable and not outcome.succeeded]

    def versus(self, baseline: str | None = None) -> tuple[str, dict[str, dict[str, Any]]] | None:
        """Paired differences to a baseline (default: the first reference, else baseline), by metric and method."""
        chosen = baseline or default_baseline(self.outcomes)
        if chosen is None:
            return None
        labels = {outcome.method for outcome in self.outcomes}
        if chosen not in labels:
            raise UsageError(f"no method of this bench is called {chosen!r}; they are {', '.join(sorted(labels))}")
        found = {key: comparisons(self.outcomes, key, chosen) for key in self.metrics}
        return chosen, {key: dict(by_method) for key, by_method in found.items() if by_method}

    def to_json(self, baseline: str | None = None) -> dict[str, Any]:
        """``table``, ``records`` and ``not_applicable`` as ``icml26 bench --json`` prints them."""
        facts = self.metrics
        versus = self.versus(baseline)
        table = []
        for row in self.rows:
            if row.not_applicable is not None:
                continue
            body: dict[str, Any] = {
                "method": row.method,
                "dataset": row.dataset,
                "role": row.role,
                "runs": len(row.outcomes),
                "statuses": row.statuses,
                "metrics": {key: estimate_json(cell, facts[key]) for key, cell in row.cells.items()},
            }
            if versus is not None:
                body["versus"] = {
                    key: comparison_json(by_method[row.method], versus[0])
                    for key, by_method in versus[1].items()
                    if row.method in by_method
                }
            table.append(body)
        return {
            "table": table,
            "records": [record.to_json() for record in self.records],
            "not_applicable": [
                {"method": method, "dataset": dataset, "reason": reason}
                for method, dataset, reason in self.experiment.not_applicable
            ],
        }

    def to_markdown(self) -> str:
        """The table as ``icml26 bench --markdown`` prints it: means with intervals, seconds, and what has no scores."""
        from icml26.markdown import bench_markdown

        return bench_markdown(self)

    def to_pandas(self) -> pandas.DataFrame:
        """One row a run: labels, seed, status, a column a metric (needs pandas)."""
        from icml26.result_set import frame

        lines = []
        for outcome in self.outcomes:
            line: dict[str, Any] = {
                "method": outcome.method,
                "dataset": outcome.dataset,
                "seed": outcome.seed,
                "role": outcome.role,
                "status": outcome.record.status if outcome.record is not None else "not-applicable",
            }
            lines.append(line | {key: outcome.value(key) for key in self.metrics})
        return frame(lines)


def run_experiment(
    experiment: Experiment,
    planner: Planner,
    executor: Executor,
    store: Store,
    *,
    runs_folder: Path,
    fresh: bool = False,
    stale: Stale = "keep",
    on_event: Callable[[Notice], None] = lambda notice: None,
) -> BenchResult:
    """Run what the store does not have; ``fresh`` runs everything, ``stale="rerun"`` what other versions measured.

    A stored run that lacks a wanted metric is run again. Raises what ``coordinator.run_all`` raises.
    """
    requests = experiment.requests
    stored = {} if fresh else store.find_runs(requests)
    outdated = _outdated(experiment, stored)
    forced = set(requests) if fresh else _unscored(experiment, stored)
    if stale == "rerun":
        forced |= set(outdated)
    records: dict[str, RunRecord] = {}
    folders: dict[str, Path | None] = {}
    reused: set[str] = set()
    for reuse in (True, False):
        wanted = [request for key, request in requests.items() if (key not in forced) == reuse]
        if wanted:
            done = run_all(wanted, executor, store, runs_folder=runs_folder, reuse=reuse, on_event=on_event)
            records |= done.records
            folders |= done.folders
            reused |= done.reused
    relations = list(_relations(experiment, records))
    relate_all(relations, records, folders, executor, store, runs_folder=runs_folder)
    outcomes = tuple(outcome_of(cell, records) for cell in experiment.cells)
    kept = tuple(f"{key[:12]}: {reason}" for key, reason in outdated.items() if key not in forced)
    return BenchResult(
        experiment, outcomes, tuple(records[key] for key in requests if key in records), folders, len(reused), kept
    )


def outcome_of(cell: Cell, records: Mapping[str, RunRecord]) -> Outcome:
    """A cell with the record of its run."""
    if cell.request is None:
        return Outcome(
            cell.method, cell.dataset, cell.seed, None, cell.role, applicable=False, reason=cell.plan.not_applicable
        )
    record = records.get(cell.request.key)
    reason = "not run" if record is None else None
    if record is not None and not record.succeeded:
        reason = f"{record.status}: {(record.error or {}).get('message') or ''}".rstrip(": ")
    return Outcome(cell.method, cell.dataset, cell.seed, record, cell.role, reason=reason)


def _unscored(experiment: Experiment, stored: Mapping[str, StoredRun]) -> set[str]:
    """The keys whose stored record lacks a metric that is wanted and applicable."""
    lacking = set()
    for cell in experiment.cells:
        run = stored.get(cell.request.key) if cell.request is not None else None
        if run is None:
            continue
        wanted = [item for item in cell.plan.metrics if item.missing is None and not item.spec.relative_to]
        if not all(any(key in run.metrics for key in values_by_key(item.spec)) for item in wanted):
            lacking.add(run.key)
    return lacking


def _outdated(experiment: Experiment, stored: Mapping[str, StoredRun]) -> dict[str, str]:
    """The stored runs that other versions of their distributions measured, and how they differ."""
    current: dict[tuple[str, str], dict[str, Any]] = {}
    found = {}
    for cell in experiment.cells:
        run = stored.get(cell.request.key) if cell.request is not None else None
        if run is None:
            continue
        names = (cell.plan.method.distribution, cell.plan.dataset.distribution)
        if names not in current:
            current[names] = provenance(names, threads=1, workers=1)["distributions"]
        before = run.record.provenance.get("distributions") or {}
        for name, now in current[names].items():
            then = before.get(name)
            if then is None or now["version"] is None:
                continue
            if (then.get("version"), then.get("commit")) != (now["version"], now["commit"]):
                found[run.key] = f"{name} {then.get('version')} then, {now['version']} now"
    return found


def _relations(experiment: Experiment, records: Mapping[str, RunRecord]) -> Iterator[Relation]:
    """What is still to be related: each run that succeeded, with its reference's record, or why there is none."""
    seen: set[str] = set()
    for cell in experiment.cells:
        record = records.get(cell.request.key) if cell.request is not None else None
        if record is None or not record.succeeded or record.key in seen:
            continue
        seen.add(record.key)
        for item in cell.plan.relative_metrics:
            reference = records.get(experiment.references.get(record.key, ""))
            reason = experiment.no_reference.get(record.key)
            if reason is None and (reference is None or not reference.succeeded):
                end = "did not run" if reference is None else f"ended as {reference.status}"
                reason, reference = f"no reference run: it {end}", None
            yield Relation(record, item.entry, reference, reason)
