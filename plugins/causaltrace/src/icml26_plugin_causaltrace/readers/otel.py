"""OpenTelemetry GenAI spans: OTLP JSON (``resourceSpans``), flat JSON lines, the SDK's own JSON, OpenInference names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from icml26.errors import InputError

from icml26_plugin_causaltrace.readers.build import TraceBuilder, text_of
from icml26_plugin_causaltrace.trace import Label, Trace

_SCALARS = ("stringValue", "boolValue", "intValue", "doubleValue", "bytesValue")


def attribute_value(value: Any) -> Any:
    """A plain value of an OTLP ``AnyValue``."""
    if not isinstance(value, Mapping):
        return value
    for key in _SCALARS:
        if key in value:
            return int(value[key]) if key == "intValue" else value[key]
    if "arrayValue" in value:
        return [attribute_value(v) for v in value["arrayValue"].get("values", [])]
    if "kvlistValue" in value:
        return {item["key"]: attribute_value(item.get("value")) for item in value["kvlistValue"].get("values", [])}
    return dict(value)


def attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    """A span's attributes, from a list of pairs or a mapping."""
    raw = span.get("attributes") or {}
    if isinstance(raw, Mapping):
        return {k: attribute_value(v) for k, v in raw.items()}
    return {
        item["key"]: attribute_value(item.get("value")) for item in raw if isinstance(item, Mapping) and "key" in item
    }


def spans_of(body: Any) -> Iterator[Mapping[str, Any]]:
    """All spans of an export, a list of exports or spans, or one span."""
    if isinstance(body, list):
        for item in body:
            yield from spans_of(item)
    elif isinstance(body, Mapping):
        if groups := body.get("resourceSpans") or body.get("resource_spans"):
            for group in groups:
                for scope in group.get("scopeSpans") or group.get("scope_spans") or ():
                    yield from scope.get("spans", ())
        elif "attributes" in body:
            yield body


def read_otel(body: Any, where: str) -> Iterator[tuple[Trace, Label | None]]:
    """One trace for each trace id, spans by start time and span id."""
    sessions: dict[str, list[Mapping[str, Any]]] = {}
    for span in spans_of(body):
        sessions.setdefault(_id(span, "traceId", "trace_id"), []).append(span)
    if not sessions:
        raise InputError(f"{where}: holds no spans")
    for trace_id, spans in sessions.items():
        built = _session(spans, f"{where}, trace {trace_id or '?'}", trace_id)
        if built is not None:
            yield built, None


def _session(spans: list[Mapping[str, Any]], where: str, trace_id: str) -> Trace | None:
    spans = sorted(spans, key=lambda s: (_start(s, where), _id(s, "spanId", "span_id")))
    names = {_id(s, "spanId", "span_id"): attributes(s) for s in spans}
    builder = TraceBuilder(where, trace_id)
    tool_spans = [s for s in spans if _operation(attributes(s)) == "execute_tool"]
    contents = [s for s in tool_spans if "gen_ai.tool.call.result" in attributes(s) or "output.value" in attributes(s)]
    use_spans = bool(tool_spans) and len(contents) == len(tool_spans)
    seen: set[str] = set()
    for span in spans:
        found = attributes(span)
        operation = _operation(found)
        if operation == "chat":
            for message in _messages(span, found, where):
                _message(builder, message, seen, tools=not use_spans, where=where)
        elif operation == "execute_tool" and use_spans:
            _tool_span(builder, span, found, names, where)
    return builder.trace() if builder.steps else None


def _operation(found: Mapping[str, Any]) -> str | None:
    if name := found.get("gen_ai.operation.name"):
        return str(name)
    kind = str(found.get("openinference.span.kind") or "").upper()
    return {"TOOL": "execute_tool", "LLM": "chat", "AGENT": "invoke_agent"}.get(kind)


def _tool_span(
    builder: TraceBuilder,
    span: Mapping[str, Any],
    found: Mapping[str, Any],
    names: Mapping[str, Mapping[str, Any]],
    where: str,
) -> None:
    parent = names.get(_id(span, "parentSpanId", "parent_id"), {})
    agent = found.get("gen_ai.agent.name") or parent.get("gen_ai.agent.name")
    call_id = found.get("gen_ai.tool.call.id")
    tool = found.get("gen_ai.tool.name") or found.get("tool.name") or span.get("name")
    builder.call(
        tool,
        found.get("gen_ai.tool.call.arguments", found.get("input.value")),
        call_id,
        agent=agent,
        timestamp=_start(span, where),
    )
    status = span.get("status") or {}
    code = status.get("code", status.get("status_code"))
    failed = "error.type" in found or code in (2, "STATUS_CODE_ERROR", "ERROR")
    builder.result(
        _plain(found.get("gen_ai.tool.call.result", found.get("output.value")), where), call_id, error=failed
    )


def _messages(span: Mapping[str, Any], found: Mapping[str, Any], where: str) -> Iterator[Mapping[str, Any]]:
    """Messages of a chat span: attributes, else the events of older emitters."""
    known = False
    for key in ("gen_ai.system_instructions", "gen_ai.input.messages", "gen_ai.output.messages"):
        if key not in found:
            continue
        known = True
        value = found[key]
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError as error:
                raise InputError(f"{where}: attribute {key} is no JSON: {error}") from None
        if key == "gen_ai.system_instructions":
            yield {"role": "system", "parts": value}
        else:
            yield from (m for m in value if isinstance(m, Mapping))
    for event in () if known else span.get("events") or ():
        body = attributes(event)
        role = str(event.get("name", "")).removeprefix("gen_ai.").removesuffix(".message")
        if role in ("user", "system", "assistant", "tool"):
            part = {"type": "text", "content": body.get("content", "")}
            if role == "tool":
                part = {"type": "tool_call_response", "id": body.get("id"), "response": body.get("content", "")}
            yield {"role": role, "parts": [part]}


def _message(builder: TraceBuilder, message: Mapping[str, Any], seen: set[str], *, tools: bool, where: str) -> None:
    """Every chat span repeats the conversation so far; a message counts once."""
    key = json.dumps([message.get("role"), message.get("parts")], sort_keys=True, default=str)
    if key in seen:
        return
    seen.add(key)
    role = message.get("role")
    for part in message.get("parts") or ():
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "tool_call" and tools:
            builder.call(part.get("name"), part.get("arguments"), part.get("id"))
        elif kind == "tool_call_response" and tools:
            builder.result(_plain(part.get("response", part.get("result")), where), part.get("id"))
        elif kind == "text" and role == "user":
            builder.user(text_of(part.get("content"), where))
        elif kind == "text" and role == "system":
            builder.system.append(text_of(part.get("content"), where))


def _plain(value: Any, where: str) -> str:
    """A tool's result as text; a JSON string literal is unwrapped."""
    if isinstance(value, str):
        if value[:1] == '"':
            try:
                inner = json.loads(value)
            except ValueError:
                return value
            return inner if isinstance(inner, str) else value
        return value
    return text_of(value, where)


def _id(span: Mapping[str, Any], *keys: str) -> str:
    context = span.get("context") if isinstance(span.get("context"), Mapping) else {}
    for key in keys:
        for place in (span, context):
            if isinstance(place, Mapping) and place.get(key):
                return str(place[key])
    return ""


def _start(span: Mapping[str, Any], where: str) -> float:
    raw = span.get("startTimeUnixNano", span.get("start_time_unix_nano", span.get("start_time")))
    try:
        if raw is None:
            return 0.0
        if isinstance(raw, str) and not raw.strip().isdigit():
            return datetime.fromisoformat(raw.replace("Z", "+00:00")).timestamp()
        seconds = float(raw) / 1e9
    except (TypeError, ValueError):
        raise InputError(f"{where}: start time {raw!r} of span {_id(span, 'spanId')!r} cannot be read") from None
    if not math.isfinite(seconds):
        raise InputError(f"{where}: start time {raw!r} is not a number")
    return seconds
