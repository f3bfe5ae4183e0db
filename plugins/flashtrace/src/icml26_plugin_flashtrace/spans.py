"""Ways to say which part of a generation is meant: tokens, characters, a literal text, a regular expression."""

from __future__ import annotations

import re
from dataclasses import dataclass

from icml26 import InputError


@dataclass(frozen=True)
class Chars:
    """Characters start..stop-1 of the generation."""

    start: int
    stop: int


@dataclass(frozen=True)
class Regex:
    """A match of ``pattern`` in the generation; ``which`` -1 the last one, 0 the first; ``group`` the part of it."""

    pattern: str
    which: int = -1
    group: int | str = 0


#: What stands in the last LaTeX box, braces inside it included.
LAST_BOXED = Regex(r"\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}", group=1)

#: Inclusive token indices, or one of the others; a plain text means its last occurrence.
SpanLike = tuple[int, int] | Chars | Regex | str


def as_chars_or_tokens(
    span: SpanLike | None, text: str, name: str
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """(character range, token span) of a span in the generation ``text``: one of them, or (None, None) for None.

    Raises InputError, naming the span, when a text or pattern does not occur or the span is of another form.
    """
    if span is None:
        return None, None
    if isinstance(span, Chars):
        return (span.start, span.stop), None
    if isinstance(span, str):
        begin = text.rfind(span) if span else -1
        if begin < 0:
            raise InputError(f"the {name} {span!r} does not occur in the generation")
        return (begin, begin + len(span)), None
    if isinstance(span, Regex):
        return _match(span, text, name), None
    try:
        lo, hi = (int(x) for x in span)
        exact = all(int(x) == x for x in span)
    except (TypeError, ValueError) as error:
        raise InputError(f"the {name} {span!r} is not (first, last) token, Chars, Regex or a text") from error
    if not exact:
        raise InputError(f"the {name} {span!r} must be whole token indices")
    return None, (lo, hi)


def _match(span: Regex, text: str, name: str) -> tuple[int, int]:
    try:
        matches = list(re.finditer(span.pattern, text, flags=re.DOTALL))
    except re.error as error:
        raise InputError(f"the {name}'s pattern {span.pattern!r} is no regular expression: {error}") from error
    try:
        match = matches[span.which]
    except IndexError as error:
        raise InputError(
            f"the {name}'s pattern {span.pattern!r} matches {len(matches)} times in the generation"
        ) from error
    try:
        begin, end = match.span(span.group)
    except IndexError as error:
        raise InputError(f"the {name}'s pattern {span.pattern!r} has no group {span.group!r}") from error
    if begin < 0 or begin == end:
        raise InputError(f"the {name}'s pattern {span.pattern!r} matches no characters")
    return begin, end
