"""Keep what plugins and their libraries print away from our standard output, down to the file descriptors."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def captured_streams(path: Path) -> Iterator[TextIO]:
    """Point descriptors 1 and 2 at the end of ``path``; yields a text stream to the real standard error.

    Only for processes that are ours (the command line, workers): descriptors belong to the whole process.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    saved: dict[int, int] = {}
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            saved[descriptor] = os.dup(descriptor)
    sink = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    terminal = os.fdopen(os.dup(saved[2]) if 2 in saved else os.open(os.devnull, os.O_WRONLY), "w", errors="replace")
    try:
        for descriptor in (1, 2):
            os.dup2(sink, descriptor)
        yield terminal
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        for descriptor in (1, 2):
            if descriptor in saved:
                os.dup2(saved[descriptor], descriptor)
                os.close(saved[descriptor])
            else:
                os.close(descriptor)
        os.close(sink)
        with contextlib.suppress(OSError):
            terminal.close()
        if path.stat().st_size == 0:
            path.unlink()
