"""Inspect logs, CausalBench sessions and this plugin's own JSON."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from icml26.errors import InputError

from icml26_plugin_causaltrace.readers.build import (
    TraceBuilder,
    forward_edges,
    member,
    optional_bool,
    text_of,
    without_labels,
)
from icml26_plugin_causaltrace.readers.chat import add_messages
from icml26_plugin_causaltrace.trace import MAX_NESTING, Label, Step, ToolInfo, Trace, Turn, check_trace

_ATTACHMENT = re.compile(r"attachment://([0-9a-f]{32})")
#: A ZIP may unpack to a thousand times its size; a log beyond this is refused before it is read.
MAX_UNPACKED = 2 * 1024**3
_EVENTS = ("TASK", "OBSERVATION", "LLM_CALL", "ACTION")
_LEVELS = {"untrusted": 0.1, "low": 0.2, "medium": 0.5, "high": 0.9, "trusted": 0.9}


def read_inspect(body: Any, where: str) -> Iterator[tuple[Trace, Label | None]]:
    """A log as JSON: one trace a sample; ``attachment://`` references are resolved."""
    if not isinstance(body, Mapping):
        raise InputError(f"{where}: expected an Inspect log, found {type(body).__name__}")
    samples = body.get("samples")
    if not samples:
        raise InputError(f"{where}: the log holds no samples (was it read with header_only?)")
    if not isinstance(samples, list):
        raise InputError(f"{where}: samples are {type(samples).__name__}, expected a list")
    for sample in samples:
        name = f"{sample.get('id')}_epoch_{sample.get('epoch', 1)}"
        builder = TraceBuilder(f"{where}, sample {name}", name)
        attachments = sample.get("attachments") or {}
        add_messages(builder, _resolve(member(sample, "messages", list, builder.where), attachments, builder.where))
        if builder.steps:
            yield builder.trace(), None


def _resolve(value: Any, attachments: Mapping[str, str], where: str, depth: int = 0) -> Any:
    """Long texts that stand elsewhere in the log, put back; without one the trace would be judged with a hole in it."""
    if depth > MAX_NESTING:
        raise InputError(f"{where}: a message is nested deeper than {MAX_NESTING} levels")
    if isinstance(value, str) and (match := _ATTACHMENT.fullmatch(value)):
        if match.group(1) not in attachments:
            raise InputError(f"{where}: {value} is not among the sample's attachments; write the log with them")
        return attachments[match.group(1)]
    if isinstance(value, Mapping):
        return {k: _resolve(v, attachments, where, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [_resolve(v, attachments, where, depth + 1) for v in value]
    return value


def read_inspect_file(path: Path) -> Iterator[tuple[Trace, Label | None]]:
    """A binary ``.eval`` log: a ZIP with Zstandard entries, read by Inspect itself."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError) as error:
        raise InputError(f"{path}: is no .eval log: {error}") from None
    if unpacked > MAX_UNPACKED:
        raise InputError(f"{path}: unpacks to {unpacked} bytes, more than {MAX_UNPACKED}; split the log")
    try:
        from inspect_ai.log import read_eval_log
    except ImportError:
        raise InputError(
            f"{path}: .eval logs are Zstandard ZIPs that only Inspect reads: pip install 'icml26-plugin-causaltrace[inspect]', "
            "or convert it: inspect log convert --to json"
        ) from None
    try:
        log = read_eval_log(str(path))
    except Exception as error:  # noqa: BLE001 - whatever the reader raises, the file is what is wrong
        raise InputError(f"{path}: Inspect cannot read this log: {str(error)[:300]}") from None
    yield from read_inspect(log.model_dump(mode="json"), str(path))


def read_native(body: Any, where: str) -> Iterator[tuple[Trace, Label | None]]:
    """One line of this plugin's own format, as ``trace.dumps`` writes it."""
    if not isinstance(body, Mapping):
        raise InputError(f"{where}: expected an object, found {type(body).__name__}")
    steps = []
    for number, raw in enumerate(member(body, "steps", list, where)):
        if not isinstance(raw, Mapping):
            raise InputError(f"{where}, step {number}: is {type(raw).__name__}, expected an object")
        here = f"{where}, step {number}"
        known = {
            k: raw[k]
            for k in ("error", "kind", "trusted", "agent", "domain", "timestamp", "call_id", "result", "parallel")
            if k in raw
        }
        if not isinstance(known.get("result"), str | None):
            raise InputError(f"{here}: result is {type(known['result']).__name__}, expected text or null")
        steps.append(Step(member(raw, "tool", str, here), member(raw, "arguments", Mapping, here), **known))
    turns = tuple(Turn(member(t, "text", str, where), t.get("before", 0)) for t in body.get("turns") or ())
    tools = {
        str(name): ToolInfo(
            str(t.get("description") or ""),
            optional_bool(t.get("read_only"), f"{where}: read_only of tool {name!r}"),
            optional_bool(t.get("destructive"), f"{where}: destructive of tool {name!r}"),
        )
        for name, t in (body.get("tools") or {}).items()
    }
    trace = Trace(turns, tuple(steps), str(body.get("id") or where), str(body.get("system") or ""), tools)
    yield check_trace(trace), _label(body.get("label"), len(steps), where)


def _label(raw: Any, size: int, where: str) -> Label | None:
    if raw is None:
        return None
    if not isinstance(raw, Mapping) or not isinstance(raw.get("attack"), bool):
        raise InputError(f"{where}: label needs a member 'attack' that is true or false")
    edges = forward_edges(
        ((int(i), int(j), str(kind)) for i, j, kind in raw.get("edges") or ()), size, f"{where}, label"
    )
    source, sinks = raw.get("source"), tuple(raw.get("sinks") or ())
    for step in (*sinks, *(() if source is None else (source,))):
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < size:
            raise InputError(f"{where}: label names step {step!r}, but there are {size}")
    return Label(raw["attack"], str(raw.get("kind") or ""), str(raw.get("group") or ""), source, sinks, edges)


def read_causalbench(body: Any, where: str) -> Iterator[tuple[Trace, Label | None]]:
    """Sessions of CausalBench: observations and actions become steps; its flags go to the label only."""
    for number, session in enumerate(body if isinstance(body, list) else [body]):
        here = f"{where}, session {number}"
        events = member(session, "trajectory", list, here)
        plain = without_labels(session)
        steps: list[Step] = []
        places: dict[str, int] = {}
        for raw in plain["trajectory"]:
            kind = member(raw, "event_type", str, here)
            if kind not in _EVENTS:
                raise InputError(f"{here}: unknown event_type {kind!r}")
            if kind in ("OBSERVATION", "ACTION"):
                event = str(raw.get("event_id"))
                if event in places:
                    raise InputError(f"{here}: event_id {event!r} occurs twice")
                places[event] = len(steps)
                steps.append(_event_step(raw, kind, here))
        session_id = str(plain.get("session_id") or here)
        trace = check_trace(Trace((Turn(str(plain.get("task_description") or "")),), tuple(steps), session_id))
        label = _session_label(session, events, places, session_id)
        forward_edges(label.edges, len(steps), f"{here}, causal_graph")
        yield trace, label


def _event_step(raw: Mapping[str, Any], kind: str, where: str) -> Step:
    tool = str(raw.get("endpoint") or raw.get("service") or kind.lower())
    content = text_of(raw.get("content", raw.get("data_produced")), where)
    level = raw.get("trust_level")
    given = float(level) if isinstance(level, int | float) and not isinstance(level, bool) else 0.5
    trust = _LEVELS.get(str(level).lower(), given)
    arguments: dict[str, Any] = {} if kind == "OBSERVATION" else {"data": raw.get("data_consumed") or content}
    return Step(tool, arguments, content, domain=raw.get("service"), trusted=trust >= 0.9)


def _session_label(
    session: Mapping[str, Any], events: list[Mapping[str, Any]], places: dict[str, int], session_id: str
) -> Label:
    def flagged(name: str) -> list[int]:
        return [places[str(e.get("event_id"))] for e in events if e.get(name) and str(e.get("event_id")) in places]

    graph = session.get("causal_graph") or {}
    types = {"DATA_DEPENDENCY": "data", "TRUST_TRANSFER": "trust", "STATE_ENABLEMENT": "state"}
    edges = tuple(
        (places[str(e["source"])], places[str(e["target"])], types.get(str(e.get("type")).upper(), "data"))
        for e in graph.get("edges") or ()
        if str(e.get("source")) in places and str(e.get("target")) in places
    )
    sources = flagged("is_injection_source")
    return Label(
        bool(session.get("is_attack")),
        str(session.get("attack_type") or ""),
        session_id,
        sources[0] if sources else None,
        tuple(flagged("is_sensitive_sink")),
        edges,
    )
