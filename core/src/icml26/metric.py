"""Metrics are plain functions; these are their types and the check of what they return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from icml26.errors import PluginError

if TYPE_CHECKING:
    from icml26.specs import MetricSpec, Value

Scores: TypeAlias = dict[str, float]
MetricFunction: TypeAlias = Callable[..., float | Mapping[str, float]]


def takes_context(function: MetricFunction) -> bool:
    """Whether a metric declares a third positional parameter, ``ctx``; keyword-only parameters are its options."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional for p in inspect.signature(function).parameters.values()) >= 3


def value_key(spec: MetricSpec, value: Value) -> str:
    """The record's key of one value: ``mse`` for the unnamed one, ``mse-se`` for its error, ``hits.at-10`` for others."""
    if value.name == "":
        return spec.name
    return f"{spec.name}-{value.name}" if value.error_of == "" else f"{spec.name}.{value.name}"


def values_by_key(spec: MetricSpec) -> dict[str, Value]:
    """The declared values of a metric under their keys in the record."""
    return {value_key(spec, value): value for value in spec.values}


def as_scores(spec: MetricSpec, returned: Any) -> Scores:
    """The record's ``{key: float}`` of what a metric returned; every key stands in ``values_by_key(spec)``.

    A number is short for ``{"": number}``. A mapping may leave out values that it declares (an error of the mean when
    there is one replicate). Numbers may be Python or NumPy scalars or 0-d arrays and tensors. Raises PluginError for
    anything else and for values that are not declared.
    """
    named = returned if isinstance(returned, Mapping) else {"": returned}
    declared = {value.name: value_key(spec, value) for value in spec.values}
    unknown = [repr(name) for name in named if name not in declared]
    if unknown:
        raise PluginError(
            f"metric {spec.name} returned values that it does not declare: {', '.join(unknown)} "
            f"(declared: {', '.join(map(repr, declared))}; '' is the value of a metric that returns a number)"
        )
    return {declared[name]: _number(spec.name, value) for name, value in named.items()}


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool | int | float):
        return float(value)
    item = getattr(value, "item", None)
    if item is not None and getattr(value, "shape", None) in ((), (1,)):
        return float(item())
    raise PluginError(f"metric {name} returned {type(value).__name__}; a number (or a 0-d array) is expected")
