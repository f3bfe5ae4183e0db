"""Runs as Slurm jobs through submitit: each job starts the same guarded worker. The runs folder must be shared.

submitit pickles the function that a job calls and what it returns; we give it a module-level function and a string, and read
the record's file instead of its result.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from icml26.errors import EnvironmentError_
from icml26.executors import Event, Finished, Job, Started
from icml26.executors.remote import Beat, ask_to_cancel, conclude, job_text, run_guarded
from icml26.ids import new_id
from icml26.records import Status
from icml26.verdict import Verdict, read_answer

_POLL_SECONDS = 0.2
_STATE_EVERY_SECONDS = 15.0
#: Between a job's end and its record's appearance on this host.
_FILE_PATIENCE_SECONDS = 10.0
_DEFAULT_MINUTES = 24 * 60
_CLOSE_SECONDS = 8.0

_STATES: dict[str, tuple[Status, str]] = {
    "TIMEOUT": ("timed-out", "Slurm ended the job at its time limit"),
    "DEADLINE": ("timed-out", "Slurm ended the job at its deadline"),
    "OUT_OF_MEMORY": ("out-of-memory", "Slurm ended the job for lack of memory"),
    "CANCELLED": ("killed", "the Slurm job was cancelled"),
    "PREEMPTED": ("killed", "the Slurm job was preempted"),
    "NODE_FAIL": ("killed", "the node of the Slurm job failed"),
    "INTERRUPTED": ("killed", "the job's process was ended from outside"),
}


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes that are started here never get the terminal's Ctrl-C; ours comes at the end.

    submitit's own processes share our terminal: each would die of an interruption with a traceback, and leave its job without
    anybody who ends it in order. ``close`` does that.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class SlurmExecutor:
    """Jobs of a cluster; ``cluster="local"`` runs submitit's own processes on this machine.

    ``folder`` is a shared folder for submitit's files and logs; ``parameters`` are submitit's (``slurm_partition``,
    ``slurm_account``, ``timeout_min``, …). At most ``slots`` jobs are in the queue at a time.
    """

    name = "slurm"

    def __init__(
        self,
        folder: Path,
        *,
        slots: int = 64,
        cluster: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import submitit
        except ImportError as error:
            raise EnvironmentError_("--executor slurm needs `pip install 'icml26[slurm]'`") from error
        self.slots = slots
        self._parameters = dict(parameters or {})
        try:
            self._executor: Any = submitit.AutoExecutor(folder=folder / "%j", cluster=cluster or "slurm")
        except (RuntimeError, ValueError, OSError) as error:
            raise EnvironmentError_(f"Slurm cannot be used here: {error}") from error
        self._beat = Beat(folder / f".slurm-{new_id()}")
        self._jobs: dict[str, tuple[Job, Any]] = {}
        self._over: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._events: list[Event] = []

    def submit(self, job: Job) -> None:
        """Queue a job with the cores, memory and time that its request asks for."""
        self._beat.touch()
        self._executor.update_parameters(**self._resources(job))
        try:
            with _deaf_children():
                handle = self._executor.submit(run_guarded, job_text(job, self._beat.path))
        except Exception as error:  # submitit raises its own and subprocess's errors
            raise EnvironmentError_(f"Slurm refused a job: {error}") from error
        self._jobs[job.id] = (job, handle)

    def poll(self, timeout: float) -> list[Event]:
        """What ended; progress does not cross."""
        deadline = time.monotonic() + timeout
        while True:
            self._beat.touch()
            for job_id, (job, handle) in list(self._jobs.items()):
                event = self._look(job, handle)
                if event is not None:
                    self._events.append(event)
                if isinstance(event, Finished) or (event is not None and not isinstance(event, Started)):
                    for table in (self._jobs, self._over, self._asked):
                        table.pop(job_id, None)
            if self._events or time.monotonic() >= deadline:
                found, self._events = self._events, []
                return found
            time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))

    def cancel(self, job_id: str) -> None:
        """End a job now."""
        if job_id in self._jobs:
            ask_to_cancel(self._jobs[job_id][0])

    def close(self) -> None:
        """Have running jobs end themselves, then cancel all of them."""
        self._beat.stop()
        for job, _ in self._jobs.values():
            ask_to_cancel(job)
        deadline = time.monotonic() + _CLOSE_SECONDS
        while time.monotonic() < deadline and any(
            handle.state.upper() == "RUNNING" and read_answer(job.request, job.folder) is None
            for job, handle in self._jobs.values()
        ):
            time.sleep(_POLL_SECONDS)
        for _, handle in self._jobs.values():
            handle.cancel(check=False)
        self._jobs.clear()

    def _look(self, job: Job, handle: Any) -> Event | None:
        if read_answer(job.request, job.folder) is not None:
            return Finished(job.id, job.folder)
        now = time.monotonic()
        if job.id in self._over:
            return self._lost(job, handle) if now - self._over[job.id] > _FILE_PATIENCE_SECONDS else None
        if job.id not in self._asked and (job.folder / "request.json").exists():
            self._asked[job.id] = 0.0
            return Started(job.id)
        if handle.done():
            self._over[job.id] = now
        return None

    def _lost(self, job: Job, handle: Any) -> Event:
        state = str(handle.state).split(" ")[0].split("+")[0].upper()
        status, text = _STATES.get(state, ("failed", f"the Slurm job ended as {state}"))
        log = handle.paths.stderr
        return conclude(job, Verdict(status, "SlurmJob", f"{text} (job {handle.job_id}, log {log})"))

    def _resources(self, job: Job) -> dict[str, Any]:
        limits = job.limits
        asked: dict[str, Any] = {
            "name": "icml26",
            "cpus_per_task": int(job.request.get("threads") or 1),
            "timeout_min": _DEFAULT_MINUTES,
        }
        if "timeout_seconds" in limits:
            asked["timeout_min"] = math.ceil(limits["timeout_seconds"] / 60) + 5
        if "memory_bytes" in limits:
            asked["mem_gb"] = math.ceil(limits["memory_bytes"] / 2**30) + 1
        return asked | self._parameters
