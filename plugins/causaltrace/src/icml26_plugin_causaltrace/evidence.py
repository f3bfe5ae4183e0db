"""What speaks for a call: the user's task, instructions in untrusted text, copied values. The supports of the causal model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from icml26_plugin_causaltrace.index import SegmentIndex, Value, verb_stems
from icml26_plugin_causaltrace.policy import Affordance, Policy, affordance, fetches, is_url
from icml26_plugin_causaltrace.text import normalise, stem, stems, word_set, words
from icml26_plugin_causaltrace.trace import Step, ToolInfo, flatten

#: A segment instructs a call from this support on (trust-transfer edge).
MIN_INSTRUCTION = 0.3
WINDOWS = (1, 2, 4)
#: Argument values looked at per call, and candidate windows kept per call.
VALUES_CAP = 64
CANDIDATES_CAP = 24
#: Segments around which a call's windows are laid: those that hold most of its values. Earlier steps it may copy from.
UNITS_CAP = 512
LINKS_CAP = 256
#: Segments that one segment is compared with to find where it was copied from.
COPIES_CAP = 64
#: Share of a text's content words that makes it a copy of another.
COPY = 0.6
MIN_COPY_STEMS = 4

AFF_ASKED, AFF_NAMED, AFF_NOUN = 1.0, 0.5, 0.25
#: What a call reads need not be asked for by a verb: "the body of the last e-mail" has it searched.
AFF_READ_NOUN = 0.6
#: Strength of a text that asks for a call without arguments by its verb and its noun.
NAMED_ONLY = 0.6
TASK_NOUN, TASK_SILENT, READ_SILENT = 0.3, 0.2, 0.6
#: Verbs that ask for whatever noun follows: "make a reservation".
GENERIC = word_set("make do create perform add place give set put")
#: Data that shares a window with an instruction, but bears none, survives the block to this share.
BYSTANDER = 0.5
WEIGHT_UNEXPLAINED = 0.3
#: A call needs all of its values: a task that explains half of them explains less than half of the call.
TASK_POWER = 2.0
#: How far the user's word carries to values that stand in what he pointed at.
POINTED = 0.9


@dataclass(frozen=True, slots=True)
class Candidate:
    """A window of segments that may have instructed a call: ``p`` = aff * cov; ``origin`` where its text first came from."""

    step: int
    units: tuple[int, ...]
    p: float
    cov: float
    aff: float
    text: str
    origin: int
    via: int | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A value of a call that occurs in the result of an earlier step."""

    step: int
    value: str
    weight: float


@dataclass(frozen=True, slots=True)
class CallEvidence:
    """Supports of one call. ``p_task`` without any candidate's text; ``p_task_without[k]`` without the k-th candidate's.

    ``links`` are copied values, ``unexplained`` the share of values that nothing holds, ``incomplete`` that a bound was hit."""

    sensitive: bool
    p_task: float
    aff_task: float
    candidates: tuple[Candidate, ...]
    p_task_without: tuple[float, ...]
    links: tuple[Link, ...]
    unexplained: float
    incomplete: bool


@dataclass
class Evidence:
    """Grows with a trace: the user's words, results, arguments; answers for each new call what supports it."""

    policy: Policy = field(default_factory=Policy)
    tools: Mapping[str, ToolInfo] = field(default_factory=dict)
    index: SegmentIndex = field(default_factory=SegmentIndex)
    written: SegmentIndex = field(default_factory=SegmentIndex)
    support: dict[int, float] = field(default_factory=dict)
    trusted: set[int] = field(default_factory=set)
    origin: dict[int, tuple[int, int]] = field(default_factory=dict)
    own_words: set[int] = field(default_factory=set)
    written_from: dict[int, int] = field(default_factory=dict)
    instructed: dict[int, dict[int, float]] = field(default_factory=dict)
    _task: str = ""
    _task_stems: frozenset[str] = frozenset()
    _task_words: frozenset[str] = frozenset()

    def add_task(self, text: str) -> None:
        """More trusted words of the user."""
        norm = normalise(text)
        self._task = f"{self._task} {norm}".strip()
        self._task_stems |= stems(norm)
        self._task_words |= frozenset(words(norm))

    def add_result(self, number: int, step: Step, text: str) -> None:
        """The text that a step brought: its segments become variables, and copies of earlier text get their origin."""
        units = self.index.add(number, text)
        if self.policy.trusts(step):
            self.trusted.add(number)
            return
        if self.policy.acts(step, self.tools.get(step.tool)):
            self._mark_echo(units, step)
        if not self.written.units:
            return
        for unit in units:
            self._trace_back(unit)

    def add_delegation(self, number: int, step: Step) -> None:
        """A task handed to another agent is text which that agent reads."""
        for unit in self.index.add(number, "\n".join(flatten(step.arguments))):
            self._trace_back(unit)

    def _mark_echo(self, units: range, step: Step) -> None:
        """A confirmation repeats the call's own values without asking for anything: the agent's words, not an attacker's."""
        own = [v for raw in list(flatten(step.arguments))[:VALUES_CAP] if (v := Value.of(raw)) is not None]
        for number in units:
            unit = self.index.units[number]
            if not unit.asks and any(v.match(unit.text, unit.stems) == 1.0 for v in own):
                self.own_words.add(number)

    def _trace_back(self, unit: int) -> None:
        """Find the argument that a segment repeats (a note, a memory, a message), and where that came from."""
        me = self.index.units[unit]
        if len(me.stems) < MIN_COPY_STEMS:
            return
        as_value = Value(me.text, me.stems, False, True)
        found, _ = self.written.candidates(as_value, COPY, COPIES_CAP)
        best = max(found, key=lambda w: (_overlap(me.stems, self.written.units[w].stems), -w), default=None)
        if best is None or _overlap(me.stems, self.written.units[best].stems) < COPY:
            return
        source = self.written_from.get(best)
        writer = self.written.units[best].owner
        if source is not None:
            root = self.origin.get(source, (self.index.units[source].owner, writer))[0]
            self.origin[unit] = (root, writer)
        elif _overlap(me.stems, self._task_stems) >= COPY:
            self.own_words.add(unit)

    def assess(self, number: int, step: Step) -> CallEvidence:
        """Supports of a call, from everything before it. Then the call's arguments are remembered as written text."""
        info = self.tools.get(step.tool)
        aff = affordance(step.tool, info.description if info else "")
        raw = list(dict.fromkeys(flatten(step.arguments)))
        values = [v for r in raw[:VALUES_CAP] if (v := Value.of(r)) is not None]
        if step.kind == "delegation":  # who gets the task says nothing about whose task it is
            values = [v for v in values if v.prose] or values
        incomplete = len(raw) > VALUES_CAP
        in_task = [v.match(self._task, self._task_stems) for v in values]
        hits, cut = self._hits(values)
        windows, trimmed = self._windows(hits) if values else self._naming(aff)
        incomplete |= trimmed
        best_seen = [max((score for score, _ in h.values()), default=0.0) for h in hits]
        weights = [1.0 if max(t, b) >= 0.3 else WEIGHT_UNEXPLAINED for t, b in zip(in_task, best_seen, strict=True)]
        acts = self.policy.acts(step, info)
        # To hand over what the user asked for stays within his words, whoever does it.
        aff_task = 1.0 if step.kind == "delegation" else self._task_affordance(aff, acts, max(in_task, default=0.0))
        candidates = self._candidates(aff, acts, values, weights, windows, hits)

        def p_task(blocked: dict[int, float]) -> float:
            if not values:
                return aff_task
            total = 0.0
            for t, h, w in zip(in_task, hits, weights, strict=True):
                pointed = max(
                    (score * POINTED * self._standing(unit) * blocked.get(unit, 1.0) for unit, (score, _) in h.items()),
                    default=0.0,
                )
                total += w * max(t, pointed)
            return aff_task * (total / sum(weights)) ** TASK_POWER

        copies: dict[str, list[int]] = {}
        for unit in {u for h in hits for u in h}:
            copies.setdefault(self.index.units[unit].text, []).append(unit)
        blocks = [self._block(aff, c.units, copies) for c in candidates]
        blocked: dict[int, float] = {}
        for block in blocks:
            for unit, left in block.items():
                blocked[unit] = min(left, blocked.get(unit, 1.0))
        without = tuple(p_task(block) for block in blocks)
        links = self._links(values, hits)
        evidence = CallEvidence(
            sensitive=self._sensitive(step, info, raw, in_task, values),
            p_task=p_task(blocked),
            aff_task=aff_task,
            candidates=candidates,
            p_task_without=without,
            links=links[:LINKS_CAP],
            unexplained=sum(w < 1 for w in weights) / max(1, len(weights)),
            incomplete=incomplete or cut or len(links) > LINKS_CAP,
        )
        self.instructed[number] = {u: c.p for c in candidates for u in c.units if c.p > evidence.p_task}
        self.support[number] = evidence.p_task
        self._remember(number, raw)
        return evidence

    def _hits(self, values: list[Value]) -> tuple[list[dict[int, tuple[float, int]]], bool]:
        """For each value the segments that hold it (score, owner)."""
        found: list[dict[int, tuple[float, int]]] = []
        cut_any = False
        for value in values:
            units, cut = self.index.candidates(value, MIN_INSTRUCTION)
            cut_any |= cut
            scores = {}
            for unit in units:
                entry = self.index.units[unit]
                score = value.match(entry.text, entry.stems)
                if score >= MIN_INSTRUCTION or (value.prose and score > 0.15):
                    scores[unit] = (score, entry.owner)
            found.append(scores)
        return found, cut_any

    def _windows(self, hits: list[dict[int, tuple[float, int]]]) -> tuple[set[tuple[int, ...]], bool]:
        """Windows of one, two and four segments around every hit and around the instructions that led to one; none crosses
        the end of a result. The flag says that there were too many hits, and those that hold least were left out."""
        windows: set[tuple[int, ...]] = set()
        held: dict[int, float] = {}
        for scores in hits:
            for unit, (score, owner) in scores.items():
                held[unit] = held.get(unit, 0.0) + score
                for instruction in self.instructed.get(owner, ()):
                    held.setdefault(instruction, 0.0)
        usable = [u for u in held if self.index.units[u].owner not in self.trusted and u not in self.own_words]
        usable.sort(key=lambda u: (-held[u], u))
        for unit in usable[:UNITS_CAP]:
            low, high = self.index.units[unit].span
            for size in WINDOWS:
                for start in range(max(low, unit - size + 1), min(unit, high - size) + 1):
                    windows.add(tuple(range(start, start + size)))
        return windows, len(usable) > UNITS_CAP

    def _naming(self, aff: Affordance) -> tuple[set[tuple[int, ...]], bool]:
        """For a call without arguments: the segments that name what it works on, and whether some were left out."""
        found: set[tuple[int, ...]] = set()
        cut_any = False
        for noun in sorted(aff.nouns):
            units, cut = self.index.postings(noun)
            cut_any |= cut
            for unit in units:
                entry = self.index.units[unit]
                if entry.owner not in self.trusted and unit not in self.own_words and aff.nouns <= entry.stems:
                    found.add((unit,))
        return found, cut_any

    def _candidates(
        self,
        aff: Affordance,
        acts: bool,
        values: list[Value],
        weights: list[float],
        windows: set[tuple[int, ...]],
        hits: list[dict[int, tuple[float, int]]],
    ) -> tuple[Candidate, ...]:
        total = sum(weights)
        scored = []
        mine = frozenset(s for v in values for s in v.stems) if acts else None
        followed = self._followed(hits)
        for window in windows:
            strength = self._affordance(aff, window, mine)
            if strength == AFF_NOUN and not acts:
                strength = AFF_READ_NOUN
            if strength == 0.0:
                continue
            units = [self.index.units[u] for u in window]
            text = " ".join(u.text for u in units)
            present = frozenset().union(*(u.stems for u in units))
            cov = 0.0 if values else NAMED_ONLY
            for position, (value, weight) in enumerate(zip(values, weights, strict=True)):
                led = max((followed[position].get(u, 0.0) for u in window), default=0.0)
                cov += weight * max(value.match(text, present), led) / total
            if strength * cov >= MIN_INSTRUCTION:
                scored.append((strength * cov, -len(window), window, cov, strength, text))
        scored.sort(key=lambda item: (-item[0], -item[1], item[2]))
        kept: list[Candidate] = []
        taken: set[int] = set()
        for p, _, window, cov, strength, text in scored:
            if len(kept) == CANDIDATES_CAP or taken.intersection(window):
                continue
            taken.update(window)
            owner = self.index.units[window[0]].owner
            root, via = next((self.origin[u] for u in window if u in self.origin), (owner, None))
            kept.append(Candidate(owner, window, p, cov, strength, text, root, via))
        return tuple(kept)

    def _followed(self, hits: list[dict[int, tuple[float, int]]]) -> list[dict[int, float]]:
        """For each value, the segments whose instructions led to the call that read it: a value they point at counts for them."""
        led: list[dict[int, float]] = []
        for scores in hits:
            mine: dict[int, float] = {}
            for score, owner in scores.values():
                for unit, p in self.instructed.get(owner, {}).items():
                    mine[unit] = max(mine.get(unit, 0.0), POINTED * p * score)
            led.append(mine)
        return led

    def _affordance(self, aff: Affordance, window: tuple[int, ...], mine: frozenset[str] | None = None) -> float:
        """How strongly a window asks for the tool; a segment that stands after the data and whose
        numbers and ids are all other than ``mine`` asks for another call."""
        best, first = 0.0, window[0]
        for number in window:
            unit = self.index.units[number]
            if mine is not None and number != first and unit.specifics and not unit.specifics & mine:
                continue
            if aff.verbs & unit.asks:
                return AFF_ASKED
            if aff.verbs & unit.words or _named(aff.verbs, unit.stems):
                if unit.asks & GENERIC:
                    return AFF_ASKED
                best = max(best, AFF_NAMED)
            elif aff.nouns & unit.stems:
                best = max(best, AFF_NOUN)
        return best

    def _task_affordance(self, aff: Affordance, acts: bool, named: float) -> float:
        """Whether the user's words ask for the tool: its verbs; for one that only reads also its object or a value."""
        if aff.verbs & self._task_words or verb_stems(aff.verbs) & self._task_stems:
            return 1.0
        if acts:
            return TASK_NOUN if aff.nouns & self._task_stems else TASK_SILENT
        return 1.0 if named == 1.0 or aff.nouns & self._task_stems else READ_SILENT

    def _standing(self, unit: int) -> float:
        """How far the user stands behind a segment: by the support of the call that brought it."""
        owner = self.index.units[unit].owner
        if owner in self.trusted:
            return 1.0
        return self.support.get(owner, 0.0)

    def _block(self, aff: Affordance, window: tuple[int, ...], copies: Mapping[str, list[int]]) -> dict[int, float]:
        """What do(window = blocked) leaves of each segment: nothing of those that bear the instruction, part of the others.

        Equal texts are one variable: ``copies`` holds the segments that matter here by their text."""
        strength = {u: self._affordance(aff, (u,)) for u in window}
        strongest = max(strength.values())
        bearing = [u for u in window if strength[u] == strongest]
        block = dict.fromkeys(window, BYSTANDER)
        for unit in bearing:
            block[unit] = 0.0
            block.update(dict.fromkeys(copies.get(self.index.units[unit].text, ()), 0.0))
        return block

    def _sensitive(
        self, step: Step, info: ToolInfo | None, raw: list[str], in_task: list[float], values: list[Value]
    ) -> bool:
        if self.policy.acts(step, info) or step.kind == "delegation":
            return True
        if step.tool in self.policy.sensitive or not fetches(step):
            return False
        known = {v.text: t for v, t in zip(values, in_task, strict=True)}
        return any(is_url(r) and (v := Value.of(r)) is not None and known.get(v.text, 0.0) < 1.0 for r in raw)

    def _links(self, values: list[Value], hits: list[dict[int, tuple[float, int]]]) -> tuple[Link, ...]:
        best: dict[int, Link] = {}
        for value, scores in zip(values, hits, strict=True):
            for score, owner in scores.values():
                if score >= COPY and (owner not in best or best[owner].weight < score):
                    best[owner] = Link(owner, value.text[:80], score)
        return tuple(sorted(best.values(), key=lambda link: (-link.weight, link.step)))

    def _remember(self, number: int, raw: list[str]) -> None:
        """Keep prose arguments, with the segment they copy, so that trust is not reset by a rewrite."""
        text = "\n".join(r for r in raw if len(r) >= 20)
        if not text:
            return
        for unit in self.written.add(number, text):
            me = self.written.units[unit]
            if len(me.stems) < MIN_COPY_STEMS:
                continue
            found, _ = self.index.candidates(Value(me.text, me.stems, False, True), COPY, COPIES_CAP)
            best = max(found, key=lambda u: (_overlap(me.stems, self.index.units[u].stems), -u), default=None)
            if best is not None and _overlap(me.stems, self.index.units[best].stems) >= COPY:
                self.written_from[unit] = best


def _named(verbs: frozenset[str], found: frozenset[str]) -> bool:
    """Whether a noun made from a verb occurs: "reservation" for reserve, "deletion" for delete."""
    roots = _roots(verbs)
    return bool(roots) and any(word.startswith(roots) for word in found if len(word) > 6)


@lru_cache(maxsize=4096)
def _roots(verbs: frozenset[str]) -> tuple[str, ...]:
    return tuple(root for v in verbs if len(root := stem(v)) >= 5)


def _overlap(part: frozenset[str], whole: frozenset[str]) -> float:
    return len(part & whole) / len(part) if part else 0.0
