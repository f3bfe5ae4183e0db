"""The specs of the contest."""

from __future__ import annotations

from collections.abc import Iterable

from icml26.hookspecs import hookimpl
from icml26.specs import DatasetSpec, MethodSpec, MetricSpec, TaskSpec, Value

_TASK = "contest.guess"
_OWN = "icml26_plugin_arena.contest"


@hookimpl
def icml26_tasks() -> Iterable[TaskSpec]:
    """One task."""
    types = "icml26_plugin_arena.types"
    words = {"labels": "the draws are labelled"}
    return [
        TaskSpec(
            _TASK, "Guess a mean", f"{types}:Inputs", f"{types}:Truth", f"{types}:Output", ("error", "cost"), words
        )
    ]


@hookimpl
def icml26_methods() -> Iterable[MethodSpec]:
    """The paper's, its reference, a rival, an oracle, one that needs labels."""
    return [
        MethodSpec(
            "ours", _TASK, f"{_OWN}:Shrunk", "The mean", reference="plain", default_dataset="easy", metrics=("gain",),
            profiles={"tiny": {"steps": 2}},
        ),
        MethodSpec("plain", _TASK, f"{_OWN}:First", "The first draw", role="reference", default_dataset="easy"),
        MethodSpec("rival", _TASK, f"{_OWN}:Median", "The median", role="baseline", default_dataset="easy", reference="plain"),
        MethodSpec("cheat", _TASK, f"{_OWN}:Told", "The truth", role="oracle", default_dataset="easy"),
        MethodSpec("picky", _TASK, f"{_OWN}:Median", "Needs labels", requires=("labels",), default_dataset="easy"),
    ]  # fmt: skip


@hookimpl
def icml26_datasets() -> Iterable[DatasetSpec]:
    """Two that draw, one with labels, one that needs a file."""
    return [
        DatasetSpec("easy", _TASK, f"{_OWN}:Draws", "Little noise", smoke={"n": 5}),
        DatasetSpec("labelled", _TASK, f"{_OWN}:Draws", "With labels", provides=("labels",)),
        DatasetSpec("file", _TASK, f"{_OWN}:FromFile", "Numbers of a file", files=("path",)),
    ]


@hookimpl
def icml26_metrics() -> Iterable[MetricSpec]:
    """Error, cost, an extra that costs, and the gain over the reference."""
    return [
        MetricSpec("error", _TASK, f"{_OWN}:error", (Value("", "units", "lower"),)),
        MetricSpec("cost", _TASK, f"{_OWN}:cost", (Value("", None, "lower"),)),
        MetricSpec("square", _TASK, f"{_OWN}:square", (Value("", None, "lower"),), cost="expensive"),
        MetricSpec("gain", _TASK, f"{_OWN}:gain", (Value("", None, "higher"),), relative_to="plain", needs=("error",)),
    ]
