"""An inverted index from stems to segments of text, so that a call meets only the segments that share its rare words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from icml26_plugin_causaltrace.policy import ACTING, VERB_GROUPS
from icml26_plugin_causaltrace.text import normalise, segments, stem, stems, words

#: Longest list of segments that is looked at for one word; longer ones are cut to their oldest and newest ends, and reported.
POSTINGS_CAP = 256
#: Segments that are compared with one long value.
MATCHES_CAP = 2048
#: Segments kept of one result; the rest is joined into ever longer ones, so that no text is left out.
SEGMENTS_CAP = 20_000
#: Longer segments are not kept from one text to the next, so that the memory for them is bounded.
CACHED_LENGTH = 400

_IDENTIFIER = re.compile(r"[@/\\_]|\w\.\w")
_DIGIT, _LETTER = re.compile(r"\d"), re.compile(r"[a-z]")
_VERBS = frozenset(verb for group in VERB_GROUPS for verb in group) | ACTING
# A word before a colon is a key of JSON or YAML, not a request.
_ASKING = re.compile(
    r"(?:^|[.!?:;,>*\"'(\[{\]-]\s*|\b(?:please|to|must|should|and|then|also|now|you|immediately|first|instead|just|kindly|next|"
    r"finally|will|can|could|need|only|let's|by)\s+|[.!?:]['\"]*\s+)(?=([a-z]+)\b(?!['\"]?\s*:))"
)
PROSE_STEMS = 6


def _is_identifier(text: str) -> bool:
    """An address, a path, a dotted or mixed name; by single searches, since ``\\d.*[a-z]`` is quadratic."""
    return bool(_IDENTIFIER.search(text)) or bool(_DIGIT.search(text) and _LETTER.search(text))


@dataclass(frozen=True, slots=True)
class Value:
    """One argument value: ``text`` normalised; ``exact`` for identifiers and short values, which match whole or not at all."""

    text: str
    stems: frozenset[str]
    exact: bool
    prose: bool

    @classmethod
    def of(cls, raw: str) -> Value | None:
        """The value, or None when it has no content word."""
        text = normalise(raw)
        bare = re.sub(r"^https?://", "", text).rstrip("/")
        found = stems(bare)
        if not found:
            return None
        spaced = " " in bare
        exact = len(bare) <= 4 or (not spaced and _is_identifier(bare))
        return cls(bare, found, exact, len(found) >= PROSE_STEMS and spaced)

    def match(self, text: str, present: frozenset[str] | set[str]) -> float:
        """How much of the value stands in a text with these stems, in [0, 1]."""
        shared = len(self.stems & present)
        if not shared:
            return 0.0
        if shared == len(self.stems) and ((len(self.text) <= 4 and len(self.stems) == 1) or self.text in text):
            return 1.0
        return 0.0 if self.exact else shared / len(self.stems)


@dataclass(frozen=True, slots=True)
class Unit:
    """One segment: ``owner`` is the step, ``span`` the text's segments, ``asks`` the verbs where a request would have them,
    ``specifics`` the stems with a digit: numbers, accounts, ids."""

    owner: int
    span: tuple[int, int]
    text: str
    stems: frozenset[str]
    words: frozenset[str]
    asks: frozenset[str]
    specifics: frozenset[str]


class Content(NamedTuple):
    """What a segment's text alone decides: the last fields of a ``Unit``."""

    text: str
    stems: frozenset[str]
    words: frozenset[str]
    asks: frozenset[str]
    specifics: frozenset[str]

    @classmethod
    def of(cls, piece: str) -> Content | None:
        """The content of a piece of text, None when it has no content word."""
        norm = normalise(piece)
        found = stems(norm)
        if not found:
            return None
        asks = frozenset(_ASKING.findall(norm)) & _VERBS
        return cls(norm, found, frozenset(words(norm)), asks, frozenset([s for s in found if not s.isalpha()]))


#: Agents read the same pages again and again: what their segments hold is worked out once.
_kept = lru_cache(maxsize=8192)(Content.of)


@dataclass
class SegmentIndex:
    """Segments of many texts by stem."""

    units: list[Unit] = field(default_factory=list)
    _postings: dict[str, list[int]] = field(default_factory=dict)

    def add(self, owner: int, text: str) -> range:
        """Index the segments of a text that step ``owner`` brought. Returns the new unit numbers."""
        start = len(self.units)
        kept = [c for p in _bounded(segments(text)) if (c := _kept(p) if len(p) <= CACHED_LENGTH else Content.of(p))]
        span = (start, start + len(kept))
        for content in kept:
            number = len(self.units)
            self.units.append(Unit(owner, span, *content))
            for word in content.stems:
                self._postings.setdefault(word, []).append(number)
        return range(*span)

    def frequency(self, word: str) -> int:
        """In how many segments a stem occurs."""
        return len(self._postings.get(word, ()))

    def postings(self, word: str) -> tuple[list[int], bool]:
        """Segments with a stem, and whether some were left out."""
        found = self._postings.get(word, [])
        if len(found) <= POSTINGS_CAP:
            return found, False
        half = POSTINGS_CAP // 2
        return found[:half] + found[-half:], True

    def candidates(self, value: Value, least: float, cap: int = MATCHES_CAP) -> tuple[set[int], bool]:
        """Every segment that can match ``value`` to at least ``least``, by its rarest stems (prefix filter).

        A segment that holds a share ``least`` of k stems holds one of the k - ceil(least k) + 1 rarest. The flag says
        that a list was cut: a word's own, or the whole at about ``cap``, where the rarest words come first.
        """
        known = sorted(value.stems, key=lambda s: (self.frequency(s), s))
        if value.exact or len(known) == 1:
            if not self.frequency(known[0]):
                return set(), False
            found, cut = self.postings(known[0])
            return set(found), cut
        needed = max(1, -int(-least * len(known) // 1))
        result: set[int] = set()
        cut_any = False
        for word in known[: len(known) - needed + 1]:
            found, cut = self.postings(word)
            if len(result) >= cap:
                return result, True
            result.update(found)
            cut_any |= cut
        return result, cut_any


def _bounded(pieces: list[str]) -> list[str]:
    if len(pieces) <= SEGMENTS_CAP:
        return pieces
    size = -(-len(pieces) // SEGMENTS_CAP)
    return [" ".join(pieces[k : k + size]) for k in range(0, len(pieces), size)]


def verb_stems(verbs: frozenset[str]) -> frozenset[str]:
    """Stems of verbs, to meet inflected forms."""
    return frozenset(stem(v) for v in verbs)
