"""Ways to say which part of a generation is meant: tokens, characters, a literal text, a regular expression."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from icml26 import InputError

from icml26_plugin_flashtrace.arguments import as_whole


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
        what = f"the {name} {span!r}"
        return (_whole(span.start, what, "characters"), _whole(span.stop, what, "characters")), None
    if isinstance(span, str):
        begin = text.rfind(span) if span else -1
        if begin < 0:
            raise InputError(f"the {name} {span!r} does not occur in the generation, which ends with {_end(text)!r}")
        return (begin, begin + len(span)), None
    if isinstance(span, Regex):
        return _match(span, text, name), None
    return None, token_span(span, name)


def token_span(span: Any, name: str) -> tuple[int, int]:
    """``span`` as inclusive (first, last) token indices, from a pair of whole numbers (numpy's, tensors' and 2.0 will do).

    Whether they lie in the generation is checked where its length is known. Raises InputError, naming the span.
    """
    if isinstance(span, Chars | Regex | str):
        raise InputError(
            f"the {name} {span!r} needs the generation's text: call attribute, or give (first, last) token"
        )
    if hasattr(span, "tolist"):
        span = span.tolist()
    if not isinstance(span, list | tuple | range) or len(span) != 2:
        raise InputError(f"the {name} {span!r} is not (first, last) token, Chars, Regex or a text")
    lo, hi = (_whole(x, f"the {name} {tuple(span)!r}", "token indices") for x in span)
    return lo, hi


def _whole(value: Any, what: str, of: str) -> int:
    number = as_whole(value)
    if number is None:
        raise InputError(f"{what} must be whole {of}")
    return number


def _match(span: Regex, text: str, name: str) -> tuple[int, int]:
    if not isinstance(span.pattern, str):
        raise InputError(f"the {name}'s pattern must be a text, not {type(span.pattern).__name__}")
    which = _whole(span.which, f"the {name}'s match {span.which!r}", "numbers (-1: the last)")
    try:
        matches = list(re.finditer(span.pattern, text, flags=re.DOTALL))
    except re.error as error:
        raise InputError(f"the {name}'s pattern {span.pattern!r} is no regular expression: {error}") from error
    try:
        match = matches[which]
    except IndexError as error:
        raise InputError(
            f"the {name}'s pattern {span.pattern!r} matches {len(matches)} times in the generation, "
            f"which ends with {_end(text)!r}"
        ) from error
    try:
        begin, end = match.span(span.group)
    except IndexError as error:
        raise InputError(f"the {name}'s pattern {span.pattern!r} has no group {span.group!r}") from error
    if begin < 0 or begin == end:
        raise InputError(f"the {name}'s pattern {span.pattern!r} matches no characters")
    return begin, end


def _end(text: str) -> str:
    """The last characters of a text, for messages: where the model answered, nobody has seen it yet."""
    return text if len(text) <= 80 else "…" + text[-80:]
