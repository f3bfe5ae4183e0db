"""Metrics are plain functions; these are their types and the check of what they return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from icml26.errors import PluginError

if TYPE_CHECKING:
    from icml26.specs import MetricSpec

Scores: TypeAlias = dict[str, float]
MetricFunction: TypeAlias = Callable[..., float | Mapping[str, float]]


def takes_context(function: MetricFunction) -> bool:
    """Whether a metric declares a third positional parameter, ``ctx``; keyword-only parameters are its options."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional for p in inspect.signature(function).parameters.values()) >= 3


def as_scores(spec: MetricSpec, returned: Any) -> Scores:
    """The record's ``{key: float}`` of what a metric returned: ``name`` for a number, ``name.value`` for a mapping.

    Numbers may be Python or NumPy scalars or 0-d arrays and tensors; anything else raises PluginError.
    """
    if isinstance(returned, Mapping):
        declared = {value.name for value in spec.values}
        unknown = [str(name) for name in returned if name not in declared]
        if unknown:
            raise PluginError(f"metric {spec.name} returned values that it does not declare: {', '.join(unknown)}")
        return {f"{spec.name}.{name}": _number(spec.name, value) for name, value in returned.items()}
    return {spec.name: _number(spec.name, returned)}


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool | int | float):
        return float(value)
    item = getattr(value, "item", None)
    if item is not None and getattr(value, "shape", None) in ((), (1,)):
        return float(item())
    raise PluginError(f"metric {name} returned {type(value).__name__}; a number (or a 0-d array) is expected")
