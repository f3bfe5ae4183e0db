"""Files and folders to traces, one at a time; the format is recognised by its fields or given."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icml26.errors import InputError

from icml26_plugin_causaltrace.readers.chat import read_agentdojo, read_chat
from icml26_plugin_causaltrace.readers.otel import read_otel
from icml26_plugin_causaltrace.readers.other import read_causalbench, read_inspect, read_inspect_file, read_native
from icml26_plugin_causaltrace.trace import Label, Trace

Reader = Callable[[Any, str], Iterator[tuple[Trace, Label | None]]]
FORMATS: dict[str, Reader] = {
    "icml26": read_native,
    "agentdojo": read_agentdojo,
    "openai": read_chat,
    "otel": read_otel,
    "inspect": read_inspect,
    "causalbench": read_causalbench,
}
#: A file beyond this is refused; JSON lines are read line by line, so that only a single record counts.
MAX_BYTES = 512 * 1024 * 1024
SUFFIXES = (".json", ".jsonl", ".eval")


@dataclass(frozen=True, slots=True)
class Record:
    """A trace with what its file says of it; ``path`` is where it came from."""

    trace: Trace
    label: Label | None
    path: Path


def detect_format(body: Any, where: str) -> str:
    """The format of a parsed record, by the fields that only it has; InputError when none fits."""
    first = body[0] if isinstance(body, list) and body else body
    if isinstance(first, Mapping):
        keys = set(first)
        if first.get("schema") == "icml26.trace/1" or {"turns", "steps"} <= keys:
            return "icml26"
        if {"suite_name", "user_task_id", "messages"} <= keys:
            return "agentdojo"
        if {"eval", "samples"} <= keys or {"eval", "plan"} <= keys:
            return "inspect"
        if "trajectory" in keys:
            return "causalbench"
        if keys & {"resourceSpans", "resource_spans"} or (
            "attributes" in keys and keys & {"traceId", "trace_id", "context"}
        ):
            return "otel"
        if "messages" in keys or "role" in keys:
            return "openai"
    raise InputError(f"{where}: the format is not recognised; say which it is: format = one of {', '.join(FORMATS)}")


def iter_traces(path: str | Path, format: str | None = None) -> Iterator[Record]:
    """Traces of a file, or of all ``.json``, ``.jsonl`` and ``.eval`` files below a folder, in order of their names."""
    if format is not None and format not in FORMATS:
        raise InputError(f"format {format!r} is unknown; known are {', '.join(FORMATS)}")
    given = Path(path)
    if not given.exists():
        raise InputError(f"{given} does not exist")
    files = sorted(p for p in given.rglob("*") if p.suffix in SUFFIXES and p.is_file()) if given.is_dir() else [given]
    if not files:
        raise InputError(f"{given} holds no {', '.join(SUFFIXES)} files")
    for file in files:
        yield from _file(file, format)


def read_traces(path: str | Path, format: str | None = None) -> list[Record]:
    """All traces of a file or folder; InputError when there is none."""
    records = list(iter_traces(path, format))
    if not records:
        raise InputError(f"{path} holds no trace with a tool call")
    return records


def _file(path: Path, format: str | None) -> Iterator[Record]:
    if path.suffix == ".eval":
        for trace, label in read_inspect_file(path):
            yield Record(trace, label, path)
        return
    if path.suffix == ".jsonl":
        yield from _lines(path, format)
        return
    if path.stat().st_size > MAX_BYTES:
        raise InputError(
            f"{path} is larger than {MAX_BYTES // 1024**2} MiB; split it or write one record a line (.jsonl)"
        )
    body = _parse(_text(path), str(path))
    yield from _read(body, str(path), format, path)


def _lines(path: Path, format: str | None) -> Iterator[Record]:
    """One record a line; lines that are spans or messages belong together."""
    together: list[Any] = []
    kind = format
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                where = f"{path}, line {number}"
                body = _parse(line, where)
                kind = kind or detect_format(body, where)
                if kind == "otel" or (kind == "openai" and isinstance(body, Mapping) and "role" in body):
                    together.append(body)
                else:
                    yield from _read(body, where, kind, path)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: {error}") from None
    if together:
        yield from _read(together, str(path), kind, path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: {error}") from None


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise InputError(f"{where}: is nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{where}: is no JSON, or cut off: {error}") from None


def _read(body: Any, where: str, format: str | None, path: Path) -> Iterator[Record]:
    reader = FORMATS[format or detect_format(body, where)]
    try:
        for trace, label in reader(body, where):
            yield Record(trace, label, path)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where}: a field has another shape than the format says: {error!r}") from error
