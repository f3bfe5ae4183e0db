"""Worker processes on this machine, each under a guardian of its own."""

from __future__ import annotations

import select
import time

from icml26.executors import Event, Job
from icml26.executors.guarded import Guarded


class LocalExecutor:
    """``workers`` processes side by side; a process is reused for the same method and interpreter."""

    name = "local"

    def __init__(self, workers: int = 1) -> None:
        self.slots = max(1, workers)
        self._guarded = [Guarded() for _ in range(self.slots)]

    def submit(self, job: Job) -> None:
        """Start a job in a free slot: one whose process already knows the method, else one that has none, else any."""
        free = [slot for slot in self._guarded if slot.job is None]
        wanted = (job.affinity, job.python)
        free.sort(key=lambda slot: (slot.affinity != wanted, slot.affinity is not None))
        free[0].submit(job)

    def poll(self, timeout: float) -> list[Event]:
        """What happened; waits up to ``timeout`` seconds for the first event."""
        deadline = time.monotonic() + timeout
        while True:
            started = [slot for slot in self._guarded if slot.fileno() >= 0]
            found = [event for slot in started for event in slot.events()]
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            waiting = [slot for slot in self._guarded if slot.fileno() >= 0]
            if waiting:
                poller = select.poll()
                for slot in waiting:
                    poller.register(slot.fileno(), select.POLLIN)
                poller.poll(left * 1000)
            else:
                time.sleep(left)

    def cancel(self, job_id: str) -> None:
        """End a job now."""
        for slot in self._guarded:
            if slot.job is not None and slot.job.id == job_id:
                slot.cancel()

    def close(self) -> None:
        """End every process: all guardians are told first, then waited for."""
        for slot in self._guarded:
            slot.begin_close()
        for slot in self._guarded:
            slot.close()
