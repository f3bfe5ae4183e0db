"""What a detector sees of an agent: trusted user turns and ordered steps. Standard library only; labels have no place in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from icml26.errors import InputError

StepKind: TypeAlias = Literal["tool", "delegation", "message"]
KINDS: tuple[str, ...] = get_args(StepKind)

#: A trace beyond these is refused before any work: its cost would not be bounded otherwise.
MAX_STEPS = 200_000
MAX_TEXT = 20_000_000
MAX_NESTING = 64
MAX_TIME = 1e15
_SURROGATE = re.compile("[\ud800-\udfff]")


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
    ``error`` marks a failed call; ``trusted`` a result from a source that nobody else can write to; ``parallel`` a call
    made in one breath with the step before, whose result the agent had not seen.
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
    parallel: bool = False


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


def check_step(step: Step, where: str) -> int:
    """How many characters a step holds; InputError when a field has another type than it says, or a time is no number."""
    if not isinstance(step, Step):
        raise InputError(f"{where}: is {type(step).__name__}, expected a Step")
    for name in ("tool", "result", "agent", "domain", "call_id"):
        value = getattr(step, name)
        if not isinstance(value, str) and (value is not None or name == "tool"):
            raise InputError(f"{where}: {name} is {type(value).__name__}, expected text")
    if not step.tool:
        raise InputError(f"{where}: the tool has no name")
    if not isinstance(step.arguments, Mapping):
        raise InputError(
            f"{where}: arguments are {type(step.arguments).__name__}, expected a mapping of names to values"
        )
    for name in ("error", "trusted", "parallel"):
        if not isinstance(getattr(step, name), bool):
            raise InputError(f"{where}: {name} is {getattr(step, name)!r}, expected true or false")
    if step.kind not in KINDS:
        raise InputError(f"{where}: kind {step.kind!r} is unknown; known are {', '.join(KINDS)}")
    time = step.timestamp
    if time is not None and (isinstance(time, bool) or not isinstance(time, int | float) or not abs(time) < MAX_TIME):
        shown = str(time) if isinstance(time, float | str) else type(time).__name__
        raise InputError(f"{where}: timestamp {shown} is not a number of seconds; use null when unknown")
    return len(step.result or "") + sum(map(len, flatten(step.arguments)))


def check_turn(turn: Turn, where: str) -> int:
    """How many characters a turn holds; InputError for another type."""
    if not isinstance(turn, Turn) or not isinstance(turn.text, str):
        raise InputError(f"{where}: the user's turns must be Turn(text), got {type(turn).__name__}")
    if isinstance(turn.before, bool) or not isinstance(turn.before, int):
        raise InputError(f"{where}: a turn's 'before' is {turn.before!r}, expected the number of a step")
    return len(turn.text)


def check_size(size: int, where: str) -> None:
    """InputError beyond what is judged as one trace."""
    if size > MAX_TEXT:
        raise InputError(f"{where}: the texts up to here hold more than {MAX_TEXT} characters; shorten the results")


def check_trace(trace: Trace) -> Trace:
    """The trace itself; InputError when it cannot be judged: no steps, duplicate call ids, NaN times, nothing bounded."""
    where = f"trace {trace.id!r}"
    if isinstance(trace.turns, str):
        raise InputError(f"{where}: turns are text, expected a tuple: (Turn(...),)")
    if not trace.steps:
        raise InputError(f"{where} has no steps: there is nothing to judge")
    if len(trace.steps) > MAX_STEPS:
        raise InputError(f"{where} has {len(trace.steps)} steps, more than {MAX_STEPS}; split it into sessions")
    seen: set[str] = set()
    size = sum(check_turn(turn, where) for turn in trace.turns)
    check_size(size, where)
    for number, step in enumerate(trace.steps):
        size += check_step(step, f"{where}, step {number}")
        check_size(size, f"{where}, step {number}")
        if step.call_id is not None:
            if step.call_id in seen:
                raise InputError(f"{where}, step {number}: call id {step.call_id!r} occurs twice")
            seen.add(step.call_id)
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
        try:
            yield str(value)
        except ValueError:  # Python's limit on the digits of an int
            raise InputError("arguments hold a whole number of thousands of digits; pass it as text") from None


def trace_to_json(trace: Trace, label: Label | None = None) -> dict[str, Any]:
    """The plain form of a trace, one line of a JSONL file of format ``icml26``; the label stands under a key of its own."""
    steps = []
    for step in trace.steps:
        entry: dict[str, Any] = {"tool": step.tool, "arguments": dict(step.arguments), "result": step.result}
        for name, default in (("error", False), ("kind", "tool"), ("trusted", False), ("parallel", False)):
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
    """One JSONL line. Half of a surrogate pair stays what it is, as an escape."""
    text = json.dumps(trace_to_json(trace, label), ensure_ascii=False, sort_keys=True)
    return _SURROGATE.sub(lambda m: f"\\u{ord(m.group()):04x}", text)
