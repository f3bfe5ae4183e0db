"""From names and settings to a run that can start: configs resolved, files hashed, fit judged, key computed.

Everything here reads indexes and metadata only; no plugin code runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icml26.catalog import Catalog, Entry
from icml26.config import merge, resolve_config
from icml26.errors import InputError, NotApplicableError, UsageError
from icml26.extras import missing_extra
from icml26.ids import new_id
from icml26.keys import hash_path, hash_sources, run_key
from icml26.records import RunRequest
from icml26.specs import DatasetSpec, MethodSpec, MetricSpec, Provides, Word

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class Settings:
    """What is the same for all runs of a command."""

    device: str = "cpu"
    threads: int = 1
    workers: int = 1
    smoke: bool = False
    save: bool = True
    visualize: bool = True
    timeout_seconds: float | None = None
    memory_bytes: int | None = None

    @property
    def limits(self) -> dict[str, float]:
        """The limits as a request carries them."""
        named = {"timeout_seconds": self.timeout_seconds, "memory_bytes": self.memory_bytes}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Choice:
    """A method or dataset as someone asked for it: a name, settings over its defaults, a profile, a label."""

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    profile: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class MetricPlan:
    """One metric of a run; ``missing`` says why it is not applicable, ``hidden`` that it only serves others."""

    entry: Entry
    hidden: bool = False
    missing: str | None = None

    @property
    def spec(self) -> MetricSpec:
        """The metric's spec."""
        spec = self.entry.spec
        assert isinstance(spec, MetricSpec)
        return spec


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run that can start (``request``) or the reason why the pair does not fit (``not_applicable``)."""

    method: Entry
    dataset: Entry
    request: RunRequest | None
    metrics: tuple[MetricPlan, ...] = ()
    not_applicable: str | None = None
    notes: tuple[str, ...] = ()
    label: str = ""
    dataset_label: str = ""

    @property
    def relative_metrics(self) -> tuple[MetricPlan, ...]:
        """The applicable metrics that compare this run with the reference's."""
        return tuple(plan for plan in self.metrics if plan.spec.relative_to and plan.missing is None)


def check_seed(seed: object) -> None:
    """Raise UsageError unless a seed is what numpy and the store take: an integer from 0 to 2**63 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise UsageError(f"seed {seed!r} is not a whole number from 0 to 2**63 - 1")


class Planner:
    """Plans runs against a catalog; remembers hashes of sources and files for as long as it lives."""

    def __init__(self, catalog: Catalog, settings: Settings | None = None) -> None:
        self.catalog = catalog
        self.settings = settings or Settings()
        self._sources: dict[str, str] = {}
        self._hashes: dict[Path, str] = {}
        self._schemas: dict[str, Mapping[str, Any]] = {}
        self._device: str | None = None

    def plan(
        self,
        method: Choice,
        dataset: Choice | None = None,
        *,
        seed: int = 0,
        metrics: Iterable[str] | None = None,
        metric_config: Mapping[str, Mapping[str, Any]] | None = None,
        base: Path | None = None,
        seen_from: str | None = None,
    ) -> RunPlan:
        """Plan one run.

        ``dataset`` None takes the method's default. ``metrics`` None takes the task's and the method's. ``base`` is the
        folder that relative paths start from (default: the working folder). Raises UsageError for wrong names and configs;
        a pair that does not fit comes back with ``not_applicable`` set.
        """
        check_seed(seed)
        method_entry = self.catalog.find("method", method.name, seen_from=seen_from)
        spec: MethodSpec = method_entry.spec
        dataset_entry, dataset = self._dataset(method_entry, dataset, seen_from)
        dataset_spec: DatasetSpec = dataset_entry.spec
        if dataset_spec.task != spec.task:
            return RunPlan(
                method_entry,
                dataset_entry,
                None,
                not_applicable=f"{dataset_entry.qualified} is of task {dataset_spec.task}, "
                f"{method_entry.qualified} of {spec.task}",
            )
        profile, notes = self._profile(method_entry, dataset_entry, method.profile)
        config = self._resolve(method_entry, [spec.profiles.get(profile or "", {}), self._smoke(spec), method.config])
        dataset_config = self._resolve(dataset_entry, [self._smoke(dataset_spec), dataset.config])
        reason = self._misfit(method_entry, config, dataset_entry, dataset_config)
        if reason:
            return RunPlan(method_entry, dataset_entry, None, not_applicable=reason, notes=notes)
        config, method_files = self._files(method_entry, spec.files, config, base)
        dataset_config, files = self._files(dataset_entry, dataset_spec.files, dataset_config, base)
        planned = self.metric_plans(method_entry, dataset_entry, config, dataset_config, metrics)
        scored = [item for item in planned if item.missing is None and not item.spec.relative_to]
        request = RunRequest(
            record_id=new_id(),
            key=run_key(
                method=method_entry.qualified,
                config=config,
                results_version=spec.results_version,
                dataset=dataset_entry.qualified,
                dataset_config=dataset_config,
                revision=dataset_spec.revision,
                files=files,
                method_files=method_files,
                seed=seed,
                device=self.device,
                smoke=self.settings.smoke,
                sources=self._editable_sources(method_entry, dataset_entry),
            ),
            task=spec.task,
            method=method_entry.qualified,
            config=config,
            dataset=dataset_entry.qualified,
            dataset_config=dataset_config,
            seed=seed,
            role=spec.role,
            profile=profile,
            results_version=spec.results_version,
            revision=dataset_spec.revision,
            files=files,
            method_files=method_files,
            metrics=tuple(item.entry.qualified for item in scored),
            hidden_metrics=tuple(item.entry.qualified for item in scored if item.hidden),
            metric_config=self._metric_config(scored, metric_config or {}),
            device=self.device,
            threads=self.settings.threads,
            workers=self.settings.workers,
            smoke=self.settings.smoke,
            save=self.settings.save,
            visualize=self.settings.visualize,
            limits=self.settings.limits,
        )
        return RunPlan(
            method_entry,
            dataset_entry,
            request,
            planned,
            notes=notes,
            label=method.label or method_entry.name,
            dataset_label=dataset.label or dataset_entry.name,
        )

    def reference_of(self, method: Entry) -> Entry | None:
        """The method that this one is compared with when nothing is asked for, None when it has none or is it."""
        if method.spec.reference is None:
            return None
        reference = self.catalog.find("method", method.spec.reference, seen_from=method.plugin)
        return None if reference.qualified == method.qualified else reference

    def default_metrics(self, method: Entry) -> list[Entry]:
        """What is scored when nothing is asked for: the cheap ones of the task, the method and its reference."""
        spec: MethodSpec = method.spec
        wanted = [*self.catalog.task(spec.task).metrics, *spec.metrics]
        reference = self.reference_of(method)
        if reference is not None:
            wanted += reference.spec.metrics
        chosen = [self._metric(name, method, spec.task) for name in wanted]
        return [entry for entry in {entry.qualified: entry for entry in chosen}.values() if entry.spec.cost == "cheap"]

    @property
    def device(self) -> str:
        """The kind of device that runs use; ``auto`` asks torch once."""
        if self._device is None:
            self._device = resolve_device(self.settings.device)
        return self._device

    def metric_plans(
        self,
        method: Entry,
        dataset: Entry,
        config: Mapping[str, Any],
        dataset_config: Mapping[str, Any],
        names: Iterable[str] | None,
    ) -> tuple[MetricPlan, ...]:
        """The metrics of a run in scoring order: what others need first, then what is asked for."""
        spec: MethodSpec = method.spec
        if names is None:
            chosen = self.default_metrics(method)
        else:
            chosen = [self._metric(name, method, spec.task) for name in names]
        asked = {entry.qualified for entry in chosen}
        words = provided(spec.provides, config) | provided(dataset.spec.provides, dataset_config)
        plans: dict[str, MetricPlan] = {}

        def add(entry: Entry, above: tuple[str, ...] = ()) -> MetricPlan:
            if entry.qualified in above:
                raise UsageError(f"metric {entry.qualified} needs itself through {' -> '.join(above)}")
            if entry.qualified in plans:
                return plans[entry.qualified]
            missing = None
            for word in required(entry.spec.requires, {}):
                if word not in words:
                    missing = f"needs {self._explain(word, spec.task)}, which {dataset.qualified} does not provide"
            if missing is None and entry.spec.extra is not None:
                missing = missing_extra(entry.distribution, entry.spec.extra)
            for name in entry.spec.needs:
                needed = add(
                    self.catalog.find("metric", name, seen_from=entry.plugin, task=spec.task), (*above, entry.qualified)
                )
                if needed.missing is not None and missing is None:
                    missing = needed.missing
            plans[entry.qualified] = MetricPlan(entry, hidden=entry.qualified not in asked, missing=missing)
            return plans[entry.qualified]

        for entry in chosen:
            add(entry)
        return tuple(plans.values())

    def _metric(self, name: str, method: Entry, task: str) -> Entry:
        """A metric as seen from the method's plugin, then from the task's."""
        owner = self.catalog.find("task", task).plugin
        try:
            return self.catalog.find("metric", name, seen_from=method.plugin, task=task)
        except UsageError:
            return self.catalog.find("metric", name, seen_from=owner, task=task)

    def _dataset(self, method: Entry, dataset: Choice | None, seen_from: str | None) -> tuple[Entry, Choice]:
        if dataset is None or not dataset.name:
            default = method.spec.default_dataset
            if default is None:
                known = ", ".join(entry.qualified for entry in self.catalog.of_kind("dataset", task=method.spec.task))
                raise UsageError(
                    f"{method.qualified} has no default dataset; choose one with --dataset: {known or 'none'}"
                )
            entry = self.catalog.find("dataset", default, seen_from=method.plugin)
            return entry, Choice(entry.qualified, dataset.config if dataset else {})
        return self.catalog.find("dataset", dataset.name, seen_from=seen_from or method.plugin), dataset

    def _smoke(self, spec: MethodSpec | DatasetSpec) -> Mapping[str, Any]:
        return spec.smoke if self.settings.smoke else {}

    def _profile(self, method: Entry, dataset: Entry, asked: str | None) -> tuple[str | None, tuple[str, ...]]:
        profiles = method.spec.profiles
        if asked == "none":
            return None, ()
        if asked is not None:
            if asked not in profiles:
                known = ", ".join(profiles) or "none"
                raise UsageError(f"{method.qualified} has no profile {asked!r}; its profiles: {known}")
            return asked, ()
        recommended = dataset.spec.profile
        if recommended is None or dataset.distribution != method.distribution or recommended not in profiles:
            return None, ()
        values = ", ".join(f"{key}={value}" for key, value in profiles[recommended].items())
        note = f"{dataset.qualified} recommends profile {recommended!r} ({values}); --profile none gives the paper's defaults"
        return recommended, (note,)

    def _resolve(self, entry: Entry, layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        return resolve_config(self._schema(entry), layers, owner=entry.qualified)

    def _schema(self, entry: Entry) -> Mapping[str, Any]:
        """The schema of the index; a plugin without one is imported for it, since the key needs every default."""
        if entry.config_schema is not None:
            return entry.config_schema
        if entry.qualified not in self._schemas:
            from icml26.index_build import config_schema

            self._schemas[entry.qualified] = config_schema(entry.spec)
        return self._schemas[entry.qualified]

    def _misfit(
        self, method: Entry, config: Mapping[str, Any], dataset: Entry, dataset_config: Mapping[str, Any]
    ) -> str | None:
        words = provided(dataset.spec.provides, dataset_config)
        for word in required(method.spec.requires, config):
            if word not in words:
                return (
                    f"{method.qualified} needs {self._explain(word, method.spec.task)}, "
                    f"which {dataset.qualified} does not provide"
                )
        for entry in (method, dataset):
            if entry.spec.extra is not None:
                missing = missing_extra(entry.distribution, entry.spec.extra)
                if missing:
                    return f"{entry.qualified} {missing}"
        return None

    def _explain(self, word: str, task: str) -> str:
        meaning = self.catalog.task(task).words.get(word)
        return f"{word!r} ({meaning})" if meaning else repr(word)

    def _files(
        self, entry: Entry, names: Iterable[str], config: dict[str, Any], base: Path | None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Paths of a config made absolute, and the hash of what they hold, by field."""
        config, hashes = dict(config), {}
        properties = self._schema(entry).get("properties", {})
        for name in names:
            value = config.get(name)
            if not isinstance(value, str) or not value:
                continue
            path = Path(value).expanduser()
            path = path if path.is_absolute() else (base or Path.cwd()) / path
            if not path.exists() and "revision" in properties and _HUB_ID.fullmatch(value):
                continue
            if path not in self._hashes:
                try:
                    self._hashes[path] = hash_path(path)
                except InputError as error:
                    raise InputError(f"{entry.qualified}: option {name!r}: {error}") from error
            config[name], hashes[name] = str(path), self._hashes[path]
        return config, hashes

    def _editable_sources(self, *entries: Entry) -> dict[str, str]:
        wanted = {entry.distribution for entry in entries}
        wanted.add(self.catalog.find("task", entries[0].spec.task).distribution)
        wanted.discard("icml26")
        for plugin in self.catalog.plugins:
            if plugin.distribution in wanted and plugin.editable and plugin.distribution not in self._sources:
                self._sources[plugin.distribution] = hash_sources([Path(plugin.location)])
        return {name: self._sources[name] for name in sorted(wanted) if name in self._sources}

    def _metric_config(
        self, scored: Iterable[MetricPlan], asked: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for name, options in asked.items():
            matches = [item.entry.qualified for item in scored if name in (item.entry.name, item.entry.qualified)]
            if not matches:
                known = ", ".join(item.entry.name for item in scored)
                raise UsageError(f"--set metric.{name}: this run does not score {name!r}; it scores: {known}")
            found[matches[0]] = resolve_config(None, [options], owner=name)
        return found


def required(words: Iterable[Word], config: Mapping[str, Any]) -> list[str]:
    """The words of ``requires`` that hold for a resolved config."""
    return [word if isinstance(word, str) else word.word for word in words if _holds(word, config)]


def provided(words: Iterable[Word], config: Mapping[str, Any]) -> set[str]:
    """The words of ``provides`` that hold for a resolved config."""
    return set(required(words, config))


def _holds(word: Word, config: Mapping[str, Any]) -> bool:
    if not isinstance(word, Provides):
        return True
    return all(config.get(name) in list(values) for name, values in word.when.items())


def resolve_device(asked: str) -> str:
    """``auto`` becomes ``cuda``, ``mps`` or ``cpu``; raises InputError for a device that is not there."""
    if asked == "cpu":
        return "cpu"
    if asked not in ("auto", "cuda", "mps"):
        raise UsageError(f"--device {asked!r}; allowed: auto, cpu, cuda, mps")
    try:
        import torch
    except ImportError:
        if asked == "auto":
            return "cpu"
        raise UsageError(f"--device {asked} needs torch, which is not installed") from None
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if asked == "auto":
        return next((name for name, present in there.items() if present), "cpu")
    if not there[asked]:
        raise UsageError(f"--device {asked}: torch {torch.__version__} sees no such device here; use --device cpu")
    return asked


def applicable(plan: RunPlan) -> RunRequest:
    """The request of a plan; raises NotApplicableError with the reason when the pair does not fit."""
    if plan.request is None:
        raise NotApplicableError(f"not applicable: {plan.not_applicable}")
    return plan.request


__all__ = ["Choice", "MetricPlan", "Planner", "RunPlan", "Settings", "applicable", "merge", "provided", "required"]
