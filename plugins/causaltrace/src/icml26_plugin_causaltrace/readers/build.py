"""From messages in order to a trace; shared by the readers, which only know their format."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from icml26.errors import InputError

from icml26_plugin_causaltrace.trace import MAX_NESTING, Step, StepKind, ToolInfo, Trace, Turn, check_trace

#: Keys that say what a detector has to find out; they are dropped wherever they stand in a record.
LABEL_KEYS = frozenset(
    {"is_attack", "is_injection_source", "is_sensitive_sink", "injection_present", "attack_type", "injections", "label"}
)


class TraceBuilder:
    """Collects messages of one session. ``where`` names the file and record in errors."""

    def __init__(self, where: str, trace_id: str = "") -> None:
        self.where = where
        self.id = trace_id or where
        self.system: list[str] = []
        self.turns: list[Turn] = []
        self.steps: list[dict[str, Any]] = []
        self.tools: dict[str, ToolInfo] = {}
        self._open: dict[str, int] = {}
        self._unnamed: list[int] = []

    def user(self, text: str) -> None:
        """Trusted words of the user."""
        if text.strip():
            self.turns.append(Turn(text, len(self.steps)))

    def call(
        self,
        tool: Any,
        arguments: Any,
        call_id: Any = None,
        *,
        agent: str | None = None,
        timestamp: float | None = None,
        kind: StepKind = "tool",
    ) -> None:
        """A tool call; its arguments may be a mapping or a JSON string."""
        if not isinstance(tool, str) or not tool:
            raise InputError(f"{self.where}: tool call {len(self.steps)} has no name (found {tool!r})")
        number = len(self.steps)
        call_id = self._key(call_id)
        if call_id is not None:
            if call_id in self._open:
                raise InputError(f"{self.where}: call id {call_id!r} occurs twice (tool call {number}, {tool})")
            self._open[call_id] = number
        else:
            self._unnamed.append(number)
        self.steps.append(
            {
                "tool": tool,
                "arguments": self.arguments(arguments, tool),
                "call_id": call_id,
                "agent": agent,
                "timestamp": timestamp,
                "kind": kind,
                "parallel": self._waits(number),
            }
        )

    def _waits(self, number: int) -> bool:
        """Whether the step before has no result yet, and nobody spoke in between: both calls were made in one breath."""
        spoken = bool(self.turns) and self.turns[-1].before == number
        return number > 0 and not spoken and "result" not in self.steps[-1]

    def _key(self, call_id: Any) -> str | None:
        """An id as text; some producers write an empty one where there is none, or a number."""
        if call_id is None or call_id == "":
            return None
        if isinstance(call_id, bool) or not isinstance(call_id, str | int):
            raise InputError(f"{self.where}: a call id is {type(call_id).__name__}, expected text")
        return str(call_id)

    def arguments(self, raw: Any, tool: str) -> dict[str, Any]:
        """Arguments as a mapping; text that is no JSON object is kept whole, with a warning."""
        if raw is None or raw == "":
            return {}
        if isinstance(raw, Mapping):
            return dict(raw)
        if isinstance(raw, str):
            try:
                value = json.loads(raw)
            except (ValueError, RecursionError):
                warnings.warn(f"{self.where}: arguments of {tool} are no JSON; kept as text", stacklevel=2)
                return {"text": raw}
            return value if isinstance(value, dict) else {"value": value}
        raise InputError(f"{self.where}: arguments of {tool} are {type(raw).__name__}, expected an object or JSON text")

    def result(self, text: str, call_id: Any = None, *, error: bool = False) -> None:
        """The text that a call brought; without an id that of the oldest call without one that waits."""
        call_id = self._key(call_id)
        if call_id is not None and call_id in self._open:
            number = self._open[call_id]
        elif call_id is None and self._unnamed:
            number = self._unnamed.pop(0)
        else:
            raise InputError(f"{self.where}: a tool result (call id {call_id!r}) has no call before it")
        if "result" in self.steps[number]:
            raise InputError(f"{self.where}: call id {call_id!r} has two results")
        self.steps[number].update(result=text, error=error)

    def trace(self) -> Trace:
        """The finished trace; InputError when it has no steps."""
        steps = tuple(Step(**step) for step in self.steps)
        return check_trace(Trace(tuple(self.turns), steps, self.id, "\n".join(self.system), dict(self.tools)))


def text_of(content: Any, where: str, depth: int = 0) -> str:
    """Text of a message's content: a string, null, or a list of blocks with ``text`` or (AgentDojo) ``content``."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if depth > MAX_NESTING:
        raise InputError(f"{where}: content is nested deeper than {MAX_NESTING} levels")
    if isinstance(content, list):
        return "\n".join(part for item in content if (part := text_of(item, where, depth + 1)))
    if isinstance(content, Mapping):
        for key in ("text", "content"):
            if content.get(key) is not None:
                return text_of(content[key], where, depth + 1)
        return "" if content.get("type") in ("tool_use", "image", "image_url", "reasoning") else json.dumps(content)
    return json.dumps(content)


def optional_bool(value: Any, where: str) -> bool | None:
    """True, false or None; InputError for the text "false" and the like, which would count as true."""
    if value is not None and not isinstance(value, bool):
        raise InputError(f"{where}: is {value!r}, expected true, false or null")
    return value


def forward_edges(edges: Iterable[tuple[int, int, str]], size: int, where: str) -> tuple[tuple[int, int, str], ...]:
    """Known edges between steps; InputError when one does not go forward in time among ``size`` steps (a cycle)."""
    known = tuple(edges)
    for source, target, _ in known:
        if not 0 <= source < target < size:
            raise InputError(
                f"{where}: edge {source} -> {target} does not go forward among the {size} steps (a cycle?); "
                "a cause stands before its effect"
            )
    return known


def member(body: Mapping[str, Any], key: str, kind: type | tuple[type, ...], where: str) -> Any:
    """A member of a record that must be there with a type."""
    if key not in body:
        raise InputError(f"{where}: field {key!r} is missing")
    if not isinstance(body[key], kind):
        raise InputError(f"{where}: field {key!r} is {type(body[key]).__name__}")
    return body[key]


def without_labels(value: Any, depth: int = 0) -> Any:
    """A copy without label-like keys, at any depth."""
    if depth > MAX_NESTING:
        raise InputError(f"a record is nested deeper than {MAX_NESTING} levels")
    if isinstance(value, Mapping):
        return {k: without_labels(v, depth + 1) for k, v in value.items() if k not in LABEL_KEYS}
    if isinstance(value, list):
        return [without_labels(v, depth + 1) for v in value]
    return value
