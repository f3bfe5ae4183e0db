"""How runs are started: one small protocol, a file for each way.

What crosses is a request and a record, both JSON. Every executor starts the same worker under the same guardian, so a
crash, a hang or a lack of memory is seen alike everywhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Job:
    """One request document and the folder in which its record (and log, artifacts) will lie.

    ``python`` is the interpreter of another environment, None for ours. ``fresh`` asks for a process that has run nothing
    before; a memory limit implies it. ``affinity`` names what a process may be reused for (the method).
    """

    id: str
    request: dict[str, Any]
    folder: Path
    affinity: str = ""
    python: str | None = None
    fresh: bool = False

    @property
    def limits(self) -> dict[str, float]:
        """``timeout_seconds`` and ``memory_bytes`` where they were asked for."""
        limits: dict[str, float] = self.request.get("limits") or {}
        return limits


@dataclass(frozen=True, slots=True)
class Started:
    """The job's process has begun."""

    id: str


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` steps of ``label``; thinned out to what a person can read."""

    id: str
    label: str
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a learning curve, thinned out; the run's ``curves.jsonl`` has them all."""

    id: str
    name: str
    value: float
    step: int | None


@dataclass(frozen=True, slots=True)
class Finished:
    """``record.json`` lies in the job's folder, whatever the run's end (``related.json`` for a request of kind relate)."""

    id: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The run ended but its record could not be written (``reason``); ``record`` is its document when there is one."""

    id: str
    reason: str
    record: dict[str, Any] | None = None


Event: TypeAlias = Started | Progress | Point | Finished | Unwritten


class Executor(Protocol):
    """Starts jobs. ``slots`` is how many may be in flight; each ends in exactly one Finished or Unwritten."""

    name: str
    slots: int

    def submit(self, job: Job) -> None:
        """Start a job; at most ``slots`` may be unfinished."""

    def poll(self, timeout: float) -> list[Event]:
        """What happened since the last call; waits up to ``timeout`` seconds for something."""

    def cancel(self, job_id: str) -> None:
        """End a job now; its record says ``killed``. Unknown ids are ignored."""

    def close(self) -> None:
        """End every process that was started, within seconds; running jobs leave no record. Calling it again is harmless."""


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def threads_for(workers: int) -> int:
    """Threads a worker: cores ÷ workers, at least one."""
    return max(1, cores() // max(1, workers))


def open_executor(spec: str, *, workers: int, folder: Path, options: dict[str, Any] | None = None) -> Executor:
    """The executor that ``--executor`` names: ``local``, ``env``, ``dask:ADDRESS`` or ``slurm``.

    ``workers`` is ``--jobs``; ``folder`` (below the runs folder) holds what Dask and Slurm need beside the runs; ``options``
    are submitit's parameters. Raises UsageError for another name, EnvironmentError_ when it cannot be used here.
    """
    from icml26.errors import UsageError

    name, _, address = spec.partition(":")
    if name == "local" and not address:
        from icml26.executors.local import LocalExecutor

        return LocalExecutor(workers)
    if name == "env" and not address:
        from icml26.executors.env import EnvExecutor

        return EnvExecutor(workers)
    if name == "dask" and address:
        from icml26.executors.dask import DaskExecutor

        return DaskExecutor(address, folder)
    if name == "slurm" and not address:
        from icml26.executors.slurm import SlurmExecutor

        return SlurmExecutor(folder, slots=workers, parameters=options)
    raise UsageError(f"--executor {spec!r}; allowed: local, env, dask:ADDRESS (e.g. dask:tcp://10.0.0.1:8786), slurm")
