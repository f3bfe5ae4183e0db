"""Run many requests through an executor: claim, start, take records in, stop in good order.

The coordinator is the only writer of the store. A locked store delays it, never the runs; a store or disk that can no
longer record stops the scheduling, because runs that cannot be recorded are wasted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from icml26.database import StoreBusyError
from icml26.errors import Icml26Error, StoreError
from icml26.executors import Event, Executor, Finished, Job, Progress, Started, Unwritten
from icml26.leases import RENEW_EVERY_SECONDS, Lease, Leases, recover
from icml26.records import RunRecord, RunRequest
from icml26.store import Store

_LOCK_PATIENCE_SECONDS = 300.0
_POLL_SECONDS = 0.25
_DEFERRED_EVERY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """A record of this call: taken in now, or (``reused``) found in the store."""

    record: RunRecord
    folder: Path | None
    reused: bool = False


Notice: TypeAlias = Event | Recorded


class Interrupted(Icml26Error):  # noqa: N818 - not an error, a wish
    """Ctrl-C: everything was stopped in good order. ``summary`` holds what was done."""

    exit_code = 130

    def __init__(self, message: str, summary: Summary) -> None:
        super().__init__(message)
        self.summary = summary


@dataclass(slots=True)
class Summary:
    """What became of the requests: ``records`` by key (this call's, or reused ones), and keys that were not run."""

    records: dict[str, RunRecord] = field(default_factory=dict)
    reused: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)


def run_all(
    requests: Iterable[RunRequest],
    executor: Executor,
    store: Store,
    *,
    runs_folder: Path,
    reuse: bool = True,
    python: Callable[[RunRequest], str | None] = lambda request: None,
    fresh: bool | Callable[[RunRequest], bool] = False,
    on_event: Callable[[Notice], None] = lambda notice: None,
) -> Summary:
    """Run every request once and record it; keys that the store has (unless ``reuse`` is off) are not run again.

    Requests with the same key are one run. Keys that another living coordinator is computing are waited for, last.
    ``python`` gives the interpreter of a request's environment; ``fresh`` asks for processes of their own (for peak memory).
    Raises StoreError before any run when the store or ``runs_folder`` cannot be written, StoreError when records can no
    longer be kept, and Interrupted after Ctrl-C; a second Ctrl-C raises KeyboardInterrupt at once.
    """
    raise StoreError("filled in by the next commit")
