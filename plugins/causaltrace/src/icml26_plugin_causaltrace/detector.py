"""CausalTrace: would the call still have happened without the text that somebody planted?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from icml26.errors import InputError

from icml26_plugin_causaltrace.evidence import CallEvidence, Candidate, Evidence
from icml26_plugin_causaltrace.graph import CausalGraph, Edge, Slice, bidirectional_slice
from icml26_plugin_causaltrace.mechanism import Deviation, mechanism_deviation
from icml26_plugin_causaltrace.policy import Policy, name_pieces
from icml26_plugin_causaltrace.scm import Effect, NoisyOr, deterministic_effect
from icml26_plugin_causaltrace.trace import Step, ToolInfo, Trace, check_size, check_step, check_trace

Mode: TypeAlias = Literal["prob", "det"]

#: Constants of the authors' code: leak of a structural equation, largest strength of an injection.
LEAK = 0.025
BETA_INJECTION = 0.80
#: ATE from which an effect counts in full.
FULL_ATE = 0.5
STATE_SECONDS = 30.0
_LOGIN = frozenset(["login", "signin", "authenticate", "auth"])


@dataclass(frozen=True, slots=True)
class Pair:
    """An injected text and the call that it may have caused.

    ``effect`` is that of blocking this text alone, ``deterministic`` in {0, 0.5, 1} the same with all strengths at 1.
    ``source`` is the step that first brought the text, ``step`` the one whose result the agent acted on.
    """

    source: int
    step: int
    sink: int
    effect: Effect
    deterministic: float
    p_instruction: float
    p_task: float
    text: str
    via: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of one sensitive call when it is made: the effect of blocking all candidate texts, and each alone."""

    step: int
    score: float
    effect: Effect
    deterministic: float
    pairs: tuple[Pair, ...]
    p_task: float
    incomplete: bool = False


@dataclass(frozen=True)
class Analysis:
    """A verdict with its reasons. ``score`` in [0, 1]; ``findings`` one per sensitive call that took place."""

    score: float
    is_attack: bool
    findings: tuple[Finding, ...]
    graph: CausalGraph
    slice: Slice | None
    mechanism: Deviation | None
    evidence: tuple[CallEvidence, ...]
    incomplete: bool = False
    llm_calls: int = 0

    @property
    def finding(self) -> Finding | None:
        """The call with the highest score, None when no call has one above zero."""
        best = max(self.findings, key=lambda f: (f.score, -f.step), default=None)
        return best if best is not None and best.score > 0 else None

    @property
    def pair(self) -> Pair | None:
        """The strongest pair of the highest finding."""
        return self.finding.pairs[0] if self.finding and self.finding.pairs else None

    @property
    def chain(self) -> tuple[int, ...]:
        """Steps from the injected text to the harmful call."""
        return self.slice.chain if self.slice else ()


@dataclass(frozen=True, slots=True)
class Call:
    """Event: the agent makes a call. Its result may follow as a ``Result``; one that the step has already is taken after it."""

    step: Step


@dataclass(frozen=True, slots=True)
class Result:
    """Event: text came back for the call with this id, or for that of number ``step`` (the latest one for neither)."""

    text: str
    error: bool = False
    call_id: str | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class UserMessage:
    """Event: trusted words of the user."""

    text: str


Event: TypeAlias = Call | Result | UserMessage


@dataclass(frozen=True)
class CausalTrace:
    """Training-free detector of harm that injected text caused.

    ``tau`` in [0, 1]: alarm from this score on; ``mode`` "prob" (noisy-OR) or "det" (path existence); ``policy`` says which
    calls can do harm; ``leak`` and ``beta_injection`` are the model's constants.
    No call to a language model is made.
    """

    tau: float = 0.4
    mode: Mode = "prob"
    policy: Policy = field(default_factory=Policy)
    leak: float = LEAK
    beta_injection: float = BETA_INJECTION

    def __post_init__(self) -> None:
        for name in ("tau", "leak", "beta_injection"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        if self.mode not in ("prob", "det"):
            raise InputError(f"mode must be 'prob' or 'det', got {self.mode!r}")

    def score(self, trace: Trace) -> float:
        """The trace's score in [0, 1]."""
        return self.analyze(trace).score

    def analyze(self, trace: Trace) -> Analysis:
        """Judge a finished trace; InputError when it cannot be judged."""
        check_trace(trace)
        monitor = self.monitor(trace.tools)
        for event in events(trace):
            monitor.step(event)
        return monitor.analysis()

    def monitor(self, tools: Mapping[str, ToolInfo] | None = None) -> Monitor:
        """A monitor for a trace that is still growing."""
        return Monitor(self, tools or {})


class Monitor:
    """Judges each call as it is made, from what came before: ``step(event)`` returns the finding of a sensitive call, or None."""

    def __init__(self, detector: CausalTrace, tools: Mapping[str, ToolInfo]) -> None:
        self.detector = detector
        self.steps: list[Step] = []
        self.findings: dict[int, Finding] = {}
        self.call_evidence: list[CallEvidence] = []
        self.graph = CausalGraph()
        self.failed: set[int] = set()
        self._evidence = Evidence(policy=detector.policy, tools=tools)
        self._by_id: dict[str, int] = {}
        self._logins: dict[str | None, int] = {}
        self._delegated: int | None = None
        self._answered: dict[int, str] = {}
        self._size = 0

    def step(self, event: Event) -> Finding | None:
        """Take one event. A ``Call`` that could do harm yields its finding *before* it runs, so that it can be held."""
        if isinstance(event, Call):
            finding = self._call(event.step)
            if event.step.result is not None:
                self._result(Result(event.step.result, event.step.error))
            return finding
        if not isinstance(event, UserMessage | Result):
            raise InputError(f"expected a Call, a Result or a UserMessage, got {type(event).__name__}")
        if not isinstance(event.text, str):
            raise InputError(f"the text of a {type(event).__name__} is {type(event.text).__name__}, expected text")
        if isinstance(event, Result):
            self._result(event)
        else:
            self._grow(len(event.text))
            self._evidence.add_task(event.text)
        return None

    def _grow(self, characters: int) -> None:
        """Count what was taken; nothing of what is refused is kept."""
        check_size(self._size + characters, f"step {len(self.steps)}")
        self._size += characters

    def _result(self, event: Result) -> None:
        number = len(self.steps) - 1 if event.step is None else event.step
        if event.call_id is not None:
            number = self._by_id.get(event.call_id, -1)
        if not 0 <= number < len(self.steps):
            raise InputError(
                f"a result came for call id {event.call_id!r}, step {event.step}, but no such call was made"
            )
        if self._answered.get(number) == event.text:
            return  # delivered twice
        if number in self._answered:
            raise InputError(f"step {number} has two results; give each call an id, and its result the same")
        self._grow(len(event.text))
        self._answered[number] = event.text
        if event.error:
            self.failed.add(number)
        self._evidence.add_result(number, self.steps[number], event.text)

    def _call(self, step: Step) -> Finding | None:
        number = len(self.steps)
        self._grow(check_step(step, f"step {number}") - len(getattr(step, "result", None) or ""))
        if step.call_id is not None:
            if step.call_id in self._by_id:
                raise InputError(f"step {number}: call id {step.call_id!r} occurs twice")
            self._by_id[step.call_id] = number
        evidence = self._evidence.assess(number, step)
        self.graph.size = number + 1
        self._content_edges(number, evidence)
        self._state_edges(number, step)
        self.steps.append(step)
        self.call_evidence.append(evidence)
        if step.kind == "delegation":
            self._evidence.add_delegation(number, step)
        if step.error:
            self.failed.add(number)
        if not evidence.sensitive:
            return None
        finding = self._finding(number, evidence)
        self.findings[number] = finding
        return finding

    def _content_edges(self, number: int, evidence: CallEvidence) -> None:
        for link in evidence.links:
            self.graph.add(Edge(link.step, number, "data", link.weight, link.value))
        for c in evidence.candidates:
            self.graph.add(Edge(c.step, number, "trust", min(1.0, c.p), c.text[:200]))
            if c.via is not None:
                for a, b in ((c.origin, c.via), (c.via, c.step)):
                    if a < b:
                        self.graph.add(Edge(a, b, "data", 1.0, c.text[:200]))

    def _state_edges(self, number: int, step: Step) -> None:
        """Logins enable later calls on their domain; near calls on one domain; hand-overs between agents."""
        if (login := self._logins.get(step.domain)) is not None:
            self.graph.add(Edge(login, number, "state"))
        if _LOGIN & set(name_pieces(step.tool)) and step.domain is not None:
            self._logins[step.domain] = number
        if number:
            before = self.steps[-1]
            timed = before.timestamp is not None and step.timestamp is not None
            if timed and step.domain and before.domain == step.domain and before.tool != step.tool:
                assert before.timestamp is not None and step.timestamp is not None
                if 0 < step.timestamp - before.timestamp < STATE_SECONDS:
                    self.graph.add(Edge(number - 1, number, "state", 0.5))
            if self._delegated is not None and step.agent != self.steps[self._delegated].agent:
                self.graph.add(Edge(self._delegated, number, "trust", 0.5, "delegated"))
                self._delegated = None
        if step.kind == "delegation":
            self._delegated = number

    def _finding(self, number: int, evidence: CallEvidence) -> Finding:
        beta = self.detector.beta_injection
        p = [beta * c.p for c in evidence.candidates]
        everyone = self._effect(evidence.p_task, p, range(len(p)))
        certain = self._deterministic(evidence.p_task, evidence.candidates, range(len(p)))
        pairs = tuple(
            Pair(
                source=c.origin,
                step=c.step,
                sink=number,
                effect=self._effect(evidence.p_task_without[k], p, (k,)),
                deterministic=self._deterministic(evidence.p_task_without[k], evidence.candidates, (k,)),
                p_instruction=c.p,
                p_task=evidence.p_task_without[k],
                text=c.text,
                via=c.via,
            )
            for k, c in enumerate(evidence.candidates)
        )
        if self.detector.mode == "det":
            score = certain
        else:
            score = everyone.pn * min(1.0, everyone.ate / FULL_ATE)
        return Finding(number, score, everyone, certain, pairs, evidence.p_task, evidence.incomplete)

    def _model(self, p_task: float, strengths: Iterable[float]) -> NoisyOr:
        """Task 0, texts 1 … k, the call k + 1."""
        given = list(strengths)
        call = len(given) + 1
        triggers = {(0, call): p_task} | {(k, call): p for k, p in enumerate(given, start=1)}
        return NoisyOr(call + 1, triggers, frozenset(range(call)), {call: self.detector.leak})

    def _effect(self, p_task: float, p: list[float], block: Iterable[int]) -> Effect:
        """Direct triggers only, so that the noisy-OR has a closed form; ``NoisyOr.effect`` gives the same by enumeration."""
        held = set(block)
        left = (1.0 - self.detector.leak) * (1.0 - p_task)
        removed = 1.0
        for k, strength in enumerate(p):
            if k in held:
                removed *= 1.0 - strength
            else:
                left *= 1.0 - strength
        return Effect.of(1.0 - left * removed, 1.0 - left)

    def _deterministic(self, p_task: float, candidates: tuple[Candidate, ...], block: Iterable[int]) -> float:
        if not candidates:
            return 0.0
        supported = 1.0 if p_task >= 0.5 else 0.0
        model = self._model(supported, [1.0] * len(candidates))
        return deterministic_effect(model, [k + 1 for k in block], len(candidates) + 1)

    def analysis(self) -> Analysis:
        """The verdict on everything so far. Calls that failed are not outcomes."""
        if not self.steps:
            raise InputError("no call was seen yet: there is nothing to judge")
        happened = tuple(f for n, f in sorted(self.findings.items()) if n not in self.failed)
        top = max(happened, key=lambda f: (f.score, -f.step), default=None)
        score = top.score if top else 0.0
        alarm = score > 0.5 if self.detector.mode == "det" else score >= self.detector.tau and score > 0
        cut = mechanism = None
        if top is not None and top.score > 0:
            cut = bidirectional_slice(self.graph, [p.source for p in top.pairs[:1]], top.step)
            injected = {p.step for f in happened for p in f.pairs if f.score >= self.detector.tau}
            mechanism = mechanism_deviation(self.graph, self.steps, injected, top.step, self._evidence.support)
        return Analysis(
            score=score,
            is_attack=alarm,
            findings=happened,
            graph=self.graph,
            slice=cut,
            mechanism=mechanism,
            evidence=tuple(self.call_evidence),
            incomplete=any(e.incomplete for e in self.call_evidence),
        )


def explain(analysis: Analysis, trace: Trace) -> str:
    """The verdict in words, from the evidence alone: the text, the call, both worlds."""
    finding, pair = analysis.finding, analysis.pair
    if finding is None or pair is None:
        return "No call that could do harm depends on text from an untrusted source."
    step = trace.steps[finding.step]
    verdict = "Attack" if analysis.is_attack else "No alarm"
    lines = [
        f"{verdict} (score {analysis.score:.2f}): step {finding.step} called {_shorten(step.tool, 80)} after step {pair.step} "
        f'({_shorten(trace.steps[pair.step].tool, 80)}) brought the text "{_shorten(pair.text)}".',
        f"With that text the model gives the call {finding.effect.q_all:.0%}; without it {finding.effect.q_do:.0%} "
        f"(PN {finding.effect.pn:.2f}, PS {finding.effect.ps:.2f}, ATE {finding.effect.ate:.2f}); "
        f"what the user asked for supports it with {finding.p_task:.2f}.",
    ]
    if pair.via is not None:
        lines.append(f"The text first came with step {pair.source} and was written again by step {pair.via}.")
    if len(analysis.chain) > 1:
        lines.append("Chain: " + " -> ".join(f"{n} {_shorten(trace.steps[n].tool, 80)}" for n in analysis.chain) + ".")
    if analysis.incomplete:
        lines.append("The trace is so repetitive that some look-ups were cut: the score may be too low.")
    return "\n".join(lines)


def _shorten(text: str, limit: int = 240) -> str:
    """Text for people to read, also in a terminal: what controls it or shows nothing is a space."""
    plain = "".join(c if c.isprintable() else " " for c in text[:limit])
    return plain if len(text) <= limit else plain[: limit - 1] + "…"


def as_dict(analysis: Analysis) -> dict[str, Any]:
    """The verdict as JSON values."""
    pair, finding = analysis.pair, analysis.finding
    return {
        "score": analysis.score,
        "is_attack": analysis.is_attack,
        "source": None if pair is None else pair.source,
        "sink": None if finding is None else finding.step,
        "effect": None
        if finding is None
        else {name: getattr(finding.effect, name) for name in ("q_all", "q_do", "ate", "pn", "ps")},
        "chain": list(analysis.chain),
        "incomplete": analysis.incomplete,
        "llm_calls": analysis.llm_calls,
    }


def events(trace: Trace) -> list[Event]:
    """The events of a finished trace, in order: what a live agent would have fed to a monitor."""
    found: list[Event] = []
    turns = sorted(trace.turns, key=lambda t: t.before)
    position = 0
    waiting: list[Event] = []
    for number, step in enumerate(trace.steps):
        if not step.parallel:
            found += waiting
            waiting = []
        while position < len(turns) and turns[position].before <= number:
            found.append(UserMessage(turns[position].text))
            position += 1
        found.append(Call(replace(step, result=None)))
        if step.result is not None:
            waiting.append(Result(step.result, step.error, step=number))
    return found + waiting
