"""Score saved outputs again: the problem is loaded anew, must have the recorded fingerprint, and the metrics run here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icml26.catalog import Catalog, Entry
from icml26.context import STREAM_DATASET, STREAM_METRIC, RunContext
from icml26.coordinator import amend
from icml26.datacache import folder_cache
from icml26.errors import Icml26Error, InputError
from icml26.plan import Planner
from icml26.plugins import load_catalog
from icml26.records import RunRecord
from icml26.runner import instantiate, problem_fingerprint, score
from icml26.store import Store, StoredRun
from icml26.targets import load_target
from icml26.task import Problem


@dataclass(slots=True)
class Rescored:
    """Ids of records that were scored again, and why others were not."""

    rescored: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def rescore_all(
    runs: Iterable[StoredRun], store: Store, *, metrics: Sequence[str] | None = None, catalog: Catalog | None = None
) -> Rescored:
    """Rescore runs and keep the changed records. ``metrics`` None takes the defaults of each run's method.

    A run is refused when it has no saved output, when its data cannot be loaded or has another fingerprint, or when a
    metric fails; its record is then unchanged. Scores that are not asked for stay as they are.
    """
    done = Rescored()
    planner = Planner(catalog or load_catalog())
    loaded: tuple[str, Problem[Any, Any]] | None = None
    for run in sorted(runs, key=lambda run: (run.dataset, run.dataset_digest, run.seed)):
        record = run.record
        try:
            key = f"{run.dataset}:{run.dataset_digest}:{run.seed}"
            if loaded is None or loaded[0] != key:
                loaded = None
                loaded = key, _problem(planner.catalog, record)
            problem = loaded[1]
            fresh = rescore(record, run.folder, problem, planner, metrics)
        except Icml26Error as error:
            done.refused[record.id] = str(error)
            continue
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; the record stays and the reason is told
            done.refused[record.id] = f"{type(error).__name__}: {error}"
            continue
        record.metrics |= fresh
        amend(store, record, run.folder)
        done.rescored.append(record.id)
    return done


def rescore(
    record: RunRecord, folder: Path | None, problem: Problem[Any, Any], planner: Planner, metrics: Sequence[str] | None
) -> dict[str, dict[str, Any]]:
    """The metric entries of a record's saved output on its problem; raises InputError when they cannot be had."""
    if folder is None or folder.name != record.id or record.output != "output" or not (folder / "output").is_dir():
        raise InputError("there is no saved output (`run` saves it, `bench --save` too)")
    if problem_fingerprint(problem) != record.dataset.get("fingerprint"):
        raise InputError("the data are not what they were (another fingerprint); run it again")
    method = planner.catalog.find("method", record.method["name"])
    dataset = planner.catalog.find("dataset", record.dataset["name"])
    cls = load_target(method.spec.target, owner=method.qualified)
    output = cls.load(folder / "output")
    plans = planner.metric_plans(method, dataset, record.method["config"], record.dataset["config"], metrics)
    context = RunContext(record.seed, stream=STREAM_METRIC)
    entries: dict[str, dict[str, Any]] = {}
    for item in plans:
        if item.spec.relative_to:
            continue
        if item.missing is not None:
            if metrics is not None and not item.hidden:
                raise InputError(f"{item.entry.qualified} does not apply: {item.missing}")
            continue
        found = score(item.entry, output, problem.truth, context.for_stream(STREAM_METRIC), {})
        hidden = item.hidden and not _shown(record, item.entry)
        entries |= {key: {**entry, **({"hidden": True} if hidden else {})} for key, entry in found.items()}
    if not entries:
        raise InputError("no metric to score")
    return entries


def _shown(record: RunRecord, entry: Entry) -> bool:
    """Whether the record shows this metric already."""
    return any(key.split(".")[0] == entry.name and not found.get("hidden") for key, found in record.metrics.items())


def _problem(catalog: Catalog, record: RunRecord) -> Problem[Any, Any]:
    entry = catalog.find("dataset", record.dataset["name"])
    dataset = instantiate(entry, record.dataset["config"])
    files = record.dataset.get("files") or {}
    config = {**record.dataset["config"], **files}
    context = RunContext(
        record.seed,
        stream=STREAM_DATASET,
        deadline=math.inf,
        cache=folder_cache(entry.qualified, config, record.dataset["revision"], record.seed),
    )
    problem: Problem[Any, Any] = dataset.load(context)
    return problem
