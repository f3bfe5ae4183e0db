"""Text to comparable pieces: normalisation, stems, hidden encodings, segments. Pure functions, bounded caches."""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote

#: Longest piece that is treated as one segment; longer lines are cut, so that cost stays linear in the text.
MAX_SEGMENT = 4096
#: Longer runs of letters are no words: they are not stemmed, and not kept in the cache of stems.
MAX_WORD = 64

_SPACE = re.compile(r"\s+")
# No lazy group before the zeros: that would be quadratic in their number.
_DECIMAL = re.compile(r"(?<![\w.])(\d+)\.(\d+)(?![\w]|\.\d)")
_GROUPED_NUMBER = re.compile(r"(?<![\w,.])\d{1,3}(?:,\d{3})+(?![\w,])")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|"
    r"dec(?:ember)?)\.?"
)
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_MONTH_FIRST = re.compile(rf"\b{_MONTH} {_DAY}\b(?:,? (\d{{4}}))?")
_DAY_FIRST = re.compile(rf"\b{_DAY} (?:of )?{_MONTH}\b(?:,? (\d{{4}}))?")
_WORD = re.compile(r"[^\W_]+")
_FORMAT = {"Cf", "Cc"}
_ESCAPED_BREAK = re.compile(r"\\[nrt]")
_YAML_CONTINUED = re.compile(r"\\?\n[ \t]+(?![-*•][ \t]|[\w ]{1,40}:(?:\s|$))\\?")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]>]*\s+(?=[^\s])|\n+|(?<=[>}\]])\s*(?=[<{\[])|\",\s*\"|;\s+")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{24,}={0,2}(?![A-Za-z0-9+/=])")
_BASE64_URL = re.compile(r"(?<![\w+/=-])(?=[A-Za-z0-9]*[_-])[A-Za-z0-9_-]{24,}={0,2}(?![\w+/=-])")
_BREAKS = re.compile(r"[\r\n\t]")
_URL_SAFE = str.maketrans("-_", "+/")
# Unicode's stream-safe limit: longer runs of marks occur in no language, and normalising them takes quadratic time.
MAX_MARKS = 30
# Python's int() refuses more digits than this, and no character has as many.
_LONG_REFERENCE = re.compile(r"&#[xX]?[0-9a-fA-F]{9,};?")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2}){3,}|%20")


def word_set(text: str) -> frozenset[str]:
    """The words of a text, for tables of words that can be read."""
    return frozenset(text.split())


STOP_WORDS = word_set(
    "a an and are as at be been but by can could did do does for from had has have he her him his i if in into is it its "
    "just me my no not of on or our she so than that the their them then there these they this those to too us was we "
    "were what when where which who will with would you your please also"
)


def visible(text: str) -> str:
    """The text with compatibility forms folded and invisible characters removed; line breaks stay."""
    if text.isascii():
        return text
    folded = unicodedata.normalize("NFKC", _stream_safe(text))
    return "".join(c for c in folded if c in "\n\t" or unicodedata.category(c) not in _FORMAT)


def _stream_safe(text: str) -> str:
    """The text with at most ``MAX_MARKS`` combining marks in a row."""
    if not any(map(unicodedata.combining, text)):
        return text
    kept, run = [], 0
    for c in text:
        run = run + 1 if unicodedata.combining(c) else 0
        if run <= MAX_MARKS:
            kept.append(c)
    return "".join(kept)


def normalise(text: str) -> str:
    """Lower case, single spaces, nothing hidden, ``9.50`` as ``9.5``, ``May 1st, 2024`` as ``2024-05-01``."""
    folded = _SPACE.sub(" ", visible(text).lower()).strip()
    folded = _GROUPED_NUMBER.sub(lambda m: m.group().replace(",", ""), folded)
    folded = _DECIMAL.sub(lambda m: f"{m.group(1)}.{m.group(2).rstrip('0')}".rstrip("."), folded)
    folded = _MONTH_FIRST.sub(lambda m: _iso(m.group(3), m.group(1), m.group(2)), folded)
    return _DAY_FIRST.sub(lambda m: _iso(m.group(3), m.group(2), m.group(1)), folded)


def _iso(year: str | None, month: str, day: str) -> str:
    number = _MONTHS.index(month[:3]) + 1
    return f"{year}-{number:02d}-{int(day):02d}" if year else f"{number:02d}-{int(day):02d}"


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A light English stem: plural, -ing, -ed and a final e removed. Words with digits stay whole."""
    if len(word) < 4 or not word.isalpha():
        return word
    for suffix, least in (("ies", 5), ("ing", 6), ("ed", 5), ("es", 5), ("s", 4)):
        if word.endswith(suffix) and len(word) >= least and not word.endswith("ss"):
            word = word[: -len(suffix)] + ("y" if suffix == "ies" else "")
            break
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def words(normalised: str) -> list[str]:
    """Runs of letters and digits of a normalised text."""
    return _WORD.findall(normalised)


def stems(normalised: str) -> frozenset[str]:
    """Stems of the content words."""
    return frozenset([stem(w) if len(w) <= MAX_WORD else w for w in _WORD.findall(normalised) if w not in STOP_WORDS])


def decoded(text: str) -> Iterator[str]:
    """Readable text hidden in ``text`` as base64, HTML entities or percent escapes."""
    for piece in (*_BASE64.findall(text), *_BASE64_URL.findall(text)):
        try:
            padded = piece.translate(_URL_SAFE) + "=" * (-len(piece) % 4)
            plain = base64.b64decode(padded, validate=True).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError):
            continue
        if " " in plain and _BREAKS.sub("", plain).isprintable():
            yield plain
    if "&" in text and (plain := html.unescape(_LONG_REFERENCE.sub("", text))) != text:
        yield plain
    if _PERCENT.search(text) and (plain := unquote(text)) != text:
        yield plain


def segments(text: str) -> list[str]:
    """Sentences and lines of a text, in order, wrapped lines joined; long ones cut at ``MAX_SEGMENT`` characters."""
    shown = visible(text)
    if "\\" in shown:
        shown = _YAML_CONTINUED.sub(" ", shown)
        shown = _ESCAPED_BREAK.sub("\n", shown)
    elif "\n" in shown:
        shown = _YAML_CONTINUED.sub(" ", shown)
    found: list[str] = []
    for piece in _SENTENCE.split(shown):
        piece = piece.strip()
        while len(piece) > MAX_SEGMENT:
            found.append(piece[:MAX_SEGMENT])
            piece = piece[MAX_SEGMENT:]
        if piece:
            found.append(piece)
    for hidden in decoded(shown):
        found.extend(part.strip()[:MAX_SEGMENT] for part in _SENTENCE.split(hidden) if part.strip())
    return found
