"""OpenTelemetry GenAI spans: OTLP JSON (``resourceSpans``), flat JSON lines, the SDK's own JSON, OpenInference names."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from icml26.errors import InputError

from icml26_plugin_causaltrace.readers.build import TraceBuilder, text_of
from icml26_plugin_causaltrace.trace import MAX_NESTING, Label, Trace

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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


def spans_of(body: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """All spans of an export, a list of exports or spans, or one span."""
    if isinstance(body, list) and depth < MAX_NESTING:
        for item in body:
            yield from spans_of(item, depth + 1)
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


def _in_order(spans: list[Mapping[str, Any]], where: str) -> list[Mapping[str, Any]]:
    """Spans by start time, then span id; as they stand when none has a time. One that was exported twice counts once."""
    once: dict[str, Mapping[str, Any]] = {}
    for number, span in enumerate(spans):
        name = _id(span, "spanId", "span_id") or f"#{number}"
        if once.setdefault(name, span) != span:
            raise InputError(f"{where}: span id {name!r} occurs twice, with other content")
    kept = list(once.values())
    starts = [_nanoseconds(span, where) for span in kept]
    if all(start is None for start in starts):
        return kept
    for span, start in zip(kept, starts, strict=True):
        if start is None:
            raise InputError(
                f"{where}: span {_id(span, 'spanId', 'span_id')!r} has no start time, others have: no order"
            )
    return [
        span for _, _, span in sorted(zip(starts, once, kept, strict=True), key=lambda item: (item[0] or 0, item[1]))
    ]


def _session(spans: list[Mapping[str, Any]], where: str, trace_id: str) -> Trace | None:
    spans = _in_order(spans, where)
    names = {_id(s, "spanId", "span_id"): attributes(s) for s in spans}
    builder = TraceBuilder(where, trace_id)
    tool_spans = [s for s in spans if _operation(attributes(s)) == "execute_tool"]
    # A call that failed has an error instead of a result.
    contents = [s for s in tool_spans if _has_result(attributes(s)) or _failed(s, attributes(s))]
    told = any(
        _tells_calls(m)
        for s in spans
        if _operation(attributes(s)) == "chat"
        for m in _messages(s, attributes(s), where)
    )
    # Spans without content still say which calls were made, when no message does.
    use_spans = bool(tool_spans) and (len(contents) == len(tool_spans) or not told)
    if use_spans and len(contents) < len(tool_spans):
        _warn_of_holes(len(contents), len(tool_spans), where)
    seen: Counter[str] = Counter()
    for span in spans:
        found = attributes(span)
        operation = _operation(found)
        if operation == "chat":
            here: Counter[str] = Counter()
            for message in _messages(span, found, where):
                _message(builder, message, seen, here, tools=not use_spans, where=where)
        elif operation == "execute_tool" and use_spans:
            _tool_span(builder, span, found, names, where)
    return builder.trace() if builder.steps else None


def _has_result(found: Mapping[str, Any]) -> bool:
    return "gen_ai.tool.call.result" in found or "output.value" in found


def _failed(span: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    status = span.get("status") or {}
    return "error.type" in found or status.get("code", status.get("status_code")) in (2, "STATUS_CODE_ERROR", "ERROR")


def _warn_of_holes(known: int, total: int, where: str) -> None:
    """Results that were not recorded can hold the text that caused a call: say so, and judge nothing from nothing."""
    hint = "record contents (OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true)"
    if not known:
        raise InputError(f"{where}: none of the {total} tool spans holds a result: there is no text to judge; {hint}")
    warnings.warn(
        f"{where}: {total - known} of {total} tool spans hold no result: an attack may be missed; {hint}", stacklevel=2
    )


def _tells_calls(message: Mapping[str, Any]) -> bool:
    return any(isinstance(p, Mapping) and p.get("type") == "tool_call" for p in message.get("parts") or ())


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
        timestamp=None if (start := _nanoseconds(span, where)) is None else start / 1e9,
    )
    builder.result(
        _plain(found.get("gen_ai.tool.call.result", found.get("output.value")), where),
        call_id,
        error=_failed(span, found),
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
        if role == "tool":
            part = {"type": "tool_call_response", "id": body.get("id"), "response": body.get("content", "")}
            yield {"role": role, "parts": [part]}
        elif role in ("user", "system"):
            yield {"role": role, "parts": [{"type": "text", "content": body.get("content", "")}]}
        elif role in ("assistant", "choice", "gen_ai.choice"):
            yield {"role": "assistant", "parts": list(_event_calls(body))}


def _event_calls(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Tool calls of an assistant's event; older emitters put them as JSON text into it or into its ``message``."""
    message = _parsed(body.get("message"))
    inner = message if isinstance(message, Mapping) else body
    calls = _parsed(inner.get("tool_calls"))
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield {
                "type": "tool_call",
                "id": call.get("id"),
                "name": function.get("name"),
                "arguments": function.get("arguments"),
            }


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None


def _message(
    builder: TraceBuilder,
    message: Mapping[str, Any],
    seen: Counter[str],
    here: Counter[str],
    *,
    tools: bool,
    where: str,
) -> None:
    """Every chat span repeats the conversation so far (``here``); a message counts as often as one span holds it."""
    key = json.dumps([message.get("role"), message.get("parts")], sort_keys=True, default=str)
    here[key] += 1
    if here[key] <= seen[key]:
        return
    seen[key] = here[key]
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


def _nanoseconds(span: Mapping[str, Any], where: str) -> int | None:
    """A span's start; whole nanoseconds, since a float cannot tell two calls of the same 256 ns apart."""
    raw = span.get("startTimeUnixNano", span.get("start_time_unix_nano", span.get("start_time")))
    if raw is None:
        return None
    try:
        if isinstance(raw, str) and not raw.strip().isdigit():
            moment = datetime.fromisoformat(raw.replace("Z", "+00:00"))
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
        return int(raw)
    except (TypeError, ValueError, OverflowError):
        shown = str(raw)[:60] if isinstance(raw, str | float) else type(raw).__name__
        raise InputError(
            f"{where}: start time {shown!r} of span {_id(span, 'spanId', 'span_id')!r} cannot be read"
        ) from None
