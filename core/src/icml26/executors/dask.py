"""Runs on a Dask cluster: each task starts the same guarded worker, so a crash of a method never reaches Dask's own processes.

A scheduler's port executes whatever it is sent: use one in a network that you trust. The runs folder must be shared.
"""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from icml26.errors import EnvironmentError_
from icml26.executors import Event, Finished, Job, Started, Unwritten
from icml26.executors.remote import Beat, ask_to_cancel, conclude, job_text, run_guarded
from icml26.ids import new_id
from icml26.verdict import Verdict

_CONNECT_SECONDS = 20.0
_CLOSE_SECONDS = 8.0


class DaskExecutor:
    """Jobs as tasks of the scheduler at ``address``; ``folder`` is a shared folder for the heartbeat."""

    name = "dask"

    def __init__(self, address: str, folder: Path) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise EnvironmentError_("--executor dask needs `pip install 'icml26[dask]'`") from error
        try:
            self._client: Any = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise EnvironmentError_(f"no Dask scheduler answers at {address}: {error}") from error
        threads = self._client.nthreads()
        if not threads:
            self._client.close()
            raise EnvironmentError_(f"the Dask scheduler at {address} has no workers; start some with `dask worker`")
        self.slots = sum(threads.values())
        self._beat = Beat(folder / f".dask-{new_id()}")
        self._jobs: dict[str, tuple[Job, Any]] = {}
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._started: list[Event] = []

    def submit(self, job: Job) -> None:
        """Send a job; Dask itself runs it anew only when the host that ran it is lost."""
        self._beat.touch()
        text = job_text(job, self._beat.path)
        future = self._client.submit(run_guarded, text, key=f"icml26-{job.id}", pure=False, retries=0)
        self._jobs[job.id] = (job, future)
        self._started.append(Started(job.id))
        future.add_done_callback(_teller(self._ended, job.id))

    def poll(self, timeout: float) -> list[Event]:
        """What ended; progress does not cross."""
        self._beat.touch()
        found, self._started = self._started, []
        deadline = time.monotonic() + timeout
        while True:
            wait = 0.0 if found else max(0.0, deadline - time.monotonic())
            try:
                job_id = self._ended.get(timeout=wait) if wait else self._ended.get_nowait()
            except queue.Empty:
                return found
            if job_id in self._jobs:
                found.append(self._end(*self._jobs.pop(job_id)))

    def cancel(self, job_id: str) -> None:
        """End a job now; one that has not begun ends without a process."""
        if job_id in self._jobs:
            ask_to_cancel(self._jobs[job_id][0])

    def close(self) -> None:
        """Cancel what waits, have what runs end itself, and leave the cluster."""
        self._beat.stop()
        futures = [future for _, future in self._jobs.values()]
        for job, future in self._jobs.values():
            if not future.done():
                ask_to_cancel(job)
        deadline = time.monotonic() + _CLOSE_SECONDS
        while any(future.status == "pending" for future in futures) and time.monotonic() < deadline:
            processing = self._client.processing()
            busy = {str(key) for keys in processing.values() for key in keys}
            if not busy & {f"icml26-{job_id}" for job_id in self._jobs}:
                break
            time.sleep(0.1)
        self._jobs.clear()
        if futures and self._client.status == "running":
            self._client.cancel(futures, force=True)
        self._client.close()

    def _end(self, job: Job, future: Any) -> Event:
        if future.status == "finished":
            answer = json.loads(future.result())
            if answer["reason"] is not None:
                return Unwritten(job.id, answer["reason"], answer["record"])
            return Finished(job.id, job.folder)
        error = future.exception() if future.status == "error" else None
        if error is None:
            return conclude(job, Verdict("killed", "DaskLost", f"the Dask scheduler lost the run ({future.status})"))
        kind = type(error).__name__
        if kind == "KilledWorker":
            text = "every Dask worker that was given the run was killed"
        else:
            text = f"the Dask worker could not run it: {kind}: {error}"
        return conclude(job, Verdict("killed" if kind == "KilledWorker" else "failed", kind, text))


def _teller(ended: queue.SimpleQueue[str], job_id: str) -> Callable[[Any], None]:
    return lambda future: ended.put(job_id)
