"""What this plugin declares: specs only, nothing is imported but icml26's spec types."""

from __future__ import annotations

from icml26 import DatasetSpec, MethodSpec, MetricSpec, TaskSpec, hookimpl

from icml26_plugin_divergence_decoding.specs import datasets, methods, metrics, tasks


@hookimpl
def icml26_tasks() -> list[TaskSpec]:
    """Unlearning."""
    return [tasks.UNLEARNING]


@hookimpl
def icml26_methods() -> list[MethodSpec]:
    """Divergence Decoding in its forms, the reference points, the baselines."""
    return list(methods.methods())


@hookimpl
def icml26_datasets() -> list[DatasetSpec]:
    """The offline benches, and files of the user."""
    return list(datasets.datasets())


@hookimpl
def icml26_metrics() -> list[MetricSpec]:
    """What is forgotten, kept, leaked, and what it costs."""
    return list(metrics.metrics())
