"""Run many requests through an executor: claim, start, take records in, stop in good order.

The coordinator is the only writer of the store. A locked store delays it, never the runs; a store or disk that can no
longer record stops the scheduling, because runs that cannot be recorded are wasted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from icml26.database import StoreBusyError
from icml26.errors import EnvironmentError_, Icml26Error, StoreError
from icml26.executors import Event, Executor, Finished, Job, Unwritten
from icml26.ids import new_id
from icml26.leases import Lease, Leases, active_leases, discard_unfinished, recover
from icml26.records import RunRecord, RunRequest
from icml26.store import Store
from icml26.verdict import CANCELLED, read_answer

LOCK_PATIENCE_SECONDS = 300.0
_TRY_SECONDS = 0.2
_POLL_SECONDS = 0.25
_REVISIT_SECONDS = 1.0
_RETRY_SECONDS = 0.5
_SAY_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """A record of this call: taken in now, or (``reused``) found in the store."""

    record: RunRecord
    folder: Path | None
    reused: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is wrong, but others are in the way: a locked store, or keys that another bench computes."""

    reason: str


Notice: TypeAlias = Event | Recorded | Waiting


@dataclass(slots=True)
class Summary:
    """What became of the requests: ``records`` by key (this call's, or ``reused`` ones), and the keys that have none."""

    records: dict[str, RunRecord] = field(default_factory=dict)
    folders: dict[str, Path | None] = field(default_factory=dict)
    reused: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)


class Interrupted(Icml26Error):  # noqa: N818 - not an error, a wish
    """Ctrl-C: everything was stopped in good order. ``summary`` holds what was done."""

    exit_code = 130

    def __init__(self, message: str, summary: Summary) -> None:
        super().__init__(message)
        self.summary = summary


def run_all(
    requests: Iterable[RunRequest],
    executor: Executor,
    store: Store,
    *,
    runs_folder: Path,
    reuse: bool = True,
    python: Callable[[RunRequest], str | None] = lambda request: None,
    fresh: Callable[[RunRequest], bool] = lambda request: False,
    on_event: Callable[[Notice], None] = lambda notice: None,
) -> Summary:
    """Run every request once and record it; keys that the store has (unless ``reuse`` is off) are not run again.

    Requests with the same key are one run. Keys that another living coordinator is computing are waited for, last.
    ``python`` gives the interpreter of a request's environment; ``fresh`` asks for a process of its own. The executor stays
    open for the caller. Raises StoreError before any run when the store cannot be written, EnvironmentError_ when
    ``runs_folder`` cannot, StoreError when records can no longer be kept (what was finished is kept as files and taken in by
    the next call), and Interrupted after Ctrl-C; a second Ctrl-C raises KeyboardInterrupt at once.
    """
    loop = _Loop(executor, store, runs_folder.absolute(), reuse, python, fresh, on_event)
    loop.prepare(requests)
    try:
        loop.work()
    except KeyboardInterrupt:
        loop.abort()
        left = len(loop.summary.missing)
        raise Interrupted(
            f"interrupted: {len(loop.summary.records)} runs are recorded, {left} are not; "
            "the same command again runs only what is missing",
            loop.summary,
        ) from None
    except BaseException:
        loop.abort()
        raise
    return loop.summary


class _Loop:
    """The state of one call of ``run_all``: each request is pending, claimed, running, waiting to be stored, or done."""

    def __init__(
        self,
        executor: Executor,
        store: Store,
        runs_folder: Path,
        reuse: bool,
        python: Callable[[RunRequest], str | None],
        fresh: Callable[[RunRequest], bool],
        on_event: Callable[[Notice], None],
    ) -> None:
        self.executor = executor
        self.store = store
        self.runs_folder = runs_folder
        self.reuse = reuse
        self.python = python
        self.fresh = fresh
        self.on_event = on_event
        self.leases = Leases(store)
        self.summary = Summary()
        self.pending: deque[RunRequest] = deque()
        self.deferred: deque[RunRequest] = deque()
        self.claimed: deque[RunRequest] = deque()
        self.running: dict[str, Job] = {}
        self.waiting: list[tuple[RunRecord, Path | None]] = []
        self.broken: str | None = None
        self.locked_since: float | None = None
        self.retry_at = 0.0
        self.revisit_at = 0.0
        self.say_at = 0.0

    def prepare(self, requests: Iterable[RunRequest]) -> None:
        """Refuse what cannot work, take in what a dead coordinator left, reuse what is there."""
        if self.store.readonly:
            raise StoreError(f"{self.store.path}: the store is open for reading only; runs could not be recorded")
        writable_folder(self.runs_folder)
        with self.store.database.writing():
            pass
        recover(self.store)
        unique: dict[str, RunRequest] = {}
        for request in requests:
            unique.setdefault(request.key, request)
        self.summary.missing = set(unique)
        for key in self._reuse(unique):
            del unique[key]
        # Runs of one method follow one another, so that their process can be reused.
        order = {name: place for place, name in enumerate(dict.fromkeys(item.method for item in unique.values()))}
        self.pending.extend(sorted(unique.values(), key=lambda request: order[request.method]))

    def work(self) -> None:
        """Until every request is done, or nothing can be recorded any more."""
        while self.pending or self.deferred or self.claimed or self.running or self.waiting:
            if self.broken is None:
                self._claim()
                self._submit()
            elif not self.running:
                break
            idle = not self.running and not self.claimed
            for event in self.executor.poll(_POLL_SECONDS if self.running or idle else 0.0):
                self._heard(event)
            self._store_waiting()
            self._say_what_we_wait_for()
        if self.broken is None:
            self._patiently(self.leases.release)
            self.leases.forget()
            return
        raise StoreError(self._explanation())

    def abort(self) -> None:
        """End all processes, keep every record that was finished, free the keys."""
        self.executor.close()
        for job in self.running.values():
            answer = read_answer(job.request, job.folder)
            if isinstance(answer, RunRecord) and (answer.error or {}).get("type") != CANCELLED:
                self.waiting.append((answer, job.folder))
            else:  # jobs elsewhere are ended by cancelling them: that is our doing, not the run's end
                (job.folder / "record.json").unlink(missing_ok=True)
                discard_unfinished(job.folder, job.id)
        self.running.clear()
        try:
            if self.waiting:
                self._take_in(wait_seconds=2.0)
            self.leases.release(wait_seconds=2.0)
        except StoreError:
            return  # locked or full: the leases of an owner that is gone lead the next call to these records
        finally:
            self.leases.forget()

    # -- steps -------------------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Claim some more keys; those of others are deferred, those that others have finished meanwhile are reused."""
        if self.leases.renewal_due:
            self._attempt(lambda: self.leases.renew(wait_seconds=_TRY_SECONDS))
        if len(self.claimed) >= self.executor.slots or self._locked_out():
            return
        if not self.pending and self.deferred and time.monotonic() >= self.revisit_at:
            self.pending, self.deferred = self.deferred, self.pending
            self.revisit_at = time.monotonic() + _REVISIT_SECONDS
        if not self.pending:
            return
        batch = [self.pending.popleft() for _ in range(min(len(self.pending), 8 * self.executor.slots))]
        batch = [self._with_own_folder(request) for request in batch]
        leases = [Lease(item.key, item.record_id, self.runs_folder / item.record_id) for item in batch]
        try:
            ours = self.leases.claim(leases, wait_seconds=_TRY_SECONDS)
        except StoreError as error:
            self.pending.extendleft(reversed(batch))
            self._failed(error)
            return
        self.locked_since = None
        known = self._reuse({request.key: request for request in batch})
        self.deferred.extend(item for item in batch if item.key not in ours and item.key not in known)
        self.claimed.extend(item for item in batch if item.key in ours and item.key not in known)
        if done := [item.record_id for item in batch if item.key in ours and item.key in known]:
            self._attempt(lambda: self.leases.release(done, wait_seconds=_TRY_SECONDS))

    def _submit(self) -> None:
        while self.claimed and len(self.running) < self.executor.slots:
            request = self.claimed.popleft()
            job = Job(
                request.record_id,
                request.to_json(),
                self.runs_folder / request.record_id,
                affinity=request.method,
                python=self.python(request),
                fresh=self.fresh(request),
            )
            self.running[job.id] = job
            self.executor.submit(job)

    def _heard(self, event: Event) -> None:
        if isinstance(event, Finished | Unwritten):
            job = self.running.pop(event.id, None)
            if job is None:
                return
            if isinstance(event, Finished):
                answer = read_answer(job.request, event.folder)
                if isinstance(answer, RunRecord):
                    self.waiting.append((answer, event.folder))
                else:
                    self.broken = self.broken or f"{event.folder}: the record of a finished run has vanished"
            else:
                self.broken = self.broken or event.reason
                if event.record is not None:
                    self.waiting.append((RunRecord.from_json(event.record), None))
        self.on_event(event)

    def _store_waiting(self) -> None:
        if self.waiting:
            self._attempt(lambda: self._take_in(_TRY_SECONDS))

    def _take_in(self, wait_seconds: float) -> None:
        batch = list(self.waiting)
        self.store.ingest_all(batch, release=[record.id for record, _ in batch], wait_seconds=wait_seconds)
        del self.waiting[: len(batch)]
        for record, folder in batch:
            self._done(record, folder, reused=False)

    def _done(self, record: RunRecord, folder: Path | None, *, reused: bool) -> None:
        self.summary.records[record.key] = record
        self.summary.folders[record.key] = folder
        self.summary.missing.discard(record.key)
        if reused:
            self.summary.reused.add(record.key)
        self.on_event(Recorded(record, folder, reused))

    def _say_what_we_wait_for(self) -> None:
        idle = not (self.running or self.claimed or self.waiting)
        now = time.monotonic()
        if now < self.say_at or (self.locked_since is None and not (idle and (self.deferred or self.pending))):
            return
        self.say_at = now + _SAY_SECONDS
        if self.locked_since is not None:
            self.on_event(Waiting(f"{self.store.path} is locked by another process; finished runs wait as files"))
            return
        keys = {request.key for request in (*self.deferred, *self.pending)}
        owners = {(item.host, item.pid) for item in active_leases(self.store) if item.lease.key in keys}
        if owners:
            names = ", ".join(f"process {pid} on {host}" for host, pid in sorted(owners))
            self.on_event(Waiting(f"{len(keys)} runs are being computed by another bench ({names})"))

    def _reuse(self, wanted: dict[str, RunRequest]) -> set[str]:
        if not self.reuse:
            return set()
        found = self.store.find_runs(wanted)
        for run in found.values():
            self._done(run.record, run.folder, reused=True)
        return set(found)

    def _with_own_folder(self, request: RunRequest) -> RunRequest:
        """A request that was run before gets another id: a record's folder belongs to it alone."""
        if (self.runs_folder / request.record_id).exists():
            return replace(request, record_id=new_id())
        return request

    # -- trouble -----------------------------------------------------------------------------------------------------

    def _attempt(self, action: Callable[[], None]) -> None:
        """Try to write; a lock is waited out without holding up the runs, anything else ends the scheduling."""
        if self._locked_out():
            return
        try:
            action()
        except StoreError as error:
            self._failed(error)
        else:
            self.locked_since = None

    def _failed(self, error: StoreError) -> None:
        if isinstance(error, StoreBusyError):
            now = time.monotonic()
            self.locked_since = now if self.locked_since is None else self.locked_since
            self.retry_at = now + _RETRY_SECONDS
            if now - self.locked_since < LOCK_PATIENCE_SECONDS:
                return
        self.broken = self.broken or str(error)

    def _locked_out(self) -> bool:
        """Whether the store was locked a moment ago: trying all the time would hold up the runs."""
        return self.locked_since is not None and time.monotonic() < self.retry_at

    def _patiently(self, action: Callable[[], None]) -> None:
        while self.broken is None:
            self._attempt(action)
            if self.locked_since is None:
                return
            time.sleep(_TRY_SECONDS)

    def _explanation(self) -> str:
        kept = len(self.waiting)
        text = f"{self.broken}. No further runs were started: {len(self.summary.missing)} of them have no record in the store"
        if kept:
            text += (
                f"; {kept} finished ones are kept as files below {self.runs_folder} and are taken in by the next call"
            )
        return text


def amend(store: Store, record: RunRecord, folder: Path | None) -> None:
    """Keep a changed record (relative or new metrics): first its file, which is the truth, then its row."""
    if folder is not None and folder.is_dir():
        record.write(folder)
    store.amend(record)


def writable_folder(folder: Path) -> None:
    """Make the folder and prove that files can be written there; raises EnvironmentError_ that says what to do."""
    probe = folder / f".write-test-{new_id()}"
    try:
        str(folder).encode("utf-8")
    except UnicodeEncodeError as error:
        raise EnvironmentError_(
            f"{str(folder)!r}: this name is not UTF-8, and records hold text; choose another with --output or ICML26_HOME"
        ) from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            probe.write_text("x", encoding="ascii")
        finally:
            probe.unlink(missing_ok=True)  # a full disk still makes the empty file
    except OSError as error:
        raise EnvironmentError_(
            f"{folder} cannot be written ({error.strerror or error}); choose another with --output or ICML26_HOME"
        ) from error
