"""The plugin under test: its catalog entries, and runs of its methods that checks share."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from icml26.catalog import Catalog, Entry, Kind, Plugin
from icml26.context import STREAM_DATASET, STREAM_METHOD, RunContext
from icml26.errors import Icml26Error
from icml26.index import INDEX_FILE
from icml26.plan import Choice, Planner, RunPlan, Settings
from icml26.plugins import load_catalog
from icml26.records import RunRecord, RunRequest
from icml26.runner import Execution, instantiate, run_request
from icml26.smallfiles import read_text
from icml26.task import Problem
from icml26.testing.surroundings import Seen, Surroundings

TRIAL_SECONDS = 120.0
#: The kinds of entries that have a Config.
CONFIGURED: tuple[Kind, ...] = ("method", "dataset")


class Skip(Exception):  # noqa: N818 - not an error
    """A check has nothing to look at; the message says why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A method of the plugin and a dataset on which it can be tried without a user's file."""

    method: Entry
    dataset: Entry

    @property
    def label(self) -> str:
        """For messages."""
        return f"{self.method.qualified} on {self.dataset.qualified}"


@dataclass(slots=True)
class Subject:
    """A plugin, the catalog that holds it, and smoke runs made once for all checks.

    Every pair is first tried in a worker with a deadline; only what ends well there is run in this process.
    """

    plugin: Plugin
    catalog: Catalog
    folder: Path
    trial_seconds: float = TRIAL_SECONDS
    surroundings: Surroundings = field(default_factory=Surroundings)
    _pairs: list[Pair] | None = None
    _trials: dict[str, RunRecord] = field(default_factory=dict)
    _runs: dict[tuple[str, int], tuple[Execution, Seen]] = field(default_factory=dict)
    _executor: Any = None

    @classmethod
    def of(cls, name: str, *, folder: Path | None = None, trial_seconds: float = TRIAL_SECONDS) -> Subject:
        """The installed plugin ``name``; raises UsageError when there is none or it cannot be listed."""
        catalog = load_catalog(probe="fresh")
        place = folder or Path(tempfile.mkdtemp(prefix="icml26-check-"))
        return cls(catalog.plugin(name), catalog, place, trial_seconds)

    def close(self) -> None:
        """End the worker process."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None

    def entries(self, kind: Kind) -> list[Entry]:
        """The plugin's own entries of a kind."""
        return [entry for entry in self.catalog.of_kind(kind) if entry.distribution == self.plugin.distribution]

    def pairs(self) -> list[Pair]:
        """Each method of the plugin with a dataset on which it can be tried offline."""
        if self._pairs is None:
            found = [(method, self._smoke_dataset(method)) for method in self.entries("method")]
            self._pairs = [Pair(method, dataset) for method, dataset in found if dataset is not None]
        return self._pairs

    def usable_pairs(self) -> Iterator[Pair]:
        """The pairs whose trial succeeded; raises Skip when there is none."""
        usable = [pair for pair in self.pairs() if self.trial(pair).succeeded]
        if not usable:
            raise Skip("no smoke run of this plugin succeeds")
        yield from usable

    def own_datasets(self) -> Iterator[tuple[Entry, dict[str, Any]]]:
        """Datasets of the plugin that load without a user's file, with their smoke config."""
        seen: dict[str, tuple[Entry, dict[str, Any]]] = {}
        for pair in self.usable_pairs():
            if pair.dataset.distribution == self.plugin.distribution:
                seen.setdefault(pair.dataset.qualified, (pair.dataset, self.request(pair).dataset_config))
        yield from seen.values()

    def plan(self, method: str, dataset: str, *, seed: int = 0) -> RunPlan:
        """The plan of a smoke run."""
        settings = Settings(smoke=True, timeout_seconds=self.trial_seconds)
        return Planner(self.catalog, settings).plan(Choice(method), Choice(dataset), seed=seed)

    def request(self, pair: Pair) -> RunRequest:
        """The request of a pair's smoke run with seed 0."""
        plan = self.plan(pair.method.qualified, pair.dataset.qualified)
        if plan.request is None:
            raise Icml26Error(f"{pair.label}: {plan.not_applicable}")
        return plan.request

    def trial(self, pair: Pair) -> RunRecord:
        """The record of a smoke run in a worker process, which ends within ``trial_seconds``."""
        if pair.label not in self._trials:
            self._trials[pair.label] = self._guarded(replace(self.request(pair), save=False))
        return self._trials[pair.label]

    def smoke_run(self, pair: Pair, *, repeat: int = 0) -> Execution:
        """A smoke run in this process; the same arguments give the same run again without repeating it."""
        return self._observed(pair, repeat)[0]

    def seen(self, pair: Pair) -> Seen:
        """What the first smoke run did to its surroundings."""
        return self._observed(pair, 0)[1]

    def load(self, dataset: Entry, config: dict[str, Any], seed: int = 0) -> Problem[Any, Any]:
        """A fresh problem of a dataset."""
        from icml26.datacache import folder_cache

        cache = folder_cache(dataset.qualified, config, dataset.spec.revision, seed)
        context = RunContext(seed, stream=STREAM_DATASET, smoke=True, cache=cache)
        problem: Problem[Any, Any] = instantiate(dataset, config).load(context)
        return problem

    def run_on(self, pair: Pair, problem: Problem[Any, Any]) -> Any:
        """The output of a method on a given problem, with seed 0."""
        folder = self.folder / f"direct-{len(list(self.folder.glob('direct-*')))}"
        folder.mkdir(parents=True)
        method = instantiate(pair.method, self.request(pair).config)
        context = RunContext(0, stream=STREAM_METHOD, smoke=True, folder=folder)
        if pair.method.spec.role == "oracle":
            return method.run(problem.inputs, context, problem.truth)
        return method.run(problem.inputs, context)

    def stored_smoke(self) -> dict[str, Any]:
        """The smoke scores in the plugin's index."""
        try:
            document = json.loads(read_text(Path(self.plugin.location) / INDEX_FILE))
            smoke = document.get("smoke", {})
        except (OSError, ValueError, AttributeError):
            return {}
        return smoke if isinstance(smoke, dict) else {}

    def _observed(self, pair: Pair, repeat: int) -> tuple[Execution, Seen]:
        key = (pair.label, repeat)
        if key not in self._runs:
            request = replace(self.request(pair), visualize=repeat == 0)
            folder = self.folder / request.record_id
            with self.surroundings.watched(folder) as seen:
                execution = run_request(request, folder, catalog=self.catalog)
            self._runs[key] = (execution, seen)
        return self._runs[key]

    def _smoke_dataset(self, method: Entry) -> Entry | None:
        """The method's default dataset, else the first of its task that needs no file and fits."""
        names = [method.spec.default_dataset] if method.spec.default_dataset else []
        names += [entry.qualified for entry in self.catalog.of_kind("dataset", task=method.spec.task)]
        for name in names:
            try:
                plan = self.plan(method.qualified, name)
            except Icml26Error:
                continue
            if plan.request is not None:
                return plan.dataset
        return None

    def _guarded(self, request: RunRequest) -> RunRecord:
        from icml26.executors import Finished, Job, Unwritten
        from icml26.executors.local import LocalExecutor

        if self._executor is None:
            self._executor = LocalExecutor(1)
        folder = self.folder / "trials" / request.record_id
        folder.mkdir(parents=True)
        self._executor.submit(Job(request.record_id, request.to_json(), folder, affinity="conformance"))
        while True:
            for event in self._executor.poll(1.0):
                if isinstance(event, Finished):
                    return RunRecord.read(folder / "record.json")
                if isinstance(event, Unwritten):
                    raise Icml26Error(f"{folder}: {event.reason}")
