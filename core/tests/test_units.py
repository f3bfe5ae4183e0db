"""Durations and sizes."""

from __future__ import annotations

import pytest
from icml26.errors import UsageError
from icml26.units import parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0.5s", 0.5),
        (".5", 0.5),
        ("10m", 600),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1d", 86400),
        (" 2 min ", 120),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"), [("4GiB", 2**32), ("1g", 2**30), ("500MB", 5 * 10**8), ("1.5kib", 1536), ("7", 7)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-5s", "5 parsecs", "m", "1h-30m", "nan", "1e3"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="like 30s"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "0", "4GiBs", "-1g", "inf", "1 2"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="like 500MB"):
        parse_size(text)


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + "GB"])
def test_numbers_beyond_floats_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        parse_size(text)
    with pytest.raises(UsageError, match="longer than ten years"):
        parse_duration(text.removesuffix("GB"))
