"""Identifiers that sort by time and never meet twice (UUID version 7, RFC 9562)."""

from __future__ import annotations

import os
import time


def new_id() -> str:
    """A time-ordered unique id: 48 bits of Unix milliseconds, 12 bits of their fraction, then random bits.

    The fraction (RFC 9562, section 6.2, method 3) orders ids that one process makes within a millisecond.
    """
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    fraction = nanoseconds * 4096 // 1_000_000
    random = int.from_bytes(os.urandom(8), "big") >> 2
    value = (milliseconds & (1 << 48) - 1) << 80 | 0x7 << 76 | fraction << 64 | 0x2 << 62 | random
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
