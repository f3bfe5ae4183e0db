"""Plan a bench: the cells of a grid, the union of their metrics, the references that relative metrics need.

Works on indexes alone; ``measurement`` runs what is planned here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from icml26.catalog import Entry
from icml26.config import resolve_config
from icml26.errors import InputError, UsageError
from icml26.grid import Grid, label_of, unique_labels
from icml26.plan import Choice, Planner, RunPlan
from icml26.records import RunRequest

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
