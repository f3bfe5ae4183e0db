"""One run, in this process: load, run, save, score, draw, record.

Whatever a plugin does short of ending the process comes back as a record; only KeyboardInterrupt passes through.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pydantic

from icml26.capture import captured_streams
from icml26.catalog import Catalog, Entry
from icml26.context import STREAM_DATASET, STREAM_METHOD, STREAM_METRIC, Reporter, RunContext, SilentReporter
from icml26.datacache import folder_cache
from icml26.errors import Icml26Error, InputError, PluginError
from icml26.fingerprints import fingerprint
from icml26.keys import canonical, digest, hash_path, jsonable
from icml26.method import Method, can_save
from icml26.metric import as_scores, takes_context, values_by_key
from icml26.processes import peak_bytes
from icml26.provenance import provenance
from icml26.records import RunRecord, RunRequest, metric_entry
from icml26.specs import MetricSpec
from icml26.targets import load_target
from icml26.task import Problem

logger = logging.getLogger("icml26.run")


@dataclass(slots=True)
class Execution:
    """A finished run with what it made, for use in this process."""

    record: RunRecord
    output: Any = None
    problem: Problem[Any, Any] | None = None


@dataclass(slots=True)
class ProblemCache:
    """The last loaded problem, reused for the same dataset, config, files and seed as long as nobody changed it."""

    key: str | None = None
    problem: Problem[Any, Any] | None = None
    content: str = ""

    def get(self, key: str) -> tuple[Problem[Any, Any], str] | None:
        """The problem and its fingerprint, None when it is another one or was mutated."""
        if self.key != key or self.problem is None or problem_fingerprint(self.problem) != self.content:
            return None
        return self.problem, self.content

    def put(self, key: str, problem: Problem[Any, Any], content: str) -> None:
        """Remember this problem instead of the last."""
        self.key, self.problem, self.content = key, problem, content


def problem_fingerprint(problem: Problem[Any, Any]) -> str:
    """The fingerprint of inputs and truth."""
    return fingerprint([problem.inputs, problem.truth])


def execute(
    request: RunRequest,
    folder: Path,
    *,
    catalog: Catalog,
    reporter: Reporter | None = None,
    problems: ProblemCache | None = None,
) -> RunRecord:
    """Run a request and leave ``record.json`` in ``folder``; see ``run_request``."""
    execution = run_request(request, folder, catalog=catalog, reporter=reporter, problems=problems)
    return execution.record


def run_request(
    request: RunRequest,
    folder: Path,
    *,
    catalog: Catalog,
    reporter: Reporter | None = None,
    problems: ProblemCache | None = None,
    capture: bool = False,
) -> Execution:
    """Run a request in this process.

    ``folder`` is the run's own folder; it is made when missing and gets ``record.json``, ``log.txt``, ``curves.jsonl``,
    the artifacts and, where the method stores it, ``output/``. Failures of the plugin end as a record with their status.
    ``capture`` sends what is written to descriptors 1 and 2 meanwhile to the log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    run = _Run(request, folder, catalog, reporter or SilentReporter(), problems or ProblemCache(), started)
    try:
        streams = captured_streams(folder / "log.txt") if capture else contextlib.nullcontext()
        with streams, _log_file(folder / "log.txt"):
            run.perform()
    except KeyboardInterrupt:
        run.fail("killed", KeyboardInterrupt("interrupted"))
        run.finish()
        raise
    except MemoryError as error:
        run.fail("out-of-memory", error)
    except InputError as error:
        run.fail("refused", error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin raises becomes its record
        run.fail("failed", error)
    return Execution(run.finish(), run.output, run.problem)


@dataclass(slots=True)
class _Run:
    request: RunRequest
    folder: Path
    catalog: Catalog
    reporter: Reporter
    problems: ProblemCache
    started: float
    record: RunRecord = field(init=False)
    curves: _Curves = field(init=False)
    base: RunContext = field(init=False)
    output: Any = None
    problem: Problem[Any, Any] | None = None

    def __post_init__(self) -> None:
        request = self.request
        self.record = RunRecord.of(request, "failed")
        self.curves = _Curves(self.folder / "curves.jsonl", self.reporter)
        timeout = request.limits.get("timeout_seconds")
        self.base = RunContext(
            request.seed,
            device=request.device,
            threads=request.threads,
            deadline=None if timeout is None else self.started + timeout,
            smoke=request.smoke,
            folder=self.folder,
            reporter=self.curves,
            logger=logger,
        )

    def perform(self) -> None:
        request = self.request
        method_entry = self.catalog.find("method", request.method)
        dataset_entry = self.catalog.find("dataset", request.dataset)
        task = self.catalog.task(request.task)
        task_distribution = self.catalog.find("task", request.task).distribution
        self.record.provenance = provenance(
            [method_entry.distribution, dataset_entry.distribution, task_distribution],
            threads=request.threads,
            workers=request.workers,
        )
        _set_threads(request.threads)
        with self._timed("load"):
            method = instantiate(method_entry, request.config)
            dataset = instantiate(dataset_entry, request.dataset_config)
            self._check_files(dataset_entry, request.dataset_config, request.files)
            self._check_files(method_entry, request.config, request.method_files)
            self.problem, content = self._load(dataset, dataset_entry)
        self.record.dataset["fingerprint"] = content
        self.record.info["problem"] = _json_or_text(self.problem.info)
        context = self.base.for_stream(STREAM_METHOD)
        with self._timed("run"):
            if method_entry.spec.role == "oracle":
                self.output = method.run(self.problem.inputs, context, self.problem.truth)
            else:
                self.output = method.run(self.problem.inputs, context)
        expected = load_target(task.output, owner=f"task {task.name}")
        if isinstance(expected, type) and not isinstance(self.output, expected):
            raise PluginError(
                f"{request.method} returned {type(self.output).__name__}; task {task.name} expects {expected.__name__}"
            )
        if problem_fingerprint(self.problem) != content:
            self.problems.key = None
            self._warn(f"{request.method} changed its inputs; the problem is loaded anew for the next run")
        if request.save and can_save(type(method)):
            self._save(method)
        with self._timed("score"):
            self._score()
        if request.visualize and type(method).visualize is not Method.visualize:
            self._visualize(method, context)
        self.record.status = "succeeded"

    def _load(self, dataset: Any, entry: Entry) -> tuple[Problem[Any, Any], str]:
        request = self.request
        key = digest([request.dataset, {**request.dataset_config, **request.files}, request.revision, request.seed])
        cached = self.problems.get(key)
        if cached is not None:
            return cached
        cache = folder_cache(
            request.dataset, {**request.dataset_config, **request.files}, request.revision, request.seed
        )
        context = self.base.for_stream(STREAM_DATASET, folder=None, cache=cache)
        problem = dataset.load(context)
        if not isinstance(problem, Problem):
            raise PluginError(f"{entry.qualified}.load returned {type(problem).__name__}; icml26.Problem is expected")
        content = problem_fingerprint(problem)
        self.problems.put(key, problem, content)
        return problem, content

    def _check_files(self, entry: Entry, config: Mapping[str, Any], files: Mapping[str, str]) -> None:
        for name, expected in files.items():
            if hash_path(Path(config[name])) != expected:
                raise InputError(
                    f"{entry.qualified}: option {name!r}: {config[name]} changed after the run was planned"
                )

    def _save(self, method: Any) -> None:
        final, temporary = self.folder / "output", self.folder / ".output.tmp"
        temporary.mkdir()
        method.save(self.output, temporary)
        temporary.replace(final)
        self.record.output = final.name

    def _score(self) -> None:
        assert self.problem is not None
        for qualified in self.request.metrics:
            entry = self.catalog.find("metric", qualified)
            scores = score(
                entry, self.output, self.problem.truth, self.base.for_stream(STREAM_METRIC), self.request.metric_config
            )
            hidden = {"hidden": True} if qualified in self.request.hidden_metrics else {}
            self.record.metrics |= {name: {**item, **hidden} for name, item in scores.items()}

    def _visualize(self, method: Any, context: RunContext) -> None:
        assert self.problem is not None
        with self._timed("visualize"):
            try:
                method.visualize(self.problem, self.output, context)
            except (Exception, SystemExit) as error:
                logger.exception("visualize failed")
                self._warn(f"the figures could not be drawn: {type(error).__name__}: {error}")
        self.record.artifacts = list(context.artifacts)

    def _warn(self, text: str) -> None:
        logger.warning(text)
        self.record.info.setdefault("warnings", []).append(text)

    @contextlib.contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.record.seconds[part] = round(time.perf_counter() - begun, 6)

    def fail(self, status: Any, error: BaseException) -> None:
        self.record.status = status
        text = "".join(traceback.format_exception(error))
        self.record.error = {
            "type": type(error).__name__,
            "message": str(error) or type(error).__name__,
            "traceback": None if isinstance(error, Icml26Error) and error.__cause__ is None else text,
            "signal": None,
        }

    def finish(self) -> RunRecord:
        record = self.record
        record.log = "log.txt" if (self.folder / "log.txt").exists() else None
        record.curves = self.curves.close()
        record.peak_memory_bytes = peak_bytes()
        record.write(self.folder)
        return record


def instantiate(entry: Entry, config: Mapping[str, Any]) -> Any:
    """The method or dataset with its config checked by pydantic; raises InputError that names the option."""
    cls = load_target(entry.spec.target, owner=entry.qualified)
    try:
        checked = cls.Config.model_validate(dict(config))
    except pydantic.ValidationError as error:
        raise InputError(f"{entry.qualified}: {config_faults(error)}") from None
    return cls(checked)


def config_faults(error: pydantic.ValidationError) -> str:
    """A pydantic error as one line: which option, what was given, what is wrong."""
    parts = []
    for fault in error.errors(include_url=False):
        where = ".".join(str(part) for part in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        given = f" (given: {fault['input']!r})" if where and not isinstance(fault["input"], dict) else ""
        parts.append(f"option {where!r}: {message}{given}" if where else message)
    return "; ".join(parts)


def score(
    entry: Entry, output: Any, truth: Any, context: RunContext, config: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """The record entries of one metric."""
    function: Callable[..., Any] = load_target(entry.spec.target, owner=entry.qualified)
    options = dict((config or {}).get(entry.qualified, {}))
    arguments = (output, truth, context) if takes_context(function) else (output, truth)
    return metric_entries(entry.spec, function(*arguments, **options))


def relate(
    entry: Entry, scores: Mapping[str, float], reference_scores: Mapping[str, float], reference_id: str
) -> dict[str, dict[str, Any]]:
    """The record entries of a relative metric, from the scores of a run and of the reference's run."""
    function: Callable[..., Any] = load_target(entry.spec.target, owner=entry.qualified)
    entries = metric_entries(entry.spec, function(dict(scores), dict(reference_scores)))
    return {name: {**item, "relative_to": reference_id} for name, item in entries.items()}


def metric_entries(spec: MetricSpec, returned: Any) -> dict[str, dict[str, Any]]:
    """What a metric returned, with unit and direction, as the record stores it."""
    values = values_by_key(spec)
    entries = {}
    for name, number in as_scores(spec, returned).items():
        value = values[name]
        entries[name] = metric_entry(number, unit=value.unit, direction=value.direction)
        if value.error_of is not None:
            entries[name]["error_of"] = f"{spec.name}.{value.error_of}" if value.error_of else spec.name
    return entries


class _Curves:
    """Logged values on their way to the reporter, also written to ``curves.jsonl``."""

    def __init__(self, path: Path, reporter: Reporter) -> None:
        self.path = path
        self.reporter = reporter
        self._file: Any = None

    def progress(self, label: str, done: int, total: int | None) -> None:
        self.reporter.progress(label, done, total)

    def log(self, name: str, value: float, step: int | None) -> None:
        if self._file is None:
            self._file = self.path.open("w", encoding="utf-8")
        self._file.write(json.dumps({"name": name, "value": jsonable(value), "step": step}) + "\n")
        self.reporter.log(name, value, step)

    def close(self) -> str | None:
        if self._file is None:
            return None
        self._file.close()
        return self.path.name


@contextlib.contextmanager
def _log_file(path: Path) -> Iterator[None]:
    """Send the log of this run to ``path``, which is made when something is logged."""
    handler = logging.FileHandler(path, delay=True, encoding="utf-8", errors="replace")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _json_or_text(info: Mapping[str, Any]) -> Any:
    try:
        canonical(info)
    except (TypeError, ValueError):
        return {str(key): str(value) for key, value in info.items()}
    return jsonable(info)


def _set_threads(threads: int) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
