"""Index plugins that ship no index: each in a child process of its own, with a deadline, and remembered in a cache.

The child may raise, exit, hang, crash or print; this process only reads its two pipes. POSIX only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from icml26.catalog import Fault
from icml26.errors import UsageError
from icml26.home import cache_folder
from icml26.index import Index, IndexFormatError, index_from_json
from icml26.specs import CORE_API

if TYPE_CHECKING:
    from icml26.plugins import Candidate

Probing: TypeAlias = Literal["missing", "fresh", "never"]

DEFAULT_TIMEOUT = 4.0

_AT_ONCE = 16
_RESULT_LIMIT = 16 << 20
_OUTPUT_KEPT = 4096
_CHUNK = 1 << 16
_CACHE_SCHEMA = "icml26.probe/1"
_CHILD = """
import json, sys
request = json.loads(sys.argv[1])
sys.path[:] = request["path"]
from icml26 import probe_child
probe_child.main(request)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a probe gave: an index document, or the reason why there is none; ``output`` is what the plugin printed."""

    index: dict[str, Any] | None = None
    failure: str = ""
    details: str = ""
    output: str = ""


def probe_all(
    candidates: Sequence[Candidate], installed: Iterable[str], *, probe: Probing = "missing"
) -> tuple[list[tuple[Candidate, Index]], list[Fault]]:
    """The indexes of plugins without one, from the cache or from child processes that all run at once.

    See ``load_catalog`` for ``probe``.
    """
    timeout = probe_timeout()
    environment = _digest([sorted(installed), timeout, sys.version])
    cache = {id(item): _CacheEntry(item, environment) for item in candidates}
    outcomes: dict[int, Outcome] = {}
    if probe != "fresh":
        outcomes = {id(item): known for item in candidates if (known := cache[id(item)].read())}
    missing = [] if probe == "never" else [item for item in candidates if id(item) not in outcomes]
    for candidate, outcome in run_probes(missing, timeout):
        outcomes[id(candidate)] = outcome
        cache[id(candidate)].write(outcome)
    indexes, faults = [], []
    for candidate in candidates:
        if id(candidate) not in outcomes:
            continue
        index, problems = _judge(candidate, outcomes[id(candidate)])
        faults += problems
        if index is not None:
            indexes.append((candidate, index))
    return indexes, faults


def probe_timeout() -> float:
    """Seconds that a probe may take: ``ICML26_PROBE_TIMEOUT``, 4 by default; raises UsageError for nonsense."""
    text = os.environ.get("ICML26_PROBE_TIMEOUT", "")
    try:
        timeout = float(text) if text else DEFAULT_TIMEOUT
    except ValueError:
        timeout = -1.0
    if not 0 < timeout <= 3600:
        raise UsageError(f"ICML26_PROBE_TIMEOUT={text!r}: a number of seconds above 0, at most 3600, is expected")
    return timeout


def run_probes(candidates: Sequence[Candidate], timeout: float) -> list[tuple[Candidate, Outcome]]:
    """Probe each candidate in a process of its own; all of them are gone when this returns or raises."""
    waiting = list(reversed(candidates))
    running: dict[int, _Child] = {}
    outcomes: list[tuple[Candidate, Outcome]] = []
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or running:
                while waiting and len(running) < _AT_ONCE:
                    candidate = waiting.pop()
                    try:
                        child = _Child.start(candidate, timeout)
                    except OSError as error:
                        outcomes.append((candidate, Outcome(failure=f"cannot be probed: no child process ({error})")))
                        continue
                    running[id(child)] = child
                    child.register(selector)
                now = time.monotonic()
                pause = min((child.deadline - now for child in running.values()), default=0.0)
                for key, _ in selector.select(max(pause, 0.0)):
                    key.data[0].receive(key.data[1], selector)
                now = time.monotonic()
                for child in list(running.values()):
                    if child.finished or now >= child.deadline:
                        del running[id(child)]
                        outcomes.append((child.candidate, child.end(selector, timeout)))
        finally:
            for child in running.values():
                child.end(selector, timeout)
    return outcomes


@dataclass(slots=True)
class _Child:
    candidate: Candidate
    process: subprocess.Popen[bytes]
    pipes: dict[str, int]
    deadline: float
    received: dict[str, bytearray] = field(default_factory=lambda: {"result": bytearray(), "output": bytearray()})
    finished: bool = False

    @classmethod
    def start(cls, candidate: Candidate, timeout: float) -> _Child:
        result_read, result_write = os.pipe()
        output_read, output_write = os.pipe()
        distribution = candidate.distribution
        request = {
            "path": [str(item) for item in sys.path],
            "plugin": distribution.entry_point,
            "distribution": distribution.name,
            "module": distribution.module,
            "descriptor": result_write,
            "timeout": timeout,
        }
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, json.dumps(request)],
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=output_write,
                pass_fds=(result_write,),
                start_new_session=True,
            )
        except BaseException:
            os.close(result_read)
            os.close(output_read)
            raise
        finally:
            os.close(result_write)
            os.close(output_write)
        os.set_blocking(result_read, False)
        os.set_blocking(output_read, False)
        return cls(candidate, process, {"result": result_read, "output": output_read}, time.monotonic() + timeout)

    def register(self, selector: selectors.BaseSelector) -> None:
        for name, descriptor in self.pipes.items():
            selector.register(descriptor, selectors.EVENT_READ, (self, name))

    def receive(self, name: str, selector: selectors.BaseSelector) -> None:
        """Read what a pipe holds; the result's end, a whole line, or too much of it, finish the child."""
        if name not in self.pipes:
            return
        try:
            data = os.read(self.pipes[name], _CHUNK)
        except BlockingIOError:
            return
        held = self.received[name]
        if name == "output":
            held += data[: _OUTPUT_KEPT - len(held)]
        else:
            held += data
            self.finished = not data or data.endswith(b"\n") or len(held) > _RESULT_LIMIT
        if not data:
            self._close(name, selector)

    def end(self, selector: selectors.BaseSelector, timeout: float) -> Outcome:
        """Take the last output, end the whole process group and say what came of it."""
        overdue = not self.finished
        if self.finished and not self.received["result"]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)
        code = self.process.poll()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        while "output" in self.pipes and len(self.received["output"]) < _OUTPUT_KEPT:
            before = len(self.received["output"])
            self.receive("output", selector)
            if len(self.received["output"]) == before:
                break
        for name in list(self.pipes):
            self._close(name, selector)
        output = bytes(self.received["output"]).decode("utf-8", "replace")
        if overdue:
            return Outcome(failure=f"importing {self.module} took longer than {timeout:g} s", output=output)
        return _outcome(bytes(self.received["result"]), code, self.module, output)

    @property
    def module(self) -> str:
        return self.candidate.distribution.module

    def _close(self, name: str, selector: selectors.BaseSelector) -> None:
        descriptor = self.pipes.pop(name)
        with contextlib.suppress(KeyError):
            selector.unregister(descriptor)
        os.close(descriptor)


def _outcome(result: bytes, code: int | None, module: str, output: str) -> Outcome:
    if not result:
        if code is not None and code < 0:
            end = f"was ended by signal {-code} ({signal.Signals(-code).name})"
        else:
            end = "closed its result" if code is None else f"exited with code {code}"
        return Outcome(failure=f"the process that imported {module} {end}", details=output, output=output)
    try:
        document = json.loads(result)
        if "failure" in document:
            return Outcome(failure=str(document["failure"]), details=str(document["details"]), output=output)
        index = document["index"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return Outcome(failure=f"the process that imported {module} wrote nonsense as its result", output=output)
    return Outcome(index=index, output=output)


def _judge(candidate: Candidate, outcome: Outcome) -> tuple[Index | None, list[Fault]]:
    distribution = candidate.distribution
    faults = []
    index = None
    failure = outcome.failure
    if outcome.index is not None:
        try:
            index = index_from_json(outcome.index, core_api=CORE_API)
        except IndexFormatError as error:
            failure = str(error)
    if index is None:
        fix = f"`icml26 doctor` tries again; ICML26_DISABLE_PLUGINS={distribution.entry_point} leaves it out"
        faults.append(
            Fault(
                distribution.entry_point, distribution.name, failure, "probe-failed", fix=fix, details=outcome.details
            )
        )
    elif outcome.output.strip():
        line = outcome.output.strip().splitlines()[0][:80]
        reason = f"it prints when it is imported ({line!r})"
        faults.append(Fault(distribution.entry_point, distribution.name, reason, "prints", "warning"))
    return index, faults


class _CacheEntry:
    """The remembered outcome of one candidate.

    A success holds for a distribution's version and the content of its hook module (of an editable one, for its whole
    package); a failure only as long as nothing else in the environment changes, since a new dependency may mend it.
    """

    def __init__(self, candidate: Candidate, environment: str) -> None:
        distribution = candidate.distribution
        place = _digest([str(Path(distribution.folder).resolve()), sys.prefix])[:12]
        self._folder = cache_folder() / "probes"
        self._path = self._folder / f"{distribution.name}-{place}.json"
        content = hashlib.sha256(_bytes(candidate.hook_file)).hexdigest()
        package = _signature(candidate.folder)
        self._key = _digest(
            [
                CORE_API,
                sys.version_info[:2],
                distribution.name,
                distribution.version,
                distribution.entry_point,
                distribution.module,
                content,
                package if distribution.editable else None,
            ]
        )
        self._environment = _digest([environment, package])

    def read(self) -> Outcome | None:
        """The outcome, None when there is none that still holds."""
        try:
            document = json.loads(self._path.read_bytes())
            if document["schema"] != _CACHE_SCHEMA or document["key"] != self._key:
                return None
            outcome = Outcome(**document["outcome"])
            holds = outcome.index is not None or document["environment"] == self._environment
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return outcome if holds else None

    def write(self, outcome: Outcome) -> None:
        """Remember an outcome, by a temporary name and a rename; a cache that cannot be written is left alone."""
        values = {name: getattr(outcome, name) for name in ("index", "failure", "details", "output")}
        document = {
            "schema": _CACHE_SCHEMA,
            "key": self._key,
            "environment": self._environment,
            "outcome": values,
        }
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(document), encoding="utf-8")
            temporary.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _signature(folder: str) -> list[list[Any]]:
    """Path, time and size of the Python files of a package."""
    if not folder:
        return []
    signature = []
    for path in sorted(Path(folder).rglob("*.py")):
        with contextlib.suppress(OSError):
            facts = path.stat()
            signature.append([str(path), facts.st_mtime_ns, facts.st_size])
    return signature


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
