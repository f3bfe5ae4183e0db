"""Records that nobody ran, for tests of what works on records alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from icml26.ids import new_id
from icml26.keys import digest
from icml26.leaderboard import Outcome
from icml26.records import RunRecord, metric_entry


def record(
    method: str = "p/m",
    dataset: str = "p/d",
    seed: int = 0,
    *,
    status: Any = "succeeded",
    metrics: Mapping[str, float] | None = None,
    config: Mapping[str, Any] | None = None,
    dataset_config: Mapping[str, Any] | None = None,
    role: str = "paper",
    task: str = "a.task",
    direction: str | None = "lower",
    **more: Any,
) -> RunRecord:
    """A record as a run would leave it."""
    identity = [method, dataset, seed, dict(config or {}), dict(dataset_config or {})]
    entries = {key: metric_entry(value, unit=None, direction=direction) for key, value in (metrics or {}).items()}
    failed = status != "succeeded"
    values: dict[str, Any] = {
        "id": new_id(),
        "key": digest(identity),
        "status": status,
        "method": {"name": method, "role": role, "config": dict(config or {}), "profile": None, "results_version": 1},
        "dataset": {"name": dataset, "config": dict(dataset_config or {}), "revision": "1", "files": {}},
        "task": task,
        "seed": seed,
        "metrics": {} if failed else entries,
        "seconds": {"load": 0.1, "run": 1.0 + seed, "score": 0.1},
        "peak_memory_bytes": 100_000_000,
        "error": {"type": "ValueError", "message": "broken", "traceback": None, "signal": None} if failed else None,
        "provenance": {"started": "2026-08-01T10:00:00Z", "host": "h", "python": "3.11.7", "workers": 1, "threads": 1},
    }
    return RunRecord(**(values | more))


def outcomes(
    values: Mapping[str, Iterable[float | None]],
    *,
    metric: str = "loss",
    dataset: str = "d",
    roles: Mapping[str, str] | None = None,
    direction: str | None = "lower",
    configs: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Outcome]:
    """One outcome a (label, seed); None is a failed run. Seeds count from 0."""
    found = []
    for label, numbers in values.items():
        role = (roles or {}).get(label, "paper")
        for seed, number in enumerate(numbers):
            made = record(
                f"p/{label.split()[0]}",
                dataset,
                seed,
                status="succeeded" if number is not None else "failed",
                metrics={} if number is None else {metric: number},
                role=role,
                direction=direction,
                config=(configs or {}).get(label),
            )
            reason = None if number is not None else "failed: broken"
            found.append(Outcome(label, dataset, seed, made, role, reason=reason))
    return found
