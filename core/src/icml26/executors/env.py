"""Local workers, each in the environment that its run needs; environments that are missing are built meanwhile."""

from __future__ import annotations

import queue
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from icml26.catalog import Catalog
from icml26.environments import Environments
from icml26.errors import Icml26Error
from icml26.executors import Event, Finished, Job, Progress, Unwritten
from icml26.executors.local import LocalExecutor
from icml26.needs import Need, needs_of, needs_of_metric
from icml26.plugins import load_catalog
from icml26.records import RunRequest
from icml26.verdict import Verdict, is_relation, leave_record

_TICK_SECONDS = 0.1


class EnvExecutor:
    """A LocalExecutor whose jobs get an interpreter first. A run whose needs cannot be met fails, with the resolver's words."""

    name = "env"

    def __init__(
        self, workers: int = 1, *, catalog: Catalog | None = None, environments: Environments | None = None
    ) -> None:
        self._local = LocalExecutor(workers)
        self.slots = self._local.slots
        self._catalog = catalog or load_catalog()
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._environments = environments or Environments(say=self._said.put)
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="icml26-env")
        self._preparing: dict[str, tuple[Job, Future[str], float]] = {}
        self._ended: list[Event] = []
        self._interpreters: dict[tuple[Need, ...], str] = {}
        self._needs: dict[tuple[str, ...], tuple[Need, ...]] = {}

    def submit(self, job: Job) -> None:
        """Start a job as soon as its environment is there; building one holds up no other job."""
        begun = time.monotonic()
        try:
            needs = self._needs_of(job)
        except Icml26Error as error:
            self._fail(job, Verdict("failed", type(error).__name__, str(error)))
            return
        if needs in self._interpreters:
            self._local.submit(replace(job, python=self._interpreters[needs]))
            return
        self._preparing[job.id] = (job, self._builder.submit(partial(self._prepare, needs)), begun)

    def poll(self, timeout: float) -> list[Event]:
        """What happened; waits up to ``timeout`` seconds for the first event."""
        deadline = time.monotonic() + timeout
        while True:
            found = self._advance()
            left = deadline - time.monotonic()
            pause = min(left, _TICK_SECONDS) if self._preparing else left
            found += self._local.poll(0.0 if found or left <= 0 else pause)
            if found or left <= 0:
                return found

    def cancel(self, job_id: str) -> None:
        """End a job now, also one that waits for its environment."""
        waiting = self._preparing.pop(job_id, None)
        if waiting is None:
            self._local.cancel(job_id)
            return
        waiting[1].cancel()
        self._fail(waiting[0], Verdict("killed", "Cancelled", "cancelled before its environment was there"))

    def close(self) -> None:
        """End every process, a running build too."""
        self._preparing.clear()
        self._environments.abort()
        self._builder.shutdown(wait=True, cancel_futures=True)
        self._local.close()
        self._environments.close()

    def _prepare(self, needs: tuple[Need, ...]) -> str:
        return self._environments.ensure(needs).python

    def _needs_of(self, job: Job) -> tuple[Need, ...]:
        """The needs of a job; runs of one method, dataset and list of metrics share them."""
        if is_relation(job.request):
            return needs_of_metric(self._catalog, str(job.request["metric"]))
        request = RunRequest.from_json(job.request)
        key = (request.method, request.dataset, *request.metrics)
        if key not in self._needs:
            self._needs[key] = needs_of(self._catalog, request)
        return self._needs[key]

    def _advance(self) -> list[Event]:
        events: list[Event] = []
        while not self._said.empty():
            label = self._said.get()
            events += [Progress(job_id, label, 0, None) for job_id in list(self._preparing)[:1]]
        for job_id, (job, future, begun) in list(self._preparing.items()):
            if not future.done():
                continue
            del self._preparing[job_id]
            try:
                python = future.result()
            except Icml26Error as error:
                self._fail(job, Verdict("failed", type(error).__name__, str(error), seconds=time.monotonic() - begun))
            else:
                self._interpreters[self._needs_of(job)] = python
                self._local.submit(replace(job, python=python))
        events += self._ended
        self._ended = []
        return events

    def _fail(self, job: Job, verdict: Verdict) -> None:
        try:
            leave_record(job.request, job.folder, verdict, peak=None)
        except OSError as error:
            self._ended.append(Unwritten(job.id, f"{job.folder}: {error.strerror or error}"))
        else:
            self._ended.append(Finished(job.id, job.folder))
