"""The other end of a probe: import one hook module, call its hooks, write the index as one line of JSON, and be gone."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from typing import Any


def main(request: dict[str, Any]) -> None:
    """Answer ``request`` on its ``descriptor``; never returns."""
    # Should the parent be killed, a plugin that hangs must not outlive it; the default action ends C code too.
    signal.setitimer(signal.ITIMER_REAL, request["timeout"] + 2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    answer: dict[str, Any]
    try:
        from icml26.index_build import build_index

        answer = {"index": build_index(request["plugin"], request["distribution"], request["module"], schemas=False)}
        line = json.dumps(answer, allow_nan=False)
    except BaseException as error:  # noqa: BLE001 - whatever a plugin raises is the answer
        line = json.dumps({"failure": _reason(error), "details": traceback.format_exc()})
    _flush()
    data = memoryview(line.encode("utf-8", "replace") + b"\n")
    try:
        while data:
            data = data[os.write(request["descriptor"], data) :]
    finally:
        os._exit(0)  # threads and exit handlers of a plugin have no say


def _reason(error: BaseException) -> str:
    from icml26.errors import PluginError

    return str(error) if isinstance(error, PluginError) else f"{type(error).__name__}: {error}"


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    ctypes.CDLL(None).fflush(None)
