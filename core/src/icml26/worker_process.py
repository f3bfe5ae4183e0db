"""A worker as its guardian sees it: how it is started, spoken to, read, and ended with all that it started."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from icml26 import processes
from icml26.threads import thread_variables
from icml26.worker import PARENT_VARIABLE, PROGRESS_DESCRIPTOR, REQUEST_DESCRIPTOR

GRACE_SECONDS = 2.0
#: After SIGKILL; what still lives then is stuck in the kernel.
_GIVE_UP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Affinity:
    """What a process may be used again for: the same method, interpreter and number of threads."""

    method: str
    python: str
    threads: int


@dataclass(slots=True)
class WorkerProcess:
    """A worker process and the pipes to it. ``exited`` is its wait status once it has ended."""

    pid: int
    affinity: Affinity
    requests: int
    events: int
    exited: int | None = None
    served: int = 0
    _unread: bytes = field(default=b"", repr=False)

    @classmethod
    def start(cls, affinity: Affinity, request: dict[str, Any], folder: Path) -> Self:
        """Start a worker on its first request, in a session of its own.

        Raises UnwritableFolderError when the folder cannot be written, OSError when the interpreter cannot be started.
        """
        path = folder / "request.json"
        try:
            path.write_text(json.dumps(request, allow_nan=False) + "\n", encoding="utf-8")
            log = _high(os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
        except OSError as error:
            raise UnwritableFolderError(f"{folder}: {error.strerror or error}") from error
        requests_out, requests_in = (_high(item) for item in os.pipe())
        events_out, events_in = (_high(item) for item in os.pipe())
        nothing = _high(os.open(os.devnull, os.O_RDONLY))
        places = (
            (nothing, 0),
            (log, 1),
            (log, 2),
            (events_in, PROGRESS_DESCRIPTOR),
            (requests_out, REQUEST_DESCRIPTOR),
        )
        threads = thread_variables(affinity.threads)
        try:
            pid = os.posix_spawn(
                affinity.python,
                [affinity.python, "-I", "-m", "icml26.worker", str(path), str(folder), "--serve"],
                {**os.environ, **threads, PARENT_VARIABLE: str(os.getpid())},
                file_actions=[(os.POSIX_SPAWN_DUP2, source, target) for source, target in places],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE],
            )
        except OSError:
            os.close(requests_in)
            os.close(events_out)
            raise
        finally:
            for descriptor in (requests_out, events_in, log, nothing):
                os.close(descriptor)
        os.set_blocking(events_out, False)
        return cls(pid, affinity, requests_in, events_out)

    def send(self, request: dict[str, Any], folder: Path) -> None:
        """Hand over a further request; raises OSError when the worker is gone."""
        line = json.dumps({"request": request, "result_dir": str(folder)}, allow_nan=False).encode() + b"\n"
        while line:
            line = line[os.write(self.requests, line) :]

    def read(self) -> list[dict[str, Any]] | None:
        """The events that have arrived, None when the worker closed the pipe. Lines that are no events are dropped."""
        try:
            data = os.read(self.events, 1 << 20)
        except BlockingIOError:
            return []
        if not data:
            return None
        *lines, self._unread = (self._unread + data).split(b"\n")
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    found.append(event)
        return found

    def reap(self) -> None:
        """Collect every child of this process that ended, adopted ones too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.exited = status

    def wait(self, seconds: float) -> bool:
        """Wait for its end; False when it still lives after ``seconds``."""
        deadline = time.monotonic() + seconds
        while self.exited is None and time.monotonic() < deadline:
            self.reap()
            if self.exited is None:
                time.sleep(0.005)
        return self.exited is not None

    def end(self, *, idle: bool, grace: float = 0.0) -> None:
        """End it and all that it started.

        An ``idle`` one is let go in peace; a busy one gets SIGTERM when there is ``grace``; then SIGKILL until none is left.
        """
        os.close(self.requests)
        if idle and self.exited is None:
            self.wait(GRACE_SECONDS)
        elif grace:
            processes.send(processes.descendants(os.getpid()), signal.SIGTERM)
            deadline = time.monotonic() + grace
            while processes.descendants(os.getpid()) and time.monotonic() < deadline:
                self.reap()
                time.sleep(0.01)
        give_up = time.monotonic() + _GIVE_UP_SECONDS
        while (left := processes.descendants(os.getpid())) and time.monotonic() < give_up:
            processes.send(left, signal.SIGKILL)
            self.reap()
            time.sleep(0.002)
        self.reap()
        os.close(self.events)


class UnwritableFolderError(OSError):
    """A run's folder cannot be written."""


def _high(descriptor: int) -> int:
    """The same file above the numbers that the protocol uses, not inherited."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 16)
    os.close(descriptor)
    return moved
