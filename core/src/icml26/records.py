"""What is asked of a worker and what every run leaves behind, both plain JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from icml26.errors import StoreError
from icml26.keys import from_jsonable, jsonable
from icml26.smallfiles import read_text

RECORD_SCHEMA = "icml26.record/1"
REQUEST_SCHEMA = "icml26.request/1"
RELATE_SCHEMA = "icml26.relate/1"

Status: TypeAlias = Literal["succeeded", "failed", "refused", "timed-out", "out-of-memory", "killed", "not-applicable"]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run, fully resolved: everything that a worker needs, as JSON values.

    ``config`` and ``dataset_config`` are resolved (all defaults filled in); names are qualified. ``metrics`` are scored in
    this order; those in ``hidden_metrics`` only serve others. ``limits`` may hold ``timeout_seconds`` and ``memory_bytes``.
    """

    record_id: str
    key: str
    task: str
    method: str
    config: dict[str, Any]
    dataset: str
    dataset_config: dict[str, Any]
    seed: int = 0
    role: str = "paper"
    profile: str | None = None
    results_version: int = 1
    revision: str = "1"
    files: dict[str, str] = field(default_factory=dict)
    method_files: dict[str, str] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    hidden_metrics: tuple[str, ...] = ()
    metric_config: dict[str, dict[str, Any]] = field(default_factory=dict)
    device: str = "cpu"
    threads: int = 1
    workers: int = 1
    smoke: bool = False
    save: bool = True
    visualize: bool = True
    limits: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The request document."""
        return {"schema": REQUEST_SCHEMA, **jsonable(_values(self))}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RunRequest:
        """Read a request document; raises StoreError for another schema or missing keys."""
        values = _checked(cls, document, REQUEST_SCHEMA)
        for name in ("metrics", "hidden_metrics"):
            values[name] = tuple(values.get(name, ()))
        for name in ("config", "dataset_config", "metric_config"):
            values[name] = from_jsonable(values.get(name, {}))
        return cls(**values)


@dataclass(slots=True)
class RunRecord:
    """What one run leaves behind, whatever its end. ``metrics`` maps keys to ``{"value", "unit", "direction", …}``.

    ``value`` is None with ``nonfinite`` ("nan", "inf", "-inf") or ``missing`` (a reason) beside it when there is no number.
    """

    id: str
    key: str
    status: Status
    method: dict[str, Any]
    dataset: dict[str, Any]
    task: str
    seed: int
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: str | None = None
    curves: str | None = None
    artifacts: list[str] = field(default_factory=list)
    output: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    error: dict[str, Any] | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, request: RunRequest, status: Status) -> RunRecord:
        """The record of a request before anything is known but its end."""
        return cls(
            id=request.record_id,
            key=request.key,
            status=status,
            method={
                "name": request.method,
                "role": request.role,
                "config": request.config,
                "profile": request.profile,
                "results_version": request.results_version,
                "files": request.method_files,
            },
            dataset={
                "name": request.dataset,
                "config": request.dataset_config,
                "revision": request.revision,
                "files": request.files,
                "fingerprint": None,
            },
            task=request.task,
            seed=request.seed,
        )

    @property
    def succeeded(self) -> bool:
        """Whether the run ended with scores."""
        return self.status == "succeeded"

    def value(self, metric: str) -> float | None:
        """The number of a metric's key (``"mae-c"``, ``"hits.at-10"``), None when it has none; NaN and inf come back."""
        return number_of(self.metrics.get(metric))

    def to_json(self) -> dict[str, Any]:
        """The record document, strict JSON."""
        return {"schema": RECORD_SCHEMA, **jsonable(_values(self))}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RunRecord:
        """Read a record document; raises StoreError for another schema or missing keys."""
        return cls(**_checked(cls, document, RECORD_SCHEMA))

    def write(self, folder: Path) -> Path:
        """Write ``record.json`` durably (temporary name, fsync, rename) into ``folder``; raises UnwrittenRecordError."""
        path = folder / "record.json"
        try:
            write_text_durably(path, document_text(self.to_json()))
        except OSError as error:
            raise UnwrittenRecordError(self, path, error) from error
        return path

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        """Read a ``record.json``; raises StoreError when it is damaged."""
        try:
            document = json.loads(read_text(path))
        except OSError as error:
            raise StoreError(f"{path}: not a readable record ({error.strerror or error})") from error
        except ValueError as error:
            raise StoreError(f"{path}: not a readable record ({error})") from error
        return cls.from_json(document)


class UnwrittenRecordError(StoreError):
    """A run ended but its ``record.json`` could not be written; the record itself is in ``record``."""

    def __init__(self, record: RunRecord, path: Path, error: OSError) -> None:
        super().__init__(f"{path}: the record of a finished run cannot be written ({error.strerror or error})")
        self.record = record


def number_of(entry: Mapping[str, Any] | None) -> float | None:
    """The number of a metric's entry, None when it has none; NaN and inf come back."""
    if entry is None:
        return None
    if "nonfinite" in entry:
        return float(entry["nonfinite"])
    value = entry.get("value")
    return None if value is None else float(value)


def metric_entry(value: float, **facts: Any) -> dict[str, Any]:
    """The record's entry of one metric value; a value that is not finite is tagged."""
    number = jsonable(float(value))
    if isinstance(number, dict):
        return {"value": None, **number, **facts}
    return {"value": number, **facts}


def document_text(document: Mapping[str, Any]) -> str:
    """A document as JSON with a line for each of its members: readable, and ten times faster than ``indent``."""
    members = (f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in document.items())
    return "{\n " + ",\n ".join(members) + "\n}\n"


def write_text_durably(path: Path, text: str) -> None:
    """Write a file so that a crash leaves the old content or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _values(item: RunRequest | RunRecord) -> dict[str, Any]:
    """The fields of a record or request; unlike ``dataclasses.asdict`` without a deep copy, which took most of a no-op run."""
    return {part.name: getattr(item, part.name) for part in fields(item)}


def _checked(cls: type[Any], document: Mapping[str, Any], schema: str) -> dict[str, Any]:
    if not isinstance(document, Mapping) or document.get("schema") != schema:
        found = document.get("schema") if isinstance(document, Mapping) else type(document).__name__
        raise StoreError(f"expected a document of schema {schema}, found {found!r}")
    known = {item.name for item in fields(cls)}
    values = {name: value for name, value in document.items() if name in known}
    try:
        cls(**values)
    except TypeError as error:
        raise StoreError(f"{schema}: {error}") from error
    return values
