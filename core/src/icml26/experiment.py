"""A bench: plan a grid, reuse what the store has, run the rest, relate to references, tabulate.

``plan_experiment`` works on indexes alone; ``run_experiment`` needs an executor and a store. ``bench`` does both.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from icml26.catalog import Entry
from icml26.config import resolve_config
from icml26.coordinator import Notice, run_all
from icml26.errors import InputError, UsageError
from icml26.executors import Executor
from icml26.grid import Grid, label_of, unique_labels
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
from icml26.plan import Choice, Planner, RunPlan
from icml26.provenance import provenance
from icml26.records import RunRecord, RunRequest
from icml26.relations import Relation, relate_all
from icml26.store import Store, StoredRun

if TYPE_CHECKING:
    import pandas

Stale: TypeAlias = Literal["keep", "rerun"]
Figures: TypeAlias = Literal["first", "all", "none"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a bench under its labels; ``plan.request`` is None where the pair does not fit."""

    method: str
    dataset: str
    seed: int
    plan: RunPlan

    @property
    def request(self) -> RunRequest | None:
        """The run, None when it is not applicable."""
        return self.plan.request

    @property
    def role(self) -> str:
        """The method's role."""
        return str(self.plan.method.spec.role)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A planned grid. ``references`` maps keys of runs to the key of the reference's run, or to why there is none."""

    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    references: Mapping[str, str] = field(default_factory=dict)
    no_reference: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def requests(self) -> dict[str, RunRequest]:
        """The distinct runs by key."""
        return {cell.request.key: cell.request for cell in self.cells if cell.request is not None}

    @property
    def not_applicable(self) -> list[tuple[str, str, str]]:
        """Method, dataset and reason of the pairs that do not fit."""
        pairs = {
            (cell.method, cell.dataset): cell.plan.not_applicable or "not applicable"
            for cell in self.cells
            if cell.request is None
        }
        return [(method, dataset, reason) for (method, dataset), reason in pairs.items()]


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


# -- planning ------------------------------------------------------------------------------------------------------------


def plan_experiment(
    planner: Planner,
    grid: Grid,
    *,
    seen_from: str | None = None,
    metric_config: Mapping[str, Mapping[str, Any]] | None = None,
    figures: Figures = "first",
) -> Experiment:
    """All cells of a grid, each row scored by the union of the metrics, and the references that relative metrics need.

    ``figures`` says for which seeds methods draw. Raises UsageError for wrong names and configs.
    """
    methods, datasets, unnamed = _choices(planner, grid, seen_from)
    unusable = {label_of(choice): reason for choice in unnamed if (reason := _needs_options(planner, choice))}
    entries = [planner.catalog.find("method", choice.name, seen_from=seen_from) for choice in methods]
    metrics = _union(planner, entries, grid.metrics)
    cells: list[Cell] = []
    notes: dict[str, None] = {}
    for dataset, (method, entry), seed in itertools.product(datasets, zip(methods, entries, strict=True), grid.seeds):
        if label_of(dataset) in unusable:
            found = planner.catalog.find("dataset", dataset.name, seen_from=seen_from)
            plan = RunPlan(entry, found, None, not_applicable=unusable[label_of(dataset)])
        else:
            plan = planner.plan(
                method,
                dataset,
                seed=seed,
                metrics=metrics[entry.spec.task],
                metric_config=metric_config,
                base=grid.folder,
                seen_from=seen_from,
            )
        notes |= dict.fromkeys(plan.notes)
        plan = _drawing(plan, figures, seed == grid.seeds[0])
        cells.append(Cell(label_of(method), label_of(dataset), seed, plan))
    references, missing, added = _references(planner, cells)
    added = [replace(cell, plan=_drawing(cell.plan, figures, cell.seed == grid.seeds[0])) for cell in added]
    return Experiment((*cells, *added), grid.seeds, references, missing, tuple(notes))


def _choices(
    planner: Planner, grid: Grid, seen_from: str | None
) -> tuple[tuple[Choice, ...], tuple[Choice, ...], tuple[Choice, ...]]:
    """Methods and datasets of the grid, filled in from its task or the methods' defaults, and those datasets nobody named."""
    catalog = planner.catalog
    methods, datasets = grid.methods, grid.datasets
    if not methods and grid.task is None:
        raise UsageError("no methods: name some, or a task with --task")
    if grid.task is not None:
        catalog.task(grid.task)
        methods = methods or all_choices(catalog.of_kind("method", task=grid.task))
        unnamed = () if datasets else all_choices(catalog.of_kind("dataset", task=grid.task))
        datasets = datasets or unnamed
    else:
        unnamed = () if datasets else _defaults(planner, methods, seen_from)
        datasets = datasets or unnamed
    if not methods or not datasets:
        raise UsageError(f"no installed {'dataset' if methods else 'method'} is of task {grid.task}")
    return unique_labels(methods, "methods"), unique_labels(datasets, "datasets"), unnamed


def all_choices(entries: Sequence[Entry]) -> tuple[Choice, ...]:
    """A choice for each entry, labelled by its bare name where that is enough."""
    names = [entry.name for entry in entries]
    return tuple(
        Choice(entry.qualified, label=entry.name if names.count(entry.name) == 1 else entry.qualified)
        for entry in entries
    )


def _defaults(planner: Planner, methods: Iterable[Choice], seen_from: str | None) -> tuple[Choice, ...]:
    found: dict[str, Entry] = {}
    for choice in methods:
        entry = planner.catalog.find("method", choice.name, seen_from=seen_from)
        if entry.spec.default_dataset is not None:
            dataset = planner.catalog.find("dataset", entry.spec.default_dataset, seen_from=entry.plugin)
            found[dataset.qualified] = dataset
    if not found:
        raise UsageError("none of these methods has a default dataset; name one with --dataset")
    return all_choices(list(found.values()))


def _union(planner: Planner, methods: Iterable[Entry], asked: Iterable[str] | None) -> dict[str, list[str]]:
    """The metrics that score every row, by task."""
    union: dict[str, dict[str, None]] = {}
    for entry in methods:
        found = union.setdefault(entry.spec.task, {})
        if asked is not None:
            found |= dict.fromkeys(asked)
        else:
            found |= dict.fromkeys(metric.qualified for metric in planner.default_metrics(entry))
    return {task: list(names) for task, names in union.items()}


def _needs_options(planner: Planner, dataset: Choice) -> str | None:
    """Why a dataset that nobody named cannot be used as it stands (a file that has to be given), None when it can."""
    entry = planner.catalog.find("dataset", dataset.name)
    try:
        resolve_config(entry.config_schema, [dataset.config], owner=entry.qualified)
    except InputError as error:
        return str(error)
    return None


def _drawing(plan: RunPlan, figures: Figures, first: bool) -> RunPlan:
    if plan.request is None:
        return plan
    wanted = figures == "all" or (figures == "first" and first)
    return replace(plan, request=replace(plan.request, visualize=plan.request.visualize and wanted))


def _references(planner: Planner, cells: Sequence[Cell]) -> tuple[dict[str, str], dict[str, str], list[Cell]]:
    """For each run with a relative metric: the key of its reference's run; and the cells that have to be added for that."""
    keys = {cell.request.key for cell in cells if cell.request is not None}
    labels = {cell.method for cell in cells}
    references: dict[str, str] = {}
    missing: dict[str, str] = {}
    added: dict[str, Cell] = {}
    for cell in cells:
        request = cell.request
        if request is None or not cell.plan.relative_metrics or request.key in references:
            continue
        entry = planner.reference_of(cell.plan.method)
        if entry is None:
            own = cell.plan.method.spec.role == "reference"
            reason = "it is a reference itself" if own else f"{cell.plan.method.qualified} has no reference"
            missing[request.key] = reason
            continue
        plan = planner.plan(
            Choice(entry.qualified),
            Choice(request.dataset, request.dataset_config),
            seed=request.seed,
            metrics=[item.entry.qualified for item in cell.plan.metrics if not item.hidden],
            metric_config=request.metric_config,
        )
        if plan.request is None:
            missing[request.key] = f"no reference run: {plan.not_applicable}"
            continue
        references[request.key] = plan.request.key
        if plan.request.key not in keys and plan.request.key not in added:
            label = entry.name if entry.name not in labels else f"{entry.name} (reference)"
            added[plan.request.key] = Cell(label, cell.dataset, request.seed, plan)
    return references, missing, list(added.values())


# -- running -------------------------------------------------------------------------------------------------------------


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
            if then is not None and (then.get("version"), then.get("commit")) != (now["version"], now["commit"]):
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
