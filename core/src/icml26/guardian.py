"""The small parent of a worker: it applies limits, outlives every crash, writes the record that a dead worker could not.

``python -I -m icml26.guardian`` reads commands as JSON lines on descriptor 0 and writes events as JSON lines on descriptor 1.
Commands: ``{"op": "run", "request", "folder", "affinity", "python", "fresh"}``, ``{"op": "cancel"}``. When descriptor 0 is
closed, or its parent is gone, it ends everything that the worker started and then itself. It runs no plugin code.
"""

from __future__ import annotations

import contextlib
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
from icml26.records import RunRecord, RunRequest
from icml26.verdict import CANCELLED, Verdict, leave_record, read_answer
from icml26.worker_process import GRACE_SECONDS, Affinity, UnwritableFolderError, WorkerProcess

#: Interpreter start and the reading of the catalog, before the request's own time starts.
BOOT_SECONDS = 120.0
_SAMPLE_SECONDS = 0.25
_SAMPLE_SECONDS_LIMITED = 0.02
_TELL_WITHIN_SECONDS = 0.02
_MAX_BACKLOG = 1 << 16


@dataclass(slots=True)
class Job:
    """What the guardian knows of the request that its worker serves."""

    request: dict[str, Any]
    folder: Path
    affinity: Affinity
    fresh: bool
    submitted: float = field(default_factory=time.monotonic)
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    begun: float | None = None
    peak: int = 0
    had_children: bool = False
    kills_before: int = -1

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


class Guardian:
    """One worker at a time, one request at a time."""

    def __init__(self) -> None:
        self.parent = os.getppid()
        self.worker: WorkerProcess | None = None
        self.job: Job | None = None
        self.commands = b""
        self.outgoing = bytearray()
        self.flush_at = 0.0
        self.sampled = 0.0
        self.kills, self.kills_read = processes.out_of_memory_kills(), time.monotonic()
        self.ending = False
        self.told: str | None = None
        self.company = False  # whether the worker was not alone when last looked at
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
        due = bool(self.outgoing) and time.monotonic() >= self.flush_at
        ready, writable, _ = select.select(reading, [1] if due else [], [], self._pause())
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
        if self.worker is not None:
            self.worker.reap()
        self._watch()
        if 0 in ready:
            self._hear_parent()

    def _pause(self) -> float:
        job = self.job
        if job is None:
            return 1.0
        pause = _SAMPLE_SECONDS if job.memory is None else _SAMPLE_SECONDS_LIMITED
        if self.outgoing:
            pause = min(pause, max(0.0, self.flush_at - time.monotonic()))
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
                self._conclude(Verdict("killed", CANCELLED, "the run was cancelled"))

    def _tell(self, event: Mapping[str, Any], *, end: bool = False) -> None:
        """Queue an event. The end of a job is told at once; what is on the way may wait for it, or be dropped when the parent
        does not listen: waking it twice for a run that takes a millisecond costs as much as the run.
        """
        if not end and len(self.outgoing) > _MAX_BACKLOG:
            return
        if not self.outgoing:
            self.flush_at = time.monotonic() + _TELL_WITHIN_SECONDS
        self.outgoing += json.dumps(event, allow_nan=False).encode() + b"\n"
        if end:
            self.flush_at = 0.0
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
        affinity = Affinity(str(command.get("affinity", "")), str(python), int(request.get("threads") or 1))
        fresh = bool(command.get("fresh")) or "memory_bytes" in (request.get("limits") or {})
        if time.monotonic() - self.kills_read > 1.0:
            self.kills, self.kills_read = processes.out_of_memory_kills(), time.monotonic()
        self.job = Job(request, Path(command["folder"]), affinity, fresh, kills_before=self.kills)
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
        try:
            if worker is not None:
                worker.send(job.request, job.folder)
                return
        except OSError:
            self._end_worker()
        try:
            self.worker = WorkerProcess.start(job.affinity, job.request, job.folder)
        except UnwritableFolderError as error:
            self._unwritten(str(error))
        except OSError as error:
            text = f"{job.affinity.python}: cannot be started ({error.strerror})"
            self._conclude(Verdict("failed", "WorkerStart", text))

    def _hear_worker(self) -> None:
        """Events until there are no more for now, or the worker is another one."""
        worker = self.worker
        assert worker is not None
        events = worker.read()
        if events is None and not worker.wait(GRACE_SECONDS):
            # It lives but closed the pipe: what it does can no longer be told apart from a hang.
            self._end_worker()
            self._conclude(Verdict("failed", "LostContact", "the run closed the descriptors of its own process"))
        for event in events or ():
            if self.worker is worker:
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
            self._tell(event)
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
        answer = read_answer(job.request, job.folder)
        if answer is None:
            self._conclude(Verdict("failed", "NoRecord", "the run removed or damaged its own record"))
            return
        own_peak = (answer.peak_memory_bytes or 0) if isinstance(answer, RunRecord) else 0
        if job.memory is not None and own_peak > job.memory:
            # A short peak between two samples: the limit holds for it all the same.
            job.peak = max(job.peak, own_peak)
            self._end_worker()
            self._conclude(_over_limit(job), overrule=True)
            return
        if job.had_children:
            with contextlib.suppress(OSError):  # a full disk: the record keeps the worker's own peak
                leave_record(job.request, job.folder, None, peak=job.peak)
        self.job = None
        self._tell({"event": "finished", "id": job.id}, end=True)
        if job.fresh or self.company:
            self._end_worker()

    def _unwritten(self, reason: str, record: dict[str, Any] | None = None) -> None:
        job = self.job
        assert job is not None
        self.job = None
        self._tell({"event": "unwritten", "id": job.id, "reason": reason, "record": record}, end=True)

    def _conclude(self, verdict: Verdict, *, overrule: bool = False) -> None:
        """The worker is dead: its answer if it left one (unless that is overruled), else ours."""
        job = self.job
        if job is None:
            return
        self.job = None
        verdict.seconds, verdict.started = job.seconds, job.started_at
        try:
            leave_record(job.request, job.folder, verdict, peak=job.peak or None, overrule=overrule)
        except OSError as error:
            document = verdict.record(RunRequest.from_json(job.request)).to_json() if "method" in job.request else None
            reason = f"{job.folder}: {error.strerror or error}"
            self._tell({"event": "unwritten", "id": job.id, "reason": reason, "record": document}, end=True)
        else:
            self._tell({"event": "finished", "id": job.id}, end=True)

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
            while self.worker is worker and (events := worker.read()):
                for event in events:
                    self._heard(event)
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
                self._conclude(_over_limit(job))

    def _sample(self) -> int:
        """Bytes that the tree holds now. Pages that its processes share are counted once."""
        job = self.job
        assert job is not None
        self.sampled = time.monotonic()
        tree = processes.descendants(os.getpid())
        held = processes.resident_bytes(tree)
        self.company = len(tree) > 1
        if self.company:
            job.had_children = True
            if held > job.peak:
                held = processes.proportional_bytes(tree)
        job.peak = max(job.peak, held)
        return held

    def _end_worker(self, grace: float = 0.0) -> None:
        """End the worker and all that it started."""
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.end(idle=self.job is None or (worker.served > 0 and self.job.begun is None), grace=grace)


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


def _over_limit(job: Job) -> Verdict:
    text = f"the processes of the run held {_gib(job.peak)}; the limit is {_gib(job.memory or 0)}"
    return Verdict("out-of-memory", "MemoryLimit", text)


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def main() -> int:
    """Guard until the parent is gone."""
    processes.adopt_orphans()
    Guardian().serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
