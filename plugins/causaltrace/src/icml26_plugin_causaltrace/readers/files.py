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
#: A byte order mark, as editors on Windows write it, is no part of the text.
ENCODING = "utf-8-sig"
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
    try:
        missing = not given.exists()
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)[:200]!r} cannot be the path of a file: {error}") from None
    if missing:
        raise InputError(f"{given} does not exist")
    if not given.is_dir() and not given.is_file():
        raise InputError(f"{given} is a pipe, socket or device; write what it gives to a file first")
    files = sorted(p for p in given.rglob("*") if p.suffix in SUFFIXES and p.is_file()) if given.is_dir() else [given]
    if not files:
        raise InputError(f"{given} holds no {', '.join(SUFFIXES)} files")
    for file in files:
        try:
            yield from _file(file, format)
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror or error}") from None


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
    size = 0
    try:
        with path.open(encoding=ENCODING) as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_BYTES + 1), ""), start=1):
                where = f"{path}, line {number}"
                if len(line) > MAX_BYTES:
                    raise InputError(f"{where}: is longer than {MAX_BYTES} characters; split it")
                if not line.strip():
                    continue
                body = _parse(line, where)
                kind = kind or detect_format(body, where)
                if kind == "otel" or (kind == "openai" and isinstance(body, Mapping) and "role" in body):
                    together.append(body)
                    size += len(line)
                    if size > MAX_BYTES:
                        raise InputError(f"{where}: one session holds more than {MAX_BYTES} characters; split the file")
                else:
                    yield from _read(body, where, kind, path)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: {error}") from None
    if together:
        yield from _read(together, str(path), kind, path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding=ENCODING)
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
    kind = format or detect_format(body, where)
    reader = FORMATS[kind]
    try:
        for place, item in _items(body, kind, where):
            for trace, label in reader(item, place):
                yield Record(trace, label, path)
    except RecursionError:
        raise InputError(f"{where}: is nested too deeply") from None
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: a field has another shape than the format says: {error!r}") from error


def _items(body: Any, kind: str, where: str) -> Iterator[tuple[str, Any]]:
    """The records of an array of records; the formats whose record is itself an array stay whole."""
    several = isinstance(body, list) and (
        kind in ("icml26", "agentdojo", "inspect")
        or (kind == "openai" and bool(body) and isinstance(body[0], Mapping) and "messages" in body[0])
    )
    if not several:
        yield where, body
        return
    for number, item in enumerate(body):
        yield f"{where}, record {number}", item
