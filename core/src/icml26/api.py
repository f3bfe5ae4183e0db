"""The Python API: what the command line can do, without printing or exiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from icml26.catalog import Catalog, Entry, Plugin
from icml26.context import STREAM_DATASET, Reporter, RunContext
from icml26.errors import Icml26Error
from icml26.executors import cores
from icml26.home import runs_folder, store_file
from icml26.metric import values_by_key
from icml26.plan import Choice, Planner, RunPlan, Settings, applicable
from icml26.plugins import load_catalog
from icml26.records import RunRecord, RunRequest
from icml26.store import Store
from icml26.task import Problem

if TYPE_CHECKING:
    from icml26.method import Method
    from icml26.runner import Execution


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run of this process: its record, what the method returned, the problem, and the reference's result.

    ``reference_missing`` says why there is no reference although the method names one.
    """

    record: RunRecord
    output: Any
    problem: Problem[Any, Any] | None
    folder: Path
    plan: RunPlan
    reference: RunResult | None = None
    reference_missing: str | None = None

    def __repr__(self) -> str:
        """One line: data, outputs and configs have attributes of their own."""
        scores_ = ", ".join(f"{name}={value:.4g}" for name, value in scores(self.record).items())
        told = scores_ or str((self.record.error or {}).get("message", ""))
        pair = f"{self.plan.label} on {self.plan.dataset_label}, seed {self.record.seed}"
        return f"<RunResult {pair}: {self.record.status}; {told}>"


def list_methods(task: str | None = None) -> list[Entry]:
    """The installed methods, optionally of one task; ``entry.spec`` is the MethodSpec."""
    return list(load_catalog().of_kind("method", task=task))


def list_datasets(task: str | None = None) -> list[Entry]:
    """The installed datasets, optionally of one task."""
    return list(load_catalog().of_kind("dataset", task=task))


def list_metrics(task: str | None = None) -> list[Entry]:
    """The installed metrics, optionally of one task."""
    return list(load_catalog().of_kind("metric", task=task))


def list_tasks() -> list[Entry]:
    """The tasks that installed plugins introduce."""
    return list(load_catalog().of_kind("task"))


def list_plugins() -> list[Plugin]:
    """The installed plugins that can be listed."""
    return list(load_catalog().plugins)


def get_method(name: str, config: Mapping[str, Any] | None = None, *, profile: str | None = None) -> Method[Any, Any]:
    """A method by name, with its config over the defaults (or over a profile's).

    Raises UsageError for an unknown name, InputError for a wrong option.
    """
    from icml26.config import resolve_config
    from icml26.errors import UsageError
    from icml26.runner import instantiate

    entry = load_catalog().find("method", name)
    if profile is not None and profile != "none" and profile not in entry.spec.profiles:
        raise UsageError(
            f"{entry.qualified} has no profile {profile!r}; its profiles: {', '.join(entry.spec.profiles) or 'none'}"
        )
    layers = [entry.spec.profiles.get(profile or "", {}), config or {}]
    method: Method[Any, Any] = instantiate(entry, resolve_config(entry.config_schema, layers, owner=entry.qualified))
    return method


def load_dataset(name: str, config: Mapping[str, Any] | None = None, seed: int = 0) -> Problem[Any, Any]:
    """Load a dataset by name: its ``Problem(inputs, truth, info)``."""
    from icml26.config import resolve_config
    from icml26.datacache import folder_cache
    from icml26.keys import hash_path
    from icml26.runner import instantiate

    entry = load_catalog().find("dataset", name)
    resolved = resolve_config(entry.config_schema, [config or {}], owner=entry.qualified)
    dataset = instantiate(entry, resolved)
    paths = {name: Path(value) for name in entry.spec.files if isinstance(value := resolved.get(name), str)}
    contents = {name: hash_path(path) for name, path in paths.items() if path.exists()}
    cache = folder_cache(entry.qualified, {**resolved, **contents}, entry.spec.revision, seed)
    context = RunContext(seed, stream=STREAM_DATASET, cache=cache)
    problem: Problem[Any, Any] = dataset.load(context)
    return problem


def run(
    method: str,
    dataset: str | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    dataset_config: Mapping[str, Any] | None = None,
    metric_config: Mapping[str, Mapping[str, Any]] | None = None,
    profile: str | None = None,
    seed: int = 0,
    metrics: Iterable[str] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    smoke: bool = False,
    save: bool = True,
    visualize: bool = True,
    timeout: float | None = None,
    memory: int | None = None,
    reference: bool = True,
    output: Path | str | None = None,
    store: Path | str | None = None,
    reporter: Reporter | None = None,
    catalog: Catalog | None = None,
) -> RunResult:
    """Run a method on a dataset in this process, and its reference method beside it.

    Args:
        method: bare (``"timeguard"``) or qualified (``"timeguard/timeguard"``) name.
        dataset: name; None takes the method's default.
        config, dataset_config: options over the defaults; ``profile`` names a set of them (``"none"``: the paper's own).
        metric_config: options of metrics, by metric.
        seed: the run's only seed; data, method and metrics draw from separate streams of it.
        metrics: names that replace the task's default list.
        device: ``"cpu"``, ``"cuda"``, ``"mps"`` or ``"auto"``; ``threads``: CPU threads (None: all cores).
        smoke: the tiny settings that plugins declare for quick checks.
        save, visualize: store the output, draw the figures.
        timeout, memory: limits in seconds and bytes; the run is then made in a guarded process of its own, and ``output`` and
            ``problem`` of the result are None.
        reference: also run the method's reference on the same problem and seed.
        output: the folder that gets one folder a run; None takes ``ICML26_HOME``'s. ``store``: the file of records, alike.
        reporter: receives progress and logged values.

    Raises UsageError, InputError or NotApplicableError before any work for a wrong request. A run that fails is a record
    with its status and error, not an exception.
    """
    catalog = catalog or load_catalog()
    settings = Settings(
        device=device,
        threads=threads or cores(),
        smoke=smoke,
        save=save,
        visualize=visualize,
        timeout_seconds=timeout,
        memory_bytes=memory,
    )
    planner = Planner(catalog, settings)
    plan = planner.plan(
        Choice(method, config or {}, profile),
        Choice(dataset or "", dataset_config or {}),
        seed=seed,
        metrics=metrics,
        metric_config=metric_config,
    )
    return run_plan(planner, plan, reference=reference, output=output, store=store, reporter=reporter)


def run_plan(
    planner: Planner,
    plan: RunPlan,
    *,
    reference: bool = True,
    output: Path | str | None = None,
    store: Path | str | None = None,
    reporter: Reporter | None = None,
    capture: bool = False,
) -> RunResult:
    """Run a plan and its method's reference in this process; see ``run`` and ``runner.run_request``.

    A reference that the store holds already is taken from there. Runs with limits (``Settings.timeout_seconds``,
    ``memory_bytes``) are made in a process of their own, and only their records come back.
    """
    request = applicable(plan)
    runs = writable_folder(Path(output) if output is not None else runs_folder())
    with Store.open(Path(store) if store is not None else store_file()) as records:
        perform = _guarded(records, runs, reporter) if request.limits else _in_process(planner, runs, reporter, capture)
        execution, folder = perform(request)
        result = RunResult(execution.record, execution.output, execution.problem, folder, plan)
        if reference and planner.reference_of(plan.method) is not None:
            result = _with_reference(planner, result, records, perform)
            add_relative_metrics(result)
        if not records.ingest(result.record, folder):
            records.amend(result.record)
    return result


Perform: TypeAlias = Callable[[RunRequest], tuple["Execution", Path]]


def _in_process(planner: Planner, runs: Path, reporter: Reporter | None, capture: bool) -> Perform:
    from icml26.runner import ProblemCache, run_request

    problems = ProblemCache()

    def perform(request: RunRequest) -> tuple[Execution, Path]:
        folder = runs / request.record_id
        return run_request(
            request, folder, catalog=planner.catalog, reporter=reporter, problems=problems, capture=capture
        ), folder

    return perform


def _guarded(records: Store, runs: Path, reporter: Reporter | None) -> Perform:
    """Runs in a process of their own, under a guardian that applies their limits."""
    from icml26.coordinator import Notice, run_all
    from icml26.executors import Point, Progress
    from icml26.executors.local import LocalExecutor
    from icml26.runner import Execution

    def heard(notice: Notice) -> None:
        if reporter is not None and isinstance(notice, Progress):
            reporter.progress(notice.label, notice.done, notice.total)
        elif reporter is not None and isinstance(notice, Point):
            reporter.log(notice.name, notice.value, notice.step)

    def perform(request: RunRequest) -> tuple[Execution, Path]:
        executor = LocalExecutor(1)
        try:
            summary = run_all([request], executor, records, runs_folder=runs, reuse=False, on_event=heard)
        finally:
            executor.close()
        return Execution(summary.records[request.key]), summary.folders[request.key] or runs / request.record_id

    return perform


def _with_reference(planner: Planner, result: RunResult, records: Store, perform: Perform) -> RunResult:
    if not result.record.succeeded:
        return replace(result, reference_missing="the method's own run did not succeed")
    try:
        plan = plan_reference(planner, result.plan)
        request = applicable(plan)
    except Icml26Error as error:
        return replace(result, reference_missing=str(error))
    known = records.find_runs([request.key]).get(request.key)
    if known is not None and known.folder is not None and _scored(known.record, plan):
        beside = RunResult(known.record, None, result.problem, known.folder, plan)
        return replace(result, reference=beside)
    done, folder = perform(request)
    records.ingest(done.record, folder)
    beside = RunResult(done.record, done.output, done.problem, folder, plan)
    missing = None if done.record.succeeded else f"{done.record.status}: {(done.record.error or {}).get('message')}"
    return replace(result, reference=beside, reference_missing=missing)


def _scored(record: RunRecord, plan: RunPlan) -> bool:
    """Whether a stored record has the scores that this plan asks for."""
    wanted = [item for item in plan.metrics if item.missing is None and not item.spec.relative_to]
    return all(any(key in record.metrics for key in values_by_key(item.spec)) for item in wanted)


def plan_reference(planner: Planner, plan: RunPlan) -> RunPlan:
    """The reference's run on the same problem and seed: its own defaults, the same metrics and what relative ones need."""
    reference = planner.reference_of(plan.method)
    request = plan.request
    assert reference is not None and request is not None
    return planner.plan(
        Choice(reference.qualified),
        Choice(request.dataset, request.dataset_config),
        seed=request.seed,
        metrics=[item.entry.qualified for item in plan.metrics if not item.hidden],
        metric_config=request.metric_config,
    )


def add_relative_metrics(result: RunResult) -> None:
    """Score what compares a run with its reference's run and write it into the run's record."""
    from icml26.runner import relate

    record = result.record
    for item in result.plan.relative_metrics:
        spec = item.spec
        reference = result.reference
        if result.reference_missing is not None or reference is None:
            reason = f"no reference run: {result.reference_missing}"
            record.metrics[spec.name] = {"value": None, "missing": reason}
            continue
        try:
            entries = relate(item.entry, scores(record), scores(reference.record), reference.record.id)
        except Exception as error:  # noqa: BLE001 - a plugin's metric may raise anything; the record says what
            entries = {spec.name: {"value": None, "missing": f"{type(error).__name__}: {error}"}}
        record.metrics |= entries
    if result.plan.relative_metrics:
        record.write(result.folder)


def scores(record: RunRecord) -> dict[str, float]:
    """The numbers of a record, by metric key."""
    values = {name: record.value(name) for name in record.metrics}
    return {name: value for name, value in values.items() if value is not None}


def writable_folder(folder: Path) -> Path:
    """``folder``, made and proved writable before work starts; raises EnvironmentError_ otherwise."""
    from icml26.coordinator import writable_folder as prove

    prove(folder)
    return folder.absolute()
