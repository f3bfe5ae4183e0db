"""Durations and sizes as people write them on the command line."""

from __future__ import annotations

import math
import re

from icml26.errors import UsageError

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 3653 * 86400.0  # clocks and waits of the operating system overflow not far beyond
_BYTES = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_PART = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z]*)\s*")


def parse_duration(text: str) -> float:
    """Seconds of ``"90"``, ``"0.5s"``, ``"10m"``, ``"1h30m"``; raises UsageError for anything else and for zero."""
    seconds, end = 0.0, 0
    while end < len(text):
        part = _PART.match(text, end)
        unit = part.group(2).lower() or "s" if part else ""
        if part is None or unit not in _SECONDS:
            raise UsageError(f"{text!r} is not a duration; write it like 30s, 10m or 1h30m")
        seconds += float(part.group(1)) * _SECONDS[unit]
        end = part.end()
    if seconds <= 0:
        raise UsageError(f"{text!r} is not a duration above zero; write it like 30s, 10m or 1h30m")
    if seconds > _LONGEST:
        raise UsageError(f"{text!r} is longer than ten years; leave the limit out")
    return seconds


def parse_size(text: str) -> int:
    """Bytes of ``"4GiB"``, ``"500MB"``, ``"1g"`` (binary) or a plain number; raises UsageError for anything else and for zero."""
    part = _PART.fullmatch(text)
    unit = part.group(2).lower() or "b" if part else ""
    number = float(part.group(1)) * _BYTES[unit] if part and unit in _BYTES else 0.0
    size = int(number) if math.isfinite(number) else 0
    if size <= 0:
        raise UsageError(f"{text!r} is not a size; write it like 500MB or 4GiB")
    return size
