"""icml26: the papers of ICML 2026 as methods, datasets and metrics that can be installed, run and compared.

Everything here is imported when it is first used: ``import icml26`` itself loads nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "icml26.specs": ("DatasetSpec", "MethodSpec", "MetricSpec", "Paper", "Provides", "TaskSpec", "Value"),
    "icml26.hookspecs": ("hookimpl",),
    "icml26.task": ("Problem",),
    "icml26.method": ("Method", "MethodConfig"),
    "icml26.dataset": ("Dataset", "DatasetConfig"),
    "icml26.context": ("RunContext",),
    "icml26.records": ("RunRecord",),
    "icml26.errors": ("EnvironmentError_", "Icml26Error", "InputError", "PluginError", "StoreError", "UsageError"),
    "icml26.api_bench": ("bench", "reproduce"),
    "icml26.result_set": ("results",),
    "icml26.api": (
        "get_method",
        "list_datasets",
        "list_methods",
        "list_metrics",
        "list_plugins",
        "list_tasks",
        "load_dataset",
        "run",
    ),
    "icml26.fingerprints": ("fingerprint",),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from icml26.api_bench import bench as bench
    from icml26.api_bench import reproduce as reproduce
    from icml26.context import RunContext as RunContext
    from icml26.dataset import Dataset as Dataset
    from icml26.dataset import DatasetConfig as DatasetConfig
    from icml26.errors import EnvironmentError_ as EnvironmentError_
    from icml26.errors import Icml26Error as Icml26Error
    from icml26.errors import InputError as InputError
    from icml26.errors import PluginError as PluginError
    from icml26.errors import StoreError as StoreError
    from icml26.errors import UsageError as UsageError
    from icml26.fingerprints import fingerprint as fingerprint
    from icml26.hookspecs import hookimpl as hookimpl
    from icml26.method import Method as Method
    from icml26.method import MethodConfig as MethodConfig
    from icml26.records import RunRecord as RunRecord
    from icml26.result_set import results as results
    from icml26.specs import DatasetSpec as DatasetSpec
    from icml26.specs import MethodSpec as MethodSpec
    from icml26.specs import MetricSpec as MetricSpec
    from icml26.specs import Paper as Paper
    from icml26.specs import Provides as Provides
    from icml26.specs import TaskSpec as TaskSpec
    from icml26.specs import Value as Value
    from icml26.task import Problem as Problem


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'icml26' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "__doc__", "__name__"])
