"""The small parent of a worker: it applies limits, outlives every crash, writes the record that a dead worker could not.

``python -I -m icml26.guardian`` reads commands as JSON lines on descriptor 0 and writes events as JSON lines on descriptor 1.
Commands: ``{"op": "run", "request", "folder", "affinity", "python", "fresh"}``, ``{"op": "cancel"}``. When descriptor 0 is
closed, or its parent is gone, it ends everything that the worker started and then itself. It runs no plugin code.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from icml26 import processes
from icml26.records import RunRequest
from icml26.threads import thread_variables
from icml26.verdict import Verdict, leave_record, read_answer
from icml26.worker import PARENT_VARIABLE, PROGRESS_DESCRIPTOR, REQUEST_DESCRIPTOR

GRACE_SECONDS = 2.0
#: Interpreter start and the reading of the catalog, before the request's own time starts.
BOOT_SECONDS = 120.0
_SAMPLE_SECONDS = 0.25
_SAMPLE_SECONDS_LIMITED = 0.02
_MAX_BACKLOG = 1 << 16


@dataclass(slots=True)
class Job:
    """What the guardian knows of the request that its worker serves."""

    request: dict[str, Any]
    folder: Path
    affinity: tuple[str, str, int]
    fresh: bool
    submitted: float = field(default_factory=time.monotonic)
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    begun: float | None = None
    peak: int = 0
    had_children: bool = False
    kills_before: int = field(default_factory=processes.out_of_memory_kills)

    @property
    def id(self) -> str:
        """The record's id."""
        return str(self.request.get("record_id"))

    @property
    def timeout(self) -> float | None:
        """Seconds from the worker's ``begin``."""
        value = (self.request.get("limits") or {}).get("timeout_seconds")
        return None if value is None else float(value)

    @property
    def memory(self) -> float | None:
        """Bytes that the process tree may hold."""
        value = (self.request.get("limits") or {}).get("memory_bytes")
        return None if value is None else float(value)

    @property
    def deadline(self) -> float | None:
        """When (monotonic) it has had its time."""
        if self.begun is None:
            return self.submitted + BOOT_SECONDS
        return None if self.timeout is None else self.begun + self.timeout

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - (self.begun if self.begun is not None else self.submitted)


@dataclass(slots=True)
class Worker:
    """A worker process and the pipes to it."""

    pid: int
    affinity: tuple[str, str, int]
    requests: int
    events: int
    buffer: bytes = b""
    exited: int | None = None
    served: int = 0


class Guardian:
    """One worker at a time, one request at a time."""

    def __init__(self) -> None:
        self.parent = os.getppid()
        self.worker: Worker | None = None
        self.job: Job | None = None
        self.commands = b""
        self.outgoing = bytearray()
        self.sampled = 0.0
        self.ending = False
        self.told: str | None = None
        self.wake, wake_in = os.pipe()
        for descriptor in (self.wake, wake_in):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._told_to_end)
        os.set_blocking(0, False)
        os.set_blocking(1, False)

    def serve(self) -> None:
        """Until the parent is gone or says so."""
        try:
            while not self.ending and os.getppid() == self.parent:
                self._step()
        finally:
            self._end_worker(1.0)

    def _told_to_end(self, number: int, frame: object) -> None:
        self.told = signal.Signals(number).name

    def _step(self) -> None:
        reading = [0, self.wake]
        if self.worker is not None and self.worker.exited is None:
            reading.append(self.worker.events)
        ready, writable, _ = select.select(reading, [1] if self.outgoing else [], [], self._pause())
        if self.wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.wake, 4096)
        if self.told is not None:
            # ``scancel``, a closed session: the run that is under way is recorded as ended by it.
            self._end_worker()
            self._conclude(Verdict("killed", "Signal", f"the job was ended from outside by {self.told}", self.told))
            self._flush(wait=1.0)
            self.ending = True
            return
        if self.worker is not None and self.worker.events in ready:
            self._hear_worker()
        if writable:
            self._flush()
        self._reap()
        self._watch()
        if 0 in ready:
            self._hear_parent()

    def _pause(self) -> float:
        job = self.job
        if job is None:
            return 1.0
        pause = _SAMPLE_SECONDS if job.memory is None else _SAMPLE_SECONDS_LIMITED
        if job.deadline is not None:
            pause = min(pause, max(0.0, job.deadline - time.monotonic()))
        return pause

    # -- the parent ------------------------------------------------------------------------------------------------

    def _hear_parent(self) -> None:
        try:
            data = os.read(0, 1 << 20)
        except BlockingIOError:
            return
        if not data:
            self.ending = True
            return
        *lines, self.commands = (self.commands + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            if command["op"] == "run":
                self._take_job(command)
            elif command["op"] == "cancel" and self.job is not None:
                self._end_worker()
                self._conclude(Verdict("killed", "Cancelled", "the run was cancelled"))

    def _tell(self, event: Mapping[str, Any], *, droppable: bool = False) -> None:
        """Queue an event; a parent that does not listen for a while misses progress, never an end."""
        if droppable and len(self.outgoing) > _MAX_BACKLOG:
            return
        self.outgoing += json.dumps(event, allow_nan=False).encode() + b"\n"
        self._flush()

    def _flush(self, wait: float = 0.0) -> None:
        deadline = time.monotonic() + wait
        while self.outgoing:
            try:
                del self.outgoing[: os.write(1, self.outgoing)]
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return
                time.sleep(0.01)
            except OSError:
                self.outgoing.clear()  # the parent is gone, which the next step notices
                self.ending = True

    # -- the worker ------------------------------------------------------------------------------------------------

    def _take_job(self, command: dict[str, Any]) -> None:
        request, python = command["request"], command.get("python") or sys.executable
        affinity = (str(command.get("affinity", "")), str(python), int(request.get("threads") or 1))
        fresh = bool(command.get("fresh")) or "memory_bytes" in (request.get("limits") or {})
        self.job = Job(request, Path(command["folder"]), affinity, fresh)
        try:
            self.job.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._unwritten(f"{self.job.folder}: {error.strerror or error}")
            return
        self._start_job()

    def _start_job(self) -> None:
        job = self.job
        assert job is not None
        worker = self.worker
        if worker is not None and (job.fresh or worker.affinity != job.affinity or worker.exited is not None):
            self._end_worker()
            worker = None
        if worker is not None:
            line = json.dumps({"request": job.request, "result_dir": str(job.folder)}).encode() + b"\n"
            try:
                while line:
                    line = line[os.write(worker.requests, line) :]
                return
            except OSError:
                self._end_worker()
        try:
            path = job.folder / "request.json"
            path.write_text(json.dumps(job.request, allow_nan=False) + "\n", encoding="utf-8")
            log = _high(os.open(job.folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644))
        except OSError as error:
            self._unwritten(f"{job.folder}: {error.strerror or error}")
            return
        try:
            self._spawn(job, path, log)
        except OSError as error:
            self._conclude(Verdict("failed", "WorkerStart", f"{job.affinity[1]}: cannot be started ({error.strerror})"))

    def _spawn(self, job: Job, path: Path, log: int) -> None:
        requests_out, requests_in = (_high(item) for item in os.pipe())
        events_out, events_in = (_high(item) for item in os.pipe())
        nothing = _high(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        places = (
            (nothing, 0),
            (log, 1),
            (log, 2),
            (events_in, PROGRESS_DESCRIPTOR),
            (requests_out, REQUEST_DESCRIPTOR),
        )
        python = job.affinity[1]
        arguments = [python, "-I", "-m", "icml26.worker", str(path), str(job.folder), "--serve"]
        threads = thread_variables(job.affinity[2])
        try:
            pid = os.posix_spawn(
                python,
                arguments,
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
        self.worker = Worker(pid, job.affinity, requests_in, events_out)

    def _hear_worker(self) -> None:
        worker = self.worker
        assert worker is not None
        try:
            data = os.read(worker.events, 1 << 20)
        except BlockingIOError:
            return
        if data:
            self._heard_lines(worker, data)
        elif self._wait(worker.pid, GRACE_SECONDS) is None:
            # It lives but closed the pipe: what it does can no longer be told apart from a hang.
            self._end_worker()
            self._conclude(Verdict("failed", "LostContact", "the run closed the descriptors of its own process"))

    def _heard_lines(self, worker: Worker, data: bytes) -> None:
        *lines, worker.buffer = (worker.buffer + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and self.worker is worker:
                    self._heard(event)

    def _heard(self, event: dict[str, Any]) -> None:
        job, worker = self.job, self.worker
        if job is None or worker is None or event.get("id") != job.id:
            return
        kind = event.get("event")
        if kind == "begin":
            job.begun = time.monotonic()
            self._tell({"event": "started", "id": job.id})
        elif kind in ("progress", "point"):
            self._tell(event, droppable=True)
        elif kind == "decline":
            self._end_worker()
            job.submitted = time.monotonic()
            self._start_job()
        elif kind == "done":
            worker.served += 1
            self._sample()
            self._finished()
        elif kind == "unwritten":
            self._unwritten(str(event.get("reason")), event.get("record"))

    def _finished(self) -> None:
        """The worker left its answer: add what only the tree's parent could measure, and let go of processes left behind."""
        job, worker = self.job, self.worker
        assert job is not None and worker is not None
        if read_answer(job.request, job.folder) is None:
            self._conclude(Verdict("failed", "NoRecord", "the run removed or damaged its own record"))
            return
        if job.had_children:
            leave_record(job.request, job.folder, None, peak=job.peak)
        self.job = None
        self._tell({"event": "finished", "id": job.id})
        if job.fresh or processes.children(worker.pid) or len(processes.children(os.getpid())) > 1:
            self._end_worker()

    def _unwritten(self, reason: str, record: dict[str, Any] | None = None) -> None:
        job = self.job
        assert job is not None
        self.job = None
        self._tell({"event": "unwritten", "id": job.id, "reason": reason, "record": record})

    def _conclude(self, verdict: Verdict) -> None:
        """The worker is dead: its answer if it left one, else ours."""
        job = self.job
        if job is None:
            return
        self.job = None
        verdict.seconds, verdict.started = job.seconds, job.started_at
        try:
            leave_record(job.request, job.folder, verdict, peak=job.peak or None)
        except OSError as error:
            document = verdict.record(RunRequest.from_json(job.request)).to_json() if "method" in job.request else None
            reason = f"{job.folder}: {error.strerror or error}"
            self._tell({"event": "unwritten", "id": job.id, "reason": reason, "record": document})
        else:
            self._tell({"event": "finished", "id": job.id})

    # -- watching and ending -----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        job, worker = self.job, self.worker
        if worker is None:
            return
        if job is None:
            if worker.exited is not None:
                self._end_worker()
            return
        if worker.exited is not None:
            self._hear_rest()
            if self.job is not None and self.worker is worker:
                status = worker.exited
                self._end_worker()
                self._conclude(_verdict_of_exit(status, job))
            return
        now = time.monotonic()
        if job.deadline is not None and now >= job.deadline:
            self._end_worker(GRACE_SECONDS)
            if job.begun is None:
                text = f"the worker did not come up within {BOOT_SECONDS:.0f} s"
                self._conclude(Verdict("failed", "WorkerStart", text))
            else:
                text = f"stopped after {now - job.begun:.2f} s; the limit is {job.timeout:g} s"
                self._conclude(Verdict("timed-out", "TimeLimit", text))
            return
        if now - self.sampled >= (_SAMPLE_SECONDS if job.memory is None else _SAMPLE_SECONDS_LIMITED):
            held = self._sample()
            if job.memory is not None and held > job.memory:
                self._end_worker()
                text = f"the processes of the run held {_gib(held)}; the limit is {_gib(job.memory)}"
                self._conclude(Verdict("out-of-memory", "MemoryLimit", text))

    def _sample(self) -> int:
        """Bytes that the tree holds now. Pages that its processes share are counted once."""
        job = self.job
        assert job is not None
        self.sampled = time.monotonic()
        tree = processes.descendants(os.getpid())
        held = processes.resident_bytes(tree)
        if len(tree) > 1:
            job.had_children = True
            if held > job.peak:
                held = processes.proportional_bytes(tree)
        job.peak = max(job.peak, held)
        return held

    def _hear_rest(self) -> None:
        """What a worker said before it died."""
        worker = self.worker
        while worker is not None and self.worker is worker:
            try:
                data = os.read(worker.events, 1 << 20)
            except OSError:
                return
            if not data:
                return
            self._heard_lines(worker, data)

    def _reap(self) -> None:
        """Collect every child that ended, adopted ones too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.worker is not None and pid == self.worker.pid:
                self.worker.exited = status

    def _wait(self, pid: int, seconds: float) -> int | None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._reap()
            if self.worker is None or self.worker.pid != pid or self.worker.exited is not None:
                return self.worker.exited if self.worker is not None else 0
            time.sleep(0.005)
        return None

    def _end_worker(self, grace: float = 0.0) -> None:
        """End the worker and all that it started. One that is idle and has nothing below it may leave in peace."""
        worker = self.worker
        if worker is None:
            return
        os.close(worker.requests)
        idle = self.job is None or (worker.served > 0 and self.job.begun is None)
        if idle and worker.exited is None:
            self._wait(worker.pid, GRACE_SECONDS)
        elif grace:
            processes.send(processes.descendants(os.getpid()), signal.SIGTERM)
            deadline = time.monotonic() + grace
            while processes.descendants(os.getpid()) and time.monotonic() < deadline:
                self._reap()
                time.sleep(0.01)
        give_up = time.monotonic() + 10.0
        while (left := processes.descendants(os.getpid())) and time.monotonic() < give_up:
            processes.send(left, signal.SIGKILL)
            self._reap()
            time.sleep(0.002)
        self._reap()
        os.close(worker.events)
        self.worker = None


def _verdict_of_exit(status: int, job: Job) -> Verdict:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        if number == signal.SIGKILL and processes.out_of_memory_kills() > job.kills_before >= 0:
            text = f"the kernel ran out of memory and ended it; it was last seen with {_gib(job.peak)}"
            return Verdict("out-of-memory", "KernelOutOfMemory", text, name)
        return Verdict("killed", "Signal", f"the process was ended by {name}", name)
    code = os.waitstatus_to_exitcode(status)
    if job.begun is None:
        return Verdict("failed", "WorkerStart", f"the worker ended with exit code {code} before the run began")
    return Verdict("failed", "ProcessExit", f"the process ended by itself with exit code {code}, without a record")


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"


def _high(descriptor: int) -> int:
    """The same file above the numbers that the protocol uses."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 16)
    os.close(descriptor)
    return moved


def main() -> int:
    """Guard until the parent is gone."""
    processes.adopt_orphans()
    Guardian().serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
