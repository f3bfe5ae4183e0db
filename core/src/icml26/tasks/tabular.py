"""The task ``regression.tabular``: predict a number from a row of numbers and coded categories.

The readers of the user's tables (``read_table``, ``Table``, ``TableFileConfig``) are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from icml26.errors import InputError

if TYPE_CHECKING:
    from icml26.tasks.table_file import Table as Table
    from icml26.tasks.table_file import TableFileConfig as TableFileConfig
    from icml26.tasks.table_file import read_table as read_table

Array: TypeAlias = np.ndarray

_READERS = ("Table", "TableFileConfig", "read_table")
__all__ = ["Inputs", "Output", "Table", "TableFileConfig", "Truth", "read_table"]


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The training rows.

    ``X`` is (n, d) float64, ``y`` (n,) float64, both finite. ``categorical`` holds the increasing indices of the columns
    of ``X`` that hold codes 0, 1, … of unordered categories. ``sample_weight`` is (n,) float64, not negative, not all
    zero. Raises InputError where this does not hold.
    """

    X: Array
    y: Array
    feature_names: tuple[str, ...]
    categorical: tuple[int, ...] = ()
    sample_weight: Array | None = None

    def __post_init__(self) -> None:
        _check_rows("X", self.X, "y", self.y, self.feature_names)
        width = self.X.shape[1]
        if len(self.feature_names) != width:
            raise InputError(f"X has {width} columns but there are {len(self.feature_names)} feature names")
        repeated = sorted({name for name in self.feature_names if self.feature_names.count(name) > 1})
        if repeated:
            raise InputError(f"feature names occur twice: {', '.join(map(repr, repeated))}")
        if list(self.categorical) != sorted(set(self.categorical) & set(range(width))):
            raise InputError(f"categorical must be increasing column indices below {width}, got {self.categorical}")
        for column in self.categorical:
            codes = self.X[:, column]
            if (codes < 0).any() or (codes != np.floor(codes)).any():
                raise InputError(f"categorical column {self.feature_names[column]!r} must hold codes 0, 1, 2, …")
        if self.sample_weight is not None:
            _check_weights(self.sample_weight, len(self.y))


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """The held-out rows, and a copy of the training rows for the training error: arrays as in ``Inputs``."""

    X_test: Array
    y_test: Array
    X_train: Array
    y_train: Array

    def __post_init__(self) -> None:
        _check_rows("X_test", self.X_test, "y_test", self.y_test)
        _check_rows("X_train", self.X_train, "y_train", self.y_train)
        if self.X_test.shape[1] != self.X_train.shape[1]:
            raise InputError(f"X_test has {self.X_test.shape[1]} columns, X_train {self.X_train.shape[1]}")


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """A fitted regressor.

    ``predict`` maps X (n, d) to (n,). ``info`` holds JSON values; ``info["n_parameters"]`` is read by the metric
    ``n-parameters``. A method whose result is random may give ``replicates``, X (n, d) to (R, n): the predictions of R
    independent fits on the same rows; metrics then average over them and report the standard error.
    """

    predict: Callable[[Array], Array]
    info: Mapping[str, Any] = field(default_factory=dict)
    replicates: Callable[[Array], Array] | None = None


def _check_rows(x_name: str, X: Any, y_name: str, y: Any, columns: tuple[str, ...] = ()) -> None:
    for name, array, rank in ((x_name, X, 2), (y_name, y, 1)):
        if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.ndim != rank:
            shape = "(n, d)" if rank == 2 else "(n,)"
            raise InputError(f"{name} must be a float64 array of shape {shape}, got {_describe(array)}")
    if X.shape[0] != y.shape[0]:
        raise InputError(f"{x_name} has {X.shape[0]} rows, {y_name} has {y.shape[0]}")
    if 0 in X.shape:
        raise InputError(f"{x_name} is empty: its shape is {X.shape}")
    bad = np.argwhere(~np.isfinite(X))
    if len(bad):
        row, column = (int(index) for index in bad[0])
        label = repr(columns[column]) if column < len(columns) else str(column)
        raise InputError(f"{x_name} holds {X[row, column]} in row {row}, column {label}; values must be finite")
    rows = np.flatnonzero(~np.isfinite(y))
    if len(rows):
        raise InputError(f"{y_name} holds {y[rows[0]]} in row {rows[0]}; values must be finite")


def _check_weights(weight: Any, n: int) -> None:
    if not isinstance(weight, np.ndarray) or weight.dtype != np.float64 or weight.shape != (n,):
        raise InputError(f"sample_weight must be a float64 array of shape ({n},), got {_describe(weight)}")
    if not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise InputError("sample_weight must be finite, not negative and not all zero")


def _describe(value: Any) -> str:
    return f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


def __getattr__(name: str) -> Any:
    if name in _READERS:
        return getattr(importlib.import_module("icml26.tasks.table_file"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
