"""The specs of the lab."""

from __future__ import annotations

from collections.abc import Iterable

from icml26.hookspecs import hookimpl
from icml26.specs import DatasetSpec, MethodSpec, MetricSpec, TaskSpec, Value

_TASK = "testing.lab"


@hookimpl
def icml26_tasks() -> Iterable[TaskSpec]:
    """One task."""
    types = "icml26_plugin_lab.types"
    return [TaskSpec(_TASK, "Do as told", f"{types}:Inputs", f"{types}:Truth", f"{types}:Output", metrics=("score",))]


@hookimpl
def icml26_methods() -> Iterable[MethodSpec]:
    """Methods that behave, misbehave, or never get imported."""
    own = "icml26_plugin_lab.methods"
    return [
        MethodSpec("noop", _TASK, f"{own}:Noop", "Does nothing", default_dataset="nothing"),
        MethodSpec("other", _TASK, f"{own}:Noop", "Does nothing under another name", default_dataset="nothing"),
        MethodSpec("mischief", _TASK, f"{own}:Mischief", "Does harm", default_dataset="nothing"),
        MethodSpec("import-hang", _TASK, "icml26_plugin_lab.hang:Noop", "Hangs while it is imported"),
    ]


@hookimpl
def icml26_datasets() -> Iterable[DatasetSpec]:
    """Nothing, at once or never."""
    own = "icml26_plugin_lab.methods"
    return [
        DatasetSpec("nothing", _TASK, f"{own}:Nothing", "An empty problem"),
        DatasetSpec("load-hang", _TASK, f"{own}:LoadHang", "Never loads"),
    ]


@hookimpl
def icml26_metrics() -> Iterable[MetricSpec]:
    """What the method says its value is, in various types."""
    own = "icml26_plugin_lab.methods"
    return [
        MetricSpec("score", _TASK, f"{own}:score", (Value("", None, "higher"),)),
        MetricSpec("odd", _TASK, f"{own}:odd", (Value("", None, "higher"),)),
        MetricSpec("gain", _TASK, f"{own}:gain", (Value("", None, "higher"),), relative_to="noop", needs=("score",)),
        MetricSpec("gain-crash", _TASK, f"{own}:gain_crash", (Value(),), relative_to="noop", needs=("score",)),
    ]
