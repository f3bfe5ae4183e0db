"""Chat messages with tool calls: OpenAI's, Anthropic's blocks, and AgentDojo's run files, which hold such messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from icml26.errors import InputError

from icml26_plugin_causaltrace.readers.build import TraceBuilder, member, optional_bool, text_of
from icml26_plugin_causaltrace.trace import Label, ToolInfo, Trace

#: Types of a user's content block that hold his own words.
_WORDS = ("text", "input_text")


def add_messages(builder: TraceBuilder, messages: Any) -> None:
    """Feed a list of messages to a builder."""
    if not isinstance(messages, list):
        raise InputError(f"{builder.where}: messages are {type(messages).__name__}, expected a list")
    for number, message in enumerate(messages):
        where = f"{builder.where}, message {number}"
        if not isinstance(message, Mapping):
            raise InputError(f"{where}: is {type(message).__name__}, expected an object")
        role = member(message, "role", str, where)
        content = message.get("content")
        if role in ("system", "developer"):
            builder.system.append(text_of(content, where))
        elif role == "user":
            _user(builder, content, where)
        elif role == "assistant":
            _assistant(builder, message, where)
        elif role in ("tool", "function"):
            _tool(builder, message, where)
        else:
            raise InputError(f"{where}: unknown role {role!r}")


def _user(builder: TraceBuilder, content: Any, where: str) -> None:
    """A user's words; Anthropic also puts tool results under this role, and those are not the user's."""
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        builder.user(text_of(content, where))
        return
    words = []
    attached = []
    for block in content:
        if isinstance(block, Mapping) and block.get("type") == "tool_result":
            builder.result(
                text_of(block.get("content"), where),
                member(block, "tool_use_id", str, where),
                error=bool(block.get("is_error")),
            )
        elif isinstance(block, Mapping) and block.get("type", "text") not in _WORDS:
            attached.append(block)
        else:
            words.append(text_of(block, where))
    builder.user("\n".join(w for w in words if w))
    for block in attached:
        _attachment(builder, block, where)


def _attachment(builder: TraceBuilder, block: Mapping[str, Any], where: str) -> None:
    """What a user hands over was written by others: an untrusted message, not his words. Pictures hold no text."""
    source = block.get("source")
    inner = source.get("data") if isinstance(source, Mapping) and source.get("type") == "text" else None
    text = inner if isinstance(inner, str) else text_of(block, where)
    if text and not str(block.get("type")).startswith(("image", "input_image", "audio", "input_audio")):
        call_id = f"attachment {len(builder.steps)}"
        builder.call("attachment", {}, call_id, kind="message")
        builder.result(text, call_id)


def _assistant(builder: TraceBuilder, message: Mapping[str, Any], where: str) -> None:
    agent = message.get("name") if isinstance(message.get("name"), str) else None
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, Mapping) and block.get("type") == "tool_use":
            builder.call(block.get("name"), block.get("input"), block.get("id"), agent=agent)
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InputError(f"{where}: tool_calls is {type(calls).__name__}, expected a list")
    for call in calls:
        if not isinstance(call, Mapping):
            raise InputError(f"{where}: a tool call is {type(call).__name__}, expected an object")
        function = call.get("function")
        if isinstance(function, Mapping):
            builder.call(function.get("name"), function.get("arguments"), call.get("id"), agent=agent)
        else:
            builder.call(function, call.get("args", call.get("arguments")), call.get("id"), agent=agent)
    if isinstance(legacy := message.get("function_call"), Mapping):
        builder.call(legacy.get("name"), legacy.get("arguments"), agent=agent)


def _tool(builder: TraceBuilder, message: Mapping[str, Any], where: str) -> None:
    error = message.get("error")
    text = text_of(message.get("content"), where)
    if isinstance(error, Mapping):
        error = text_of(error.get("message"), where) or "error"
    builder.result(text or (str(error) if error else ""), message.get("tool_call_id"), error=bool(error))


def read_chat(body: Any, where: str) -> Iterator[tuple[Trace, Label | None]]:
    """A list of messages, or an object with ``messages`` (and ``tools``, ``system``, ``id``)."""
    record = {"messages": body} if isinstance(body, list) else body
    if not isinstance(record, Mapping):
        raise InputError(f"{where}: expected messages, found {type(record).__name__}")
    builder = TraceBuilder(where, str(record.get("id") or where))
    if record.get("system"):
        builder.system.append(text_of(record["system"], where))
    for tool in record.get("tools") or ():
        described = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(described, Mapping) and isinstance(described.get("name"), str):
            hints = described.get("annotations") or tool.get("annotations") or {}
            name = described["name"]
            if not isinstance(hints, Mapping):
                raise InputError(
                    f"{where}: annotations of tool {name!r} are {type(hints).__name__}, expected an object"
                )
            read_only, destructive = (
                optional_bool(hints.get(hint), f"{where}: {hint} of tool {name!r}")
                for hint in ("readOnlyHint", "destructiveHint")
            )
            builder.tools[name] = ToolInfo(str(described.get("description") or ""), read_only, destructive)
    add_messages(builder, member(record, "messages", list, where))
    yield builder.trace(), None


def read_agentdojo(body: Any, where: str, *, keep_errors: bool = False) -> Iterator[tuple[Trace, Label | None]]:
    """One run file. The label is AgentDojo's ``security``, which is True when the injected task was carried out.

    AgentDojo also writes True when nothing was injected; such a run is benign. Runs that ended with an error are left out
    unless ``keep_errors``.
    """
    if not isinstance(body, Mapping):
        raise InputError(f"{where}: expected an AgentDojo run, found {type(body).__name__}")
    if body.get("error") and not keep_errors:
        return
    suite, user = member(body, "suite_name", str, where), member(body, "user_task_id", str, where)
    injection = body.get("injection_task_id")
    parts = (body.get("pipeline_name"), suite, user, body.get("attack_type"), injection)
    builder = TraceBuilder(where, "/".join(str(p) for p in parts if p))
    add_messages(builder, member(body, "messages", list, where))
    if not builder.steps:
        return
    attack = injection is not None and bool(member(body, "security", bool, where))
    kind = "attacked" if attack else "resisted" if injection is not None else "benign"
    yield builder.trace(), Label(attack, kind, f"{suite}/{user}")
