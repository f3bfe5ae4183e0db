"""The other end: a request in, a record out. ``python -I -m icml26.worker REQUEST.json RESULT_DIR [--serve]``.

Protocol, version 1. Requests are documents of schema ``icml26.request/1`` (a run, answered by ``record.json``) or
``icml26.relate/1`` (a relative metric, answered by ``related.json``). With ``--serve`` further requests come as JSON lines
``{"request": …, "result_dir": …}`` on descriptor 4. Progress goes out as JSON lines on descriptor 3 when that is a pipe;
both descriptors are taken away from plugin code first, and descriptors 1 and 2 point at the run's ``log.txt``.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import stat
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from icml26 import processes
from icml26.errors import Icml26Error
from icml26.records import RELATE_SCHEMA, RunRequest, UnwrittenRecordError, write_text_durably

PROTOCOL = 1
PROGRESS_DESCRIPTOR, REQUEST_DESCRIPTOR = 3, 4
PARENT_VARIABLE = "ICML26_GUARDIAN_PID"
RELATED_SCHEMA = "icml26.related/1"

#: A reused process that holds this much more than after its imports is replaced, so that a peak is its own run's.
RETAINED_BYTES = 64 << 20
_EVERY_SECONDS = 0.1


class Channel:
    """Sends events to the guardian on a private copy of descriptor 3; thins out progress and curve points."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._sent: dict[str, float] = {}
        self.id = ""

    def send(self, event: str, **facts: Any) -> None:
        """Send one event; a guardian that is gone takes this process with it."""
        if self._descriptor is None:
            return
        line = json.dumps({"event": event, "id": self.id, **facts}, allow_nan=False).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]

    def begin(self, job_id: str) -> None:
        """The request's own time starts now."""
        self.id = job_id
        self._sent.clear()
        self.send("begin")

    def progress(self, label: str, done: int, total: int | None) -> None:
        """Reporter: progress of the run."""
        if self._due("progress", 0.02 if done == total else _EVERY_SECONDS):
            self.send("progress", label=str(label)[:80], done=int(done), total=None if total is None else int(total))

    def log(self, name: str, value: float, step: int | None) -> None:
        """Reporter: one point of a curve."""
        if self._due("log", _EVERY_SECONDS):
            number = value if -1e308 < value < 1e308 else None
            self.send("point", name=str(name)[:80], value=number, step=step)

    def _due(self, kind: str, pause: float) -> bool:
        now = time.monotonic()
        if now - self._sent.get(kind, -1.0) < pause:
            return False
        self._sent[kind] = now
        return True


class Session:
    """What a process keeps from run to run: the catalog, the last problem, and how much memory its imports took."""

    def __init__(self, channel: Channel) -> None:
        from icml26.plugins import load_catalog
        from icml26.runner import ProblemCache

        self.channel = channel
        self.catalog = load_catalog()
        self.problems = ProblemCache()
        self.baseline: int | None = None
        self.environment = dict(os.environ)
        self.directory = Path.cwd()

    def fit_for_reuse(self) -> bool:
        """Whether another run would find this process as good as new; cleans up first where that helps."""
        if any(not thread.daemon and thread is not threading.main_thread() for thread in threading.enumerate()):
            return False
        fit = self.baseline is None or processes.private_bytes() - self.baseline <= RETAINED_BYTES
        if not fit and self.baseline is not None:
            self.problems.key = self.problems.problem = None
            gc.collect()
            processes.release_free_memory()
            fit = processes.private_bytes() - self.baseline <= RETAINED_BYTES
        processes.reset_peak()  # where the kernel cannot, the next record has no peak rather than another run's
        return fit

    def serve(self, document: dict[str, Any], folder: Path) -> None:
        """Answer one request; whatever happens, an event says so."""
        with _output_to(folder / "log.txt"), self._surroundings():
            if document.get("schema") == RELATE_SCHEMA:
                self._relate(document, folder)
            else:
                self._run(document, folder)

    def _run(self, document: dict[str, Any], folder: Path) -> None:
        from icml26.runner import execute

        request = RunRequest.from_json(document)
        self.channel.begin(request.record_id)
        if self.baseline is None:
            self._import_targets(request)
            self.baseline = processes.private_bytes()
        try:
            execute(request, folder, catalog=self.catalog, reporter=self.channel, problems=self.problems)
        except UnwrittenRecordError as error:
            self.channel.send("unwritten", reason=str(error), record=error.record.to_json())
        else:
            self.channel.send("done")

    def _import_targets(self, request: RunRequest) -> None:
        """Import the plugin's code before memory is first read; what fails here fails again, recorded, in the run."""
        from icml26.targets import load_target

        for kind, name in (("method", request.method), ("dataset", request.dataset)):
            with contextlib.suppress(Exception, SystemExit):
                entry = self.catalog.find(kind, name)  # type: ignore[arg-type]
                load_target(entry.spec.target, owner=entry.qualified)

    def _relate(self, document: dict[str, Any], folder: Path) -> None:
        from icml26.runner import relate

        self.channel.begin(str(document["record_id"]))
        answer: dict[str, Any] = {"schema": RELATED_SCHEMA, "id": self.channel.id, "metrics": None, "error": None}
        try:
            entry = self.catalog.find("metric", document["metric"])
            scores, reference = (_numbers(document[name]) for name in ("scores", "reference_scores"))
            answer["metrics"] = relate(entry, scores, reference, document["reference_id"])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin raises becomes the answer
            answer["error"] = {"type": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
        try:
            write_text_durably(folder / "related.json", json.dumps(answer, allow_nan=False) + "\n")
        except OSError as error:
            self.channel.send("unwritten", reason=str(error), record=None)
        else:
            self.channel.send("done")

    @contextlib.contextmanager
    def _surroundings(self) -> Iterator[None]:
        """Working folder, environment variables and standard streams are the same for every run."""
        try:
            yield
        finally:
            os.chdir(self.directory)
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
            if dict(os.environ) != self.environment:
                os.environ.clear()
                os.environ.update(self.environment)


def _numbers(scores: dict[str, Any]) -> dict[str, float]:
    from icml26.keys import from_jsonable

    return {name: float(from_jsonable(value)) for name, value in scores.items()}


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Point descriptors 1 and 2 at the end of ``path`` until the next request does; flushes what Python still holds."""
    sink = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in (1, 2):
        os.dup2(sink, descriptor)
    os.close(sink)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()


def _take(descriptor: int) -> int | None:
    """A private copy of a protocol descriptor; the original number then leads nowhere. None when it is not a pipe."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return None
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return None
    import fcntl

    private = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
    return private


def _requests(descriptor: int) -> Iterator[tuple[dict[str, Any], Path]]:
    with os.fdopen(descriptor, "r", encoding="utf-8") as lines:
        for line in lines:
            item = json.loads(line)
            yield item["request"], Path(item["result_dir"])


def main(arguments: list[str]) -> int:
    """Serve the request of the command line, and with ``--serve`` those that follow until descriptor 4 is closed."""
    serving = "--serve" in arguments
    paths = [item for item in arguments if item != "--serve"]
    if len(paths) != 2:
        sys.stderr.write("usage: python -I -m icml26.worker REQUEST.json RESULT_DIR [--serve]\n")
        return 2
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is not None:
        processes.die_with_parent(int(parent))
    channel = Channel(_take(PROGRESS_DESCRIPTOR))
    source = _take(REQUEST_DESCRIPTOR)
    folder = Path(paths[1]).absolute()
    try:
        document = json.loads(Path(paths[0]).read_text(encoding="utf-8"))
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{paths[0]}: {error}\n")
        return 2
    faulthandler.enable(file=2, all_threads=False)
    try:
        session = Session(channel)
        session.serve(document, folder)
        if serving and source is not None:
            gc.freeze()
            for request, target in _requests(source):
                if not session.fit_for_reuse():
                    channel.id = str(request.get("record_id"))
                    channel.send("decline")
                    return 0
                session.serve(request, target)
    except Icml26Error as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
