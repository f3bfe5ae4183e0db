"""Metrics that only trees have."""

from __future__ import annotations

from icml26 import PluginError
from icml26.tasks.tabular import Output, Truth


def _fact(output: Output, name: str) -> float:
    value = output.info.get(name)
    if isinstance(value, str) or not isinstance(value, int | float):
        raise PluginError(f"info[{name!r}] must be a number, got {value!r}")
    return float(value)


def leaves(output: Output, truth: Truth) -> float:
    """Number of leaves."""
    return _fact(output, "n_leaves")


def train_objective(output: Output, truth: Truth) -> float:
    """The objective that the search minimises, over the total sum of squares of the training target."""
    return _fact(output, "train_objective")


def timed_out(output: Output, truth: Truth) -> float:
    """1 when a time limit ended the search, else 0."""
    return _fact(output, "timed_out")
