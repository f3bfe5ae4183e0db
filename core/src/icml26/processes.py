"""What the kernel knows about processes: who descends from whom, how much they hold, and how to end them all.

Linux is read through ``/proc`` (a sample of a tree costs some 0.1 ms); elsewhere psutil does it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

#: Marks every process that was started for runs: ``<coordinator>:<guardian>``. It survives double forks and new sessions.
TOKEN_VARIABLE = "ICML26_TOKEN"

LINUX = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when the thread that started it is gone; ends at once if ``parent`` is gone already."""
    if LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ended, so that a double fork does not escape (Linux)."""
    if LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def process_started(pid: int) -> float:
    """When a living process started (clock ticks after boot, or seconds of the epoch), -1 when there is none."""
    if LINUX:
        fields = _stat_fields(pid)
        return -1.0 if fields is None or fields[0] in ("Z", "X") else float(fields[19])
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return -1.0


def own_token() -> str:
    """The coordinator's part of the token of what this process starts; ``token_of`` gives that of another process."""
    return token_of(os.getpid(), process_started(os.getpid()))


def token_of(pid: int, started: float) -> str:
    """The token of a coordinator, known from its process id and when it started."""
    return f"{pid}.{started:.0f}"


def children(pid: int) -> list[int]:
    """The living and unreaped children of a process."""
    if LINUX and not _children_are_listed():
        return _children_by_scan(pid)
    if LINUX:
        found: list[int] = []
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - a hot path
                with contextlib.suppress(OSError):
                    found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
        except OSError:
            return found
        return found
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


@cache
def _children_are_listed() -> bool:
    """Whether this kernel lists children (``CONFIG_PROC_CHILDREN``); some sandboxes do not."""
    return Path(f"/proc/self/task/{os.getpid()}/children").exists()


def _children_by_scan(pid: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - a hot path
        if name.isdigit():
            fields = _stat_fields(int(name))
            if fields is not None and int(fields[1]) == pid:
                found.append(int(name))
    return found


def descendants(pid: int) -> list[int]:
    """All processes below ``pid``, parents before their children."""
    found: list[int] = []
    waiting = children(pid)
    while waiting:
        current = waiting.pop(0)
        if current not in found:
            found.append(current)
            waiting += children(current)
    return found


def resident_bytes(pids: Iterable[int]) -> int:
    """The sum of the resident sizes; memory that processes share counts once for each of them."""
    total = 0
    for pid in pids:
        if LINUX:
            with contextlib.suppress(OSError, IndexError, ValueError):
                total += int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE
            continue
        import psutil

        with contextlib.suppress(psutil.Error):
            total += psutil.Process(pid).memory_info().rss
    return total


def proportional_bytes(pids: Iterable[int]) -> int:
    """Like ``resident_bytes``, but shared memory is divided among those who share it (Linux; slower)."""
    total = 0
    for pid in pids:
        try:
            text = _read(f"/proc/{pid}/smaps_rollup")
            line = next(line for line in text.splitlines() if line.startswith("Pss:"))
            total += int(line.split()[1]) * 1024
        except (OSError, StopIteration, ValueError, IndexError):
            total += resident_bytes([pid])
    return total


def with_token(token: str) -> list[int]:
    """The processes of this user that were started under a token; ``token`` is a coordinator's, or one with a guardian."""
    marks = [f"{TOKEN_VARIABLE}={token}".encode() + end for end in (b"\0", b":")]
    found = []
    if LINUX:
        for name in os.listdir("/proc"):  # noqa: PTH208 - a hot path
            if name.isdigit() and int(name) != os.getpid():
                with contextlib.suppress(OSError):
                    environment = b"\0" + Path(f"/proc/{name}/environ").read_bytes() + b"\0"
                    if any(b"\0" + mark in environment for mark in marks):
                        found.append(int(name))
        return found
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            value = process.environ().get(TOKEN_VARIABLE, "")
            if process.pid != os.getpid() and (value == token or value.startswith(token + ":")):
                found.append(process.pid)
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to those that still live."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def sweep(token: str, *, patience: float = 0.0) -> None:
    """End every process with this token: they get ``patience`` seconds to end by themselves, then SIGKILL until none is left."""
    deadline = time.monotonic() + patience
    while left := with_token(token):
        if time.monotonic() >= deadline:
            send(left, signal.SIGKILL)
        if time.monotonic() > deadline + 10.0:
            return  # they are stuck in the kernel; nothing that a signal could do
        time.sleep(0.02)


def out_of_memory_kills() -> int:
    """How often the kernel has killed for lack of memory, here or in our control group; -1 where it does not say."""
    if not LINUX:
        return -1
    count = -1
    with contextlib.suppress(OSError, ValueError):
        for line in _read("/proc/vmstat").splitlines():
            if line.startswith("oom_kill "):
                count = int(line.split()[1])
    return count


# Whether the kernel's peak of this process is that of an earlier run: a fact of the process, so it lives with it.
_peak_is_old = False


def reset_peak() -> bool:
    """Start the measurement of this process's peak anew; False where the kernel cannot: the peak is unknown from then on."""
    global _peak_is_old
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        _peak_is_old = True
    return not _peak_is_old


def peak_bytes() -> int | None:
    """The largest resident size of this process since ``reset_peak`` or its start; None where it is not known."""
    if _peak_is_old:
        return None
    if LINUX:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return _status_bytes("VmHWM")
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def private_bytes() -> int:
    """The anonymous memory that this process holds now (its heaps); 0 where it is not known."""
    if LINUX:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return _status_bytes("RssAnon")
    return 0


def release_free_memory() -> None:
    """Give freed heap pages back to the kernel (glibc keeps them otherwise)."""
    if LINUX:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _status_bytes(name: str) -> int:
    text = _read("/proc/self/status")
    start = text.index(f"{name}:") + len(name) + 1
    return int(text[start : text.index("kB", start)]) * 1024


def _stat_fields(pid: int) -> list[str] | None:
    try:
        return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except OSError:
        return None


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a hot path
        return file.read()
