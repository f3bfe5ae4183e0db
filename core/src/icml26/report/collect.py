"""Records arranged for reading: by task, then dataset, then method, with labels; nothing is drawn or written here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from icml26.labels import describe, short_labels
from icml26.leaderboard import MetricFacts, Outcome, metric_facts
from icml26.records import RunRecord

_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")


@dataclass(slots=True)
class Run:
    """A record with its folder and the labels under which pages show it. ``superseded`` runs are listed, never averaged."""

    record: RunRecord
    folder: Path | None
    page: str
    method: str = ""
    dataset: str = ""
    superseded: bool = False

    @property
    def seconds(self) -> float | None:
        """The wall time of the method's own part."""
        value = self.record.seconds.get("run")
        return float(value) if isinstance(value, int | float) else None

    @property
    def setting(self) -> tuple[str, str, str]:
        """Under which conditions times were measured: host, threads, workers."""
        facts = self.record.provenance
        return str(facts.get("host")), str(facts.get("threads")), str(facts.get("workers"))


@dataclass(slots=True)
class Board:
    """One dataset of a task: the runs that count, as outcomes."""

    dataset: str
    runs: list[Run] = field(default_factory=list)

    @property
    def outcomes(self) -> list[Outcome]:
        """The runs as cells of a table."""
        return [outcome(run) for run in self.runs]


@dataclass(slots=True)
class TaskBoard:
    """A task with its boards and metrics."""

    name: str
    page: str
    boards: list[Board]
    metrics: dict[str, MetricFacts]
    methods: list[str]
    superseded: int

    @property
    def runs(self) -> list[Run]:
        """The runs of all boards."""
        return [run for board in self.boards for run in board.runs]

    @property
    def outcomes(self) -> list[Outcome]:
        """The runs of all boards as cells."""
        return [outcome(run) for run in self.runs]

    @property
    def primary(self) -> MetricFacts | None:
        """The task's first metric."""
        return next(iter(self.metrics.values()), None)

    def place(self, method: str) -> int:
        """The number of a method in this task, for its colour."""
        return self.methods.index(method)


def outcome(run: Run) -> Outcome:
    """A run as a cell of a table."""
    record = run.record
    error = record.error or {}
    reason = None if record.succeeded else f"{record.status}: {error.get('message') or error.get('type') or ''}"
    return Outcome(run.method, run.dataset, record.seed, record, str(record.method.get("role", "paper")), reason=reason)


def collect(records: Iterable[tuple[RunRecord, Path | None]]) -> tuple[list[TaskBoard], list[Run]]:
    """Arrange records; the newest succeeded one counts where a method, dataset, config and seed were run again."""
    runs = [Run(record, own_folder(record, folder), "") for record, folder in records]
    _name_pages(runs)
    tasks: dict[str, list[Run]] = {}
    for run in runs:
        tasks.setdefault(str(run.record.task), []).append(run)
    boards = [
        _task(name, group, f"task-{number}.html") for number, (name, group) in enumerate(sorted(tasks.items()), 1)
    ]
    return boards, runs


def own_folder(record: RunRecord, folder: Path | None) -> Path | None:
    """The folder of a run when it bears the run's name, else None.

    A merged store is someone else's word: without this, a record could have any folder of this machine read or copied.
    """
    return folder if folder is not None and folder.name == record.id else None


def _name_pages(runs: Sequence[Run]) -> None:
    used: Counter[str] = Counter()
    for number, run in enumerate(runs):
        identity = str(run.record.id)
        name = identity if _SAFE_ID.fullmatch(identity) else f"run-{number}"
        used[name] += 1
        run.page = f"{name}.html" if used[name] == 1 else f"{name}-{used[name]}.html"


def _task(name: str, group: list[Run], page: str) -> TaskBoard:
    methods = {id(run): describe(run.record.method) for run in group}
    datasets = {id(run): describe(run.record.dataset) for run in group}
    method_labels = short_labels(methods.values())
    dataset_labels = short_labels(datasets.values())
    for run in group:
        run.method = method_labels[methods[id(run)].identity]
        run.dataset = dataset_labels[datasets[id(run)].identity]
    chosen: dict[tuple[str, str, int], Run] = {}
    for run in sorted(group, key=lambda run: str(run.record.id)):
        cell = (run.method, run.dataset, run.record.seed)
        before = chosen.get(cell)
        if before is None:
            chosen[cell] = run
            continue
        loser = run if before.record.succeeded and not run.record.succeeded else before
        loser.superseded = True
        chosen[cell] = before if loser is run else run
    boards: dict[str, Board] = {}
    for run in sorted(chosen.values(), key=lambda run: (run.dataset, run.method, run.record.seed)):
        boards.setdefault(run.dataset, Board(run.dataset)).runs.append(run)
    counted = [run for board in boards.values() for run in board.runs]
    facts = {
        key: item
        for key, item in metric_facts([outcome(run) for run in _paper_last(counted)]).items()
        if item.error_of is None
    }
    order = {role: place for place, role in enumerate(("paper", "reference", "baseline", "oracle"))}
    roles = {run.method: order.get(str(run.record.method.get("role")), 0) for run in counted}
    return TaskBoard(
        name, page, list(boards.values()), facts, sorted(roles, key=lambda label: (roles[label], label)),
        sum(run.superseded for run in group),
    )  # fmt: skip


def _paper_last(runs: Sequence[Run]) -> list[Run]:
    """Runs with the fewest metrics first, so that the task's common metrics lead and special ones follow."""
    return sorted(runs, key=lambda run: len(run.record.metrics) or 1_000)


def same_setting(runs: Sequence[Run]) -> tuple[list[Run], int]:
    """The runs whose times may be compared (the most common host, threads and workers), and how many are left out."""
    if not runs:
        return [], 0
    setting, _ = Counter(run.setting for run in runs).most_common(1)[0]
    kept = [run for run in runs if run.setting == setting]
    return kept, len(runs) - len(kept)
