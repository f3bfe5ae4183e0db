"""What a Dask worker or a Slurm job does: start the guarded worker, wait, say how it ended. Only strings go in and out."""

from __future__ import annotations

import json
import select
import time
from pathlib import Path
from typing import Any

from icml26.executors import Event, Finished, Job, Unwritten
from icml26.executors.guarded import Guarded
from icml26.leases import discard_unfinished
from icml26.verdict import Verdict, leave_record, read_answer

CANCEL_FILE = "cancel"
HEARTBEAT_SECONDS = 10.0
#: Network file systems may show a change of a file only a minute later.
HEARTBEAT_PATIENCE_SECONDS = 180.0
_TICK_SECONDS = 0.5


def job_text(job: Job, heartbeat: Path) -> str:
    """A job as the string that crosses."""
    document = {
        "id": job.id,
        "request": job.request,
        "folder": str(job.folder),
        "affinity": job.affinity,
        "python": job.python,
        "fresh": job.fresh,
        "heartbeat": str(heartbeat),
    }
    return json.dumps(document, allow_nan=False)


def run_guarded(text: str) -> str:
    """Run one job under a guardian of its own; returns ``{"reason": …, "record": …}``, reason null when the record is written.

    A job that is started a second time (its first host was lost) and already has its record is not run again. It ends when
    the file ``cancel`` appears in its folder, or when the coordinator's heartbeat file vanishes or stands still.
    """
    document: dict[str, Any] = json.loads(text)
    heartbeat = Path(document.pop("heartbeat"))
    job = Job(**{**document, "folder": Path(document["folder"])})
    answer: dict[str, Any] = {"reason": None, "record": None}
    if read_answer(job.request, job.folder) is not None:
        return json.dumps(answer)
    cancel = job.folder / CANCEL_FILE
    if not cancel.exists():
        discard_unfinished(job.folder, job.id)
    watch = _Heartbeat(heartbeat)
    guarded = Guarded()
    try:
        guarded.submit(job)
        cancelled = False
        while guarded.job is not None:
            select.select([guarded], [], [], _TICK_SECONDS)
            for event in guarded.events():
                if isinstance(event, Unwritten):
                    answer = {"reason": event.reason, "record": event.record}
            if not cancelled and guarded.job is not None and (cancel.exists() or not watch.beats()):
                guarded.cancel()
                cancelled = True
    finally:
        guarded.close()
    return json.dumps(answer, allow_nan=False)


class _Heartbeat:
    """Whether a file's time still moves; only changes count, so that clocks of two hosts need not agree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen = -1
        self.moved = time.monotonic()

    def beats(self) -> bool:
        try:
            stamp = self.path.stat().st_mtime_ns
        except OSError:
            return False
        if stamp != self.seen:
            self.seen, self.moved = stamp, time.monotonic()
        return time.monotonic() - self.moved < HEARTBEAT_PATIENCE_SECONDS


class Beat:
    """The coordinator's side of the heartbeat: a file that is touched while it polls and removed when it is done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last = 0.0

    def touch(self) -> None:
        """Say that we are here, now and then."""
        if time.monotonic() - self._last > HEARTBEAT_SECONDS:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
            self._last = time.monotonic()

    def stop(self) -> None:
        """Jobs that still run end by themselves."""
        self.path.unlink(missing_ok=True)


def conclude(job: Job, verdict: Verdict) -> Event:
    """The end of a job whose host was lost: the record that lies there, else one that says what is known."""
    try:
        leave_record(job.request, job.folder, verdict, peak=None)
    except OSError as error:
        return Unwritten(job.id, f"{job.folder}: {error.strerror or error}")
    return Finished(job.id, job.folder)


def ask_to_cancel(job: Job) -> None:
    """Leave the sign that the job's host looks for."""
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / CANCEL_FILE).touch()
