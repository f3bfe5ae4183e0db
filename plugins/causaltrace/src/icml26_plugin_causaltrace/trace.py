"""What a detector sees of an agent: trusted user turns and ordered steps. Standard library only; labels have no place in it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from icml26.errors import InputError

StepKind: TypeAlias = Literal["tool", "delegation", "message"]

#: A trace beyond these is refused before any work: its cost would not be bounded otherwise.
MAX_STEPS = 200_000
MAX_TEXT = 20_000_000
MAX_NESTING = 64


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """What is known of a tool: its description, and the MCP hints ``readOnlyHint`` and ``destructiveHint`` when given."""

    description: str = ""
    read_only: bool | None = None
    destructive: bool | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One action of an agent and the text that came back.

    ``kind``: ``tool`` (a tool call), ``delegation`` (a task handed to another agent: its arguments are what that agent
    reads), ``message`` (text from another agent or a person who is not the user). ``result`` is None while it is pending.
    ``error`` marks a failed call; ``trusted`` a result from a source that nobody else can write to.
    """

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: str | None = None
    error: bool = False
    kind: StepKind = "tool"
    trusted: bool = False
    agent: str | None = None
    domain: str | None = None
    timestamp: float | None = None
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """Trusted text of the user, known from step ``before`` on."""

    text: str
    before: int = 0


@dataclass(frozen=True)
class Trace:
    """A trajectory: what the user said, what the agent did, in order. Equality and analysis never depend on ``id``."""

    turns: tuple[Turn, ...]
    steps: tuple[Step, ...]
    id: str = ""
    system: str = ""
    tools: Mapping[str, ToolInfo] = field(default_factory=dict)

    def task_text(self, step: int | None = None) -> str:
        """The user's words known at ``step`` (all of them for None)."""
        return "\n".join(turn.text for turn in self.turns if step is None or turn.before <= step)


@dataclass(frozen=True, slots=True)
class Label:
    """What is known about a trace, for scoring only.

    ``edges`` are ``(source step, target step, "trust" | "data")``; ``source`` the step whose result holds the injected
    text, ``sinks`` the harmful calls, ``kind`` a class such as ``A`` or ``B1``, ``group`` the unit of a split (user task).
    """

    attack: bool
    kind: str = ""
    group: str = ""
    source: int | None = None
    sinks: tuple[int, ...] = ()
    edges: tuple[tuple[int, int, str], ...] = ()


def check_trace(trace: Trace) -> Trace:
    """The trace itself; InputError when it cannot be judged: no steps, duplicate call ids, NaN times, nothing bounded."""
    where = f"trace {trace.id!r}"
    if not trace.steps:
        raise InputError(f"{where} has no steps: there is nothing to judge")
    if len(trace.steps) > MAX_STEPS:
        raise InputError(f"{where} has {len(trace.steps)} steps, more than {MAX_STEPS}; split it into sessions")
    seen: set[str] = set()
    size = 0
    for number, step in enumerate(trace.steps):
        if step.timestamp is not None and not math.isfinite(step.timestamp):
            raise InputError(
                f"{where}, step {number}: timestamp {step.timestamp} is not a number; use null when unknown"
            )
        if step.call_id is not None:
            if step.call_id in seen:
                raise InputError(f"{where}, step {number}: call id {step.call_id!r} occurs twice")
            seen.add(step.call_id)
        size += len(step.result or "")
        if size > MAX_TEXT:
            raise InputError(f"{where}: results hold more than {MAX_TEXT} characters up to step {number}; shorten them")
    return trace


def flatten(value: Any, depth: int = 0) -> Iterable[str]:
    """The scalar values of nested arguments as text, in order; true, false and null carry no content and are left out."""
    if depth > MAX_NESTING:
        raise InputError(f"arguments are nested deeper than {MAX_NESTING} levels")
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from flatten(value[key], depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from flatten(item, depth + 1)
    else:
        yield str(value)


def trace_to_json(trace: Trace, label: Label | None = None) -> dict[str, Any]:
    """The plain form of a trace, one line of a JSONL file of format ``icml26``; the label stands under a key of its own."""
    steps = []
    for step in trace.steps:
        entry: dict[str, Any] = {"tool": step.tool, "arguments": dict(step.arguments), "result": step.result}
        for name, default in (("error", False), ("kind", "tool"), ("trusted", False)):
            if getattr(step, name) != default:
                entry[name] = getattr(step, name)
        for name in ("agent", "domain", "timestamp", "call_id"):
            if getattr(step, name) is not None:
                entry[name] = getattr(step, name)
        steps.append(entry)
    body: dict[str, Any] = {
        "schema": "icml26.trace/1",
        "id": trace.id,
        "turns": [{"text": t.text, "before": t.before} for t in trace.turns],
        "steps": steps,
    }
    if trace.system:
        body["system"] = trace.system
    if trace.tools:
        body["tools"] = {
            name: {
                k: v
                for k, v in (("description", t.description), ("read_only", t.read_only), ("destructive", t.destructive))
                if v not in (None, "")
            }
            for name, t in sorted(trace.tools.items())
        }
    if label is not None:
        body["label"] = {
            "attack": label.attack,
            "kind": label.kind,
            "group": label.group,
            "source": label.source,
            "sinks": list(label.sinks),
            "edges": [list(edge) for edge in label.edges],
        }
    return body


def dumps(trace: Trace, label: Label | None = None) -> str:
    """One JSONL line."""
    return json.dumps(trace_to_json(trace, label), ensure_ascii=False, sort_keys=True)
