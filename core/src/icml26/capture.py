"""Keep what plugins and their libraries print away from our standard output, down to the file descriptors."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def captured_streams(path: Path) -> Iterator[None]:
    """Point descriptors 1 and 2 at the end of ``path`` for a while; no file is left when nothing was written.

    Only for processes that are ours (the command line, workers): descriptors belong to the whole process.
    """
    _flush()
    saved: dict[int, int] = {}
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            saved[descriptor] = os.dup(descriptor)
    sink = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        for descriptor in (1, 2):
            os.dup2(sink, descriptor)
        yield
    finally:
        _flush()
        for descriptor in (1, 2):
            if descriptor in saved:
                os.dup2(saved[descriptor], descriptor)
                os.close(saved[descriptor])
            else:
                os.close(descriptor)
        os.close(sink)
        if path.stat().st_size == 0:
            path.unlink()


def terminal_stream() -> TextIO:
    """A text stream of its own to the standard error of now, which ``captured_streams`` does not redirect."""
    try:
        descriptor = os.dup(2)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
    return os.fdopen(descriptor, "w", errors="replace")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
