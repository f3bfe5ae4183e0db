"""The whole extension surface: four hooks, each returning an iterable of specs."""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from icml26.specs import CORE_API, ENTRY_POINT_GROUP, DatasetSpec, MethodSpec, MetricSpec, TaskSpec

__all__ = ["CORE_API", "ENTRY_POINT_GROUP", "hookimpl", "hookspec"]

hookspec = pluggy.HookspecMarker("icml26")
hookimpl = pluggy.HookimplMarker("icml26")


@hookspec
def icml26_tasks() -> Iterable[TaskSpec]:
    """The tasks that this plugin introduces."""
    return ()


@hookspec
def icml26_methods() -> Iterable[MethodSpec]:
    """The methods of this plugin: the paper's, its baselines, references and oracles."""
    return ()


@hookspec
def icml26_datasets() -> Iterable[DatasetSpec]:
    """The datasets of this plugin."""
    return ()


@hookspec
def icml26_metrics() -> Iterable[MetricSpec]:
    """The metrics of this plugin."""
    return ()
