"""One guardian and the pipe to it: what every executor starts, and what notices when the guardian itself is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from icml26.errors import EnvironmentError_
from icml26.executors import Event, Finished, Job, Point, Progress, Started, Unwritten
from icml26.ids import new_id
from icml26.processes import TOKEN_VARIABLE, own_token, sweep
from icml26.verdict import Verdict, leave_record

_CLOSE_SECONDS = 6.0


class Guarded:
    """A guardian process with at most one job; it is started with the first job and again when somebody killed it."""

    def __init__(self) -> None:
        if sys.platform == "win32":
            raise EnvironmentError_("runs in processes of their own need Linux or macOS; on Windows use WSL")
        self.job: Job | None = None
        self.affinity: tuple[str, str | None] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._token = ""
        self._buffer = b""
        self._scratch: Path | None = None
        self._errors: IO[bytes] | None = None
        self._submitted = 0.0

    def fileno(self) -> int:
        """The descriptor to wait on for events; -1 before the first job."""
        return -1 if self._process is None or self._process.stdout is None else self._process.stdout.fileno()

    def submit(self, job: Job) -> None:
        """Hand a job to the guardian; the last one must have ended."""
        assert self.job is None
        if self._process is None or self._process.poll() is not None:
            try:
                self._start()
            except OSError as error:
                raise EnvironmentError_(f"no process can be started for a run: {error}") from error
        self.job = job
        self.affinity = (job.affinity, job.python)
        self._submitted = time.monotonic()
        command = {
            "op": "run",
            "request": job.request,
            "folder": str(job.folder),
            "affinity": job.affinity,
            "python": job.python,
            "fresh": job.fresh,
        }
        self._send(command)

    def cancel(self) -> None:
        """End the job; its record says so."""
        if self.job is not None:
            self._send({"op": "cancel"})

    def events(self) -> list[Event]:
        """What the guardian said since the last call, without waiting; its death ends the job with a record."""
        process = self._process
        if process is None or process.stdout is None:
            return []
        found: list[Event] = []
        while True:
            try:
                data = os.read(process.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                return found
            if not data:
                return [*found, *self._guardian_died()]
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            found += [event for line in lines if (event := self._event(json.loads(line))) is not None]

    def begin_close(self) -> None:
        """Tell the guardian that its parent is done; it ends everything below it."""
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:
                return

    def close(self) -> None:
        """End the guardian and all that it started, and wait for that."""
        process = self._process
        if process is None:
            return
        self.begin_close()
        self.job = None
        try:
            process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        except KeyboardInterrupt:
            self._process = None  # it ends by itself: its pipe is closed
            raise
        sweep(self._token)
        self._discard()

    def _start(self) -> None:
        self._discard()
        self._token = f"{own_token()}:{new_id()}"
        self._scratch = Path(tempfile.mkdtemp(prefix="icml26-"))
        (self._scratch / "tmp").mkdir()
        self._errors = (self._scratch / "guardian.log").open("wb")
        environment = {**os.environ, TOKEN_VARIABLE: self._token, "TMPDIR": str(self._scratch / "tmp")}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-m", "icml26.guardian"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env=environment,
            cwd=self._scratch / "tmp",  # what a method writes to its working folder goes away with it
            start_new_session=True,
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._buffer = b""

    def _discard(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process.wait()
        if self._errors is not None:
            self._errors.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self._process = self._errors = self._scratch = self.affinity = None

    def _send(self, command: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        line = json.dumps(command, allow_nan=False).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._process.stdin.fileno(), line) :]
        except OSError:
            return  # it died; its end of the other pipe says so and the job gets its record there

    def _event(self, message: dict[str, Any]) -> Event | None:
        job = self.job
        if job is None or message.get("id") != job.id:
            return None
        kind = message["event"]
        if kind == "started":
            return Started(job.id)
        if kind == "progress":
            return Progress(job.id, message["label"], message["done"], message["total"])
        if kind == "point":
            value = message["value"]
            return Point(job.id, message["name"], float("nan") if value is None else value, message["step"])
        self.job = None
        if kind == "finished":
            return Finished(job.id, job.folder)
        return Unwritten(job.id, message["reason"], message.get("record"))

    def _guardian_died(self) -> list[Event]:
        """Nobody guards the worker any more: end it, take its record or write one that says what happened."""
        process, job = self._process, self.job
        assert process is not None
        try:
            code = process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        sweep(self._token)
        words = ""
        if self._scratch is not None:
            words = (self._scratch / "guardian.log").read_text(encoding="utf-8", errors="replace").strip()
        self._discard()
        self.job = None
        if job is None:
            return []
        name = signal.Signals(-code).name if code < 0 else None
        how = f"was ended by {name}" if name else f"ended with exit code {code}"
        text = f"the guardian of the run {how}" + (f": {words[-2000:]}" if words else "")
        verdict = Verdict("killed", "GuardianDied", text, name, time.monotonic() - self._submitted)
        try:
            leave_record(job.request, job.folder, verdict, peak=None)
        except OSError as error:
            return [Unwritten(job.id, f"{job.folder}: {error.strerror or error}")]
        return [Finished(job.id, job.folder)]
