"""The plugin under test: its catalog entries, and runs of its methods that checks share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icml26.catalog import Catalog, Entry, Plugin
from icml26.errors import Icml26Error
from icml26.plan import Choice, Planner, Settings
from icml26.plugins import load_catalog
from icml26.runner import Execution, run_request


@dataclass(slots=True)
class Subject:
    """A plugin, the catalog that holds it, and smoke runs made once for all checks."""

    plugin: Plugin
    catalog: Catalog
    folder: Path
    _runs: dict[tuple[str, str, int, int], Execution] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, *, folder: Path | None = None) -> Subject:
        """The installed plugin ``name``; raises UsageError when there is none."""
        catalog = load_catalog(probe="fresh")
        return cls(catalog.plugin(name), catalog, folder or Path(tempfile.mkdtemp(prefix="icml26-check-")))

    def entries(self, kind: str) -> list[Entry]:
        """The plugin's own entries of a kind."""
        return [
            item for item in self.catalog.entries if item.kind == kind and item.distribution == self.plugin.distribution
        ]

    def pairs(self) -> Iterable[tuple[Entry, Entry]]:
        """Each method of the plugin with a dataset on which it can be tried offline."""
        for method in self.entries("method"):
            dataset = self.smoke_dataset(method)
            if dataset is not None:
                yield method, dataset

    def smoke_dataset(self, method: Entry) -> Entry | None:
        """The method's default dataset, else the first of its task that needs no file and fits."""
        planner = Planner(self.catalog, Settings(smoke=True))
        names = [method.spec.default_dataset] if method.spec.default_dataset else []
        names += [item.qualified for item in self.catalog.of_kind("dataset", task=method.spec.task)]
        for name in names:
            try:
                plan = planner.plan(Choice(method.qualified), Choice(name))
            except Icml26Error:
                continue
            if plan.request is not None:
                return plan.dataset
        return None

    def smoke_run(self, method: Entry, dataset: Entry, *, seed: int = 0, repeat: int = 0, **changes: Any) -> Execution:
        """A smoke run of a pair; the same arguments give the same run again without repeating it."""
        key = (method.qualified, dataset.qualified, seed, repeat)
        if key in self._runs and not changes:
            return self._runs[key]
        planner = Planner(self.catalog, Settings(smoke=True))
        plan = planner.plan(
            Choice(method.qualified, changes.get("config", {})),
            Choice(dataset.qualified, changes.get("dataset_config", {})),
            seed=seed,
        )
        if plan.request is None:
            raise Icml26Error(f"{method.qualified} on {dataset.qualified}: {plan.not_applicable}")
        execution = run_request(plan.request, self.folder / plan.request.record_id, catalog=self.catalog)
        if not changes:
            self._runs[key] = execution
        return execution
