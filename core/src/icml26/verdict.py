"""The record of a run whose process could not write it: what is known from outside, and why it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icml26.errors import StoreError
from icml26.records import RELATE_SCHEMA, RunRecord, RunRequest, Status, document_text, write_text_durably

_LOG_TAIL = 4000
#: The error type of a run that its coordinator ended.
CANCELLED = "Cancelled"


@dataclass(slots=True)
class Verdict:
    """Why a run ended without leaving its own record."""

    status: Status
    type: str
    message: str
    signal: str | None = None
    seconds: float = 0.0
    started: str = ""

    def error(self, tail: str | None = None) -> dict[str, Any]:
        """The record's ``error``; ``traceback`` holds the end of the log, where crashes leave their traces."""
        return {"type": self.type, "message": self.message, "traceback": tail, "signal": self.signal}

    def record(self, request: RunRequest, folder: Path | None = None, peak: int | None = None) -> RunRecord:
        """The run's record, with what lies in its folder."""
        from icml26.provenance import provenance

        origin = provenance([], threads=request.threads, workers=request.workers)
        there = {name: folder is not None and (folder / name).exists() for name in ("log.txt", "curves.jsonl")}
        record = RunRecord.of(request, self.status)
        record.log = "log.txt" if there["log.txt"] else None
        record.curves = "curves.jsonl" if there["curves.jsonl"] else None
        record.seconds = {"total": round(self.seconds, 6)}
        record.peak_memory_bytes = peak
        record.error = self.error(_tail(folder / "log.txt") if folder is not None and there["log.txt"] else None)
        record.provenance = {**origin, "started": self.started.replace("+00:00", "Z") or origin["started"]}
        return record


def is_relation(request: Mapping[str, Any]) -> bool:
    """Whether a request asks for a relative metric, not for a run."""
    return request.get("schema") == RELATE_SCHEMA


def answer_path(request: Mapping[str, Any], folder: Path) -> Path:
    """Where the answer to a request lies."""
    return folder / ("related.json" if is_relation(request) else "record.json")


def read_answer(request: Mapping[str, Any], folder: Path) -> RunRecord | dict[str, Any] | None:
    """The whole and readable answer to just this request, None when there is none."""
    path = answer_path(request, folder)
    try:
        if is_relation(request):
            document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return document if document.get("id") == request.get("record_id") else None
        record = RunRecord.read(path)
    except (OSError, ValueError, StoreError):
        return None
    return record if record.id == request.get("record_id") and record.key == request.get("key") else None


def leave_record(
    request: Mapping[str, Any], folder: Path, verdict: Verdict | None, *, peak: int | None, overrule: bool = False
) -> None:
    """Make sure that the answer lies in ``folder``: the worker's own, else the verdict's.

    ``peak`` raises the recorded peak when the process tree held more than the worker alone; with ``overrule`` the verdict
    replaces the worker's own record. Raises OSError when it cannot be written.
    """
    own = None if overrule else read_answer(request, folder)
    if isinstance(own, RunRecord):
        if peak is not None and peak > 1.05 * (own.peak_memory_bytes or 0):
            own.peak_memory_bytes = peak
            write_text_durably(answer_path(request, folder), document_text(own.to_json()))
        return
    if own is not None or verdict is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    if is_relation(request):
        document = {
            "schema": "icml26.related/1",
            "id": request.get("record_id"),
            "metrics": None,
            "error": verdict.error(),
        }
        write_text_durably(answer_path(request, folder), json.dumps(document, allow_nan=False) + "\n")
        return
    record = verdict.record(RunRequest.from_json(request), folder, peak)
    write_text_durably(answer_path(request, folder), document_text(record.to_json()))


def _tail(log: Path) -> str | None:
    """The last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LOG_TAIL))
            return file.read().decode("utf-8", "replace").strip() or None
    except OSError:
        return None
