"""Relative metrics of many runs: scored by the executor's workers, since they are plugin code, and written into the records."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icml26.catalog import Entry
from icml26.coordinator import amend
from icml26.executors import Executor, Finished, Job, Unwritten
from icml26.ids import new_id
from icml26.keys import jsonable
from icml26.records import RELATE_SCHEMA, RunRecord
from icml26.store import Store
from icml26.verdict import read_answer

_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Relation:
    """One relative metric of a run: against ``reference``, or the reason why there is none."""

    record: RunRecord
    metric: Entry
    reference: RunRecord | None
    reason: str | None = None

    @property
    def done(self) -> bool:
        """Whether the record has it already, against this very reference."""
        entries = [entry for key, entry in self.record.metrics.items() if key.split(".")[0] == self.metric.spec.name]
        if self.reference is None:
            return any(entry.get("missing") == self.reason for entry in entries)
        return any(entry.get("relative_to") == self.reference.id for entry in entries)

    def request(self) -> dict[str, Any]:
        """The worker's request."""
        assert self.reference is not None
        return {
            "schema": RELATE_SCHEMA,
            "record_id": new_id(),
            "metric": self.metric.qualified,
            "scores": _scores(self.record),
            "reference_scores": _scores(self.reference),
            "reference_id": self.reference.id,
        }


def relate_all(
    relations: Iterable[Relation],
    records: Mapping[str, RunRecord],
    folders: Mapping[str, Path | None],
    executor: Executor,
    store: Store,
    *,
    runs_folder: Path,
) -> None:
    """Score what is missing and keep the changed records; a metric that fails is ``missing`` with the reason.

    The answers lie in a passing folder below ``runs_folder``, which workers on other machines see too.
    """
    wanted = [relation for relation in relations if not relation.done]
    changed: dict[str, RunRecord] = {}
    for relation in wanted:
        if relation.reference is None:
            _put(relation, {relation.metric.spec.name: {"value": None, "missing": relation.reason}})
            changed[relation.record.key] = relation.record
    jobs = deque(relation for relation in wanted if relation.reference is not None)
    if jobs:
        folder = Path(tempfile.mkdtemp(prefix=".relate-", dir=runs_folder))
        try:
            for relation in _answered(jobs, executor, folder):
                changed[relation.record.key] = relation.record
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    for key, record in changed.items():
        amend(store, record, folders.get(key))


def _answered(jobs: deque[Relation], executor: Executor, folder: Path) -> Iterable[Relation]:
    running: dict[str, tuple[Relation, dict[str, Any]]] = {}
    while jobs or running:
        while jobs and len(running) < executor.slots:
            relation = jobs.popleft()
            request = relation.request()
            identity = str(request["record_id"])
            running[identity] = relation, request
            executor.submit(Job(identity, request, folder / identity, affinity=relation.metric.qualified))
        for event in executor.poll(_POLL_SECONDS):
            if isinstance(event, Finished | Unwritten) and event.id in running:
                relation, request = running.pop(event.id)
                answer = read_answer(request, folder / event.id) if isinstance(event, Finished) else None
                _put(relation, _entries(relation, answer))
                yield relation


def _entries(relation: Relation, answer: Any) -> dict[str, Any]:
    if isinstance(answer, dict) and isinstance(answer.get("metrics"), dict):
        entries: dict[str, Any] = answer["metrics"]
        return entries
    error = (answer.get("error") if isinstance(answer, dict) else None) or {}
    reason = f"{error.get('type', 'the worker')}: {error.get('message', 'ended without an answer')}"
    return {relation.metric.spec.name: {"value": None, "missing": reason}}


def _put(relation: Relation, entries: Mapping[str, Any]) -> None:
    """Replace what the record had of this metric."""
    metrics = relation.record.metrics
    for key in [key for key in metrics if key.split(".")[0] == relation.metric.spec.name]:
        del metrics[key]
    metrics.update(entries)


def _scores(record: RunRecord) -> dict[str, Any]:
    values = {key: record.value(key) for key in record.metrics}
    return {key: jsonable(value) for key, value in values.items() if value is not None}
