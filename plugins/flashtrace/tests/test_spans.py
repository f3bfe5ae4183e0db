"""Spans by tokens, characters, text and pattern."""

from __future__ import annotations

import pytest
from icml26 import InputError
from icml26_plugin_flashtrace.spans import LAST_BOXED, Chars, Regex, as_chars_or_tokens

TEXT = r"first \boxed{1}, then \boxed{\frac{1}{2}} at last"


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (LAST_BOXED, r"\frac{1}{2}"),
        (Regex(LAST_BOXED.pattern, which=0, group=1), "1"),
        (Regex(r"\\boxed"), r"\boxed"),
        (Chars(0, 5), "first"),
        ("boxed", "boxed"),
        (Regex("(?P<word>last)", group="word"), "last"),
    ],
)
def test_characters_are_found(span: object, expected: str) -> None:
    chars, tokens = as_chars_or_tokens(span, TEXT, "output span")  # type: ignore[arg-type]
    assert tokens is None
    assert chars is not None
    assert TEXT[slice(*chars)] == expected


def test_a_text_means_its_last_occurrence() -> None:
    assert as_chars_or_tokens("boxed", TEXT, "output span")[0] == (TEXT.rfind("boxed"), TEXT.rfind("boxed") + 5)


def test_a_pattern_reaches_across_lines() -> None:
    assert as_chars_or_tokens(Regex("a.*z"), "_a\nb\nz_", "output span")[0] == (1, 6)


def test_tokens_stay_tokens_and_none_stays_none() -> None:
    assert as_chars_or_tokens((2, 5), TEXT, "output span") == (None, (2, 5))
    assert as_chars_or_tokens(None, TEXT, "output span") == (None, None)


@pytest.mark.parametrize(
    ("span", "message"),
    [
        ("absent", "does not occur"),
        ("", "does not occur"),
        (Regex("absent"), "matches 0 times"),
        (Regex("boxed", which=5), "matches 2 times"),
        (Regex("("), "no regular expression"),
        (Regex("boxed", group=3), "no group 3"),
        (Regex("x*?"), "matches no characters"),
        (Regex("(absent)?first", group=1), "matches no characters"),
        ((1, 2, 3), "not"),
        ((0.5, 2), "whole"),
        (7, "not"),
    ],
)
def test_what_is_not_there_is_refused(span: object, message: str) -> None:
    with pytest.raises(InputError, match=f"the answer.*{message}"):
        as_chars_or_tokens(span, TEXT, "answer")  # type: ignore[arg-type]
