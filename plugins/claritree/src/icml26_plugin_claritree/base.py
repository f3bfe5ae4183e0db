"""What `CLARITreeRegressor` and `CLARITreeCV` share: checked options and inputs, and the uses of the fitted tree."""

from __future__ import annotations

import numbers
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from icml26_plugin_claritree.drawing import tree_svg
from icml26_plugin_claritree.training import Grown, Prepared, grow, prepare

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # scikit-learn 1.5, the last that the baseline `linear-tree` works with

    def validate_data(estimator: Any, /, *args: Any, **options: Any) -> Any:
        """`validate_data` of scikit-learn 1.6 in terms of the method that it replaced."""
        return estimator._validate_data(*args, force_all_finite=options.pop("ensure_all_finite"), **options)


FloatArray = NDArray[np.float64]

MOST_INPUT = 1e300  # differences and sums of greater values overflow
MOST_TARGET = 1e151  # … and squares
MOST_OPTION = 1e100  # greater numbers overflow when rows, penalties and sums of squares are multiplied

_CHOICES = {
    "thresholds_strategy": ("quantile", "uniform"),
    "leaf": ("linear", "constant"),
    "engine": ("auto", "binned", "rank1", "numpy"),
    "search": ("lookahead", "greedy"),
    "ties": ("first", "explore"),
    "categorical_encoding": ("one-hot", "ignore"),
    "clip_predictions": (None, "leaf", "train"),
}


def require_number(name: str, value: Any, *, least: float, integral: bool = False) -> None:
    kind: Any = numbers.Integral if integral else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= MOST_OPTION:  # NaN fails, too
        raise ValueError(
            f"{name} must be {'an integer' if integral else 'a finite number'} of at least {least:g}, got {_short(value)}"
            + (f", which is beyond {MOST_OPTION:g}" if isinstance(value, kind) and value > MOST_OPTION else "")
        )


def _short(value: Any) -> str:
    """As a message shows it; Python refuses to write out the longest integers."""
    if isinstance(value, numbers.Integral) and abs(int(value)) > MOST_OPTION:
        return "a longer integer than any option takes"
    return repr(value)


class TreeEstimator(RegressorMixin, BaseEstimator):
    """What the regressor and its cross-validated form share: checked inputs, and the fitted tree's uses."""

    def _check_common(self) -> None:
        require_number("depth", self.depth, least=0, integral=True)
        if self.n_thresholds != "full":
            require_number("n_thresholds", self.n_thresholds, least=1, integral=True)
        require_number("min_leaf_node_size", self.min_leaf_node_size, least=0, integral=True)
        if self.n_jobs is not None:
            require_number("n_jobs", self.n_jobs, least=-MOST_OPTION, integral=True)
        if self.depth > 20:
            raise ValueError(f"depth must be at most 20, got {self.depth}: a tree of depth 20 has a million leaves")
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if not any(value is c or (isinstance(value, str) and value == c) for c in choices):
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
        if self.time_limit is not None:
            require_number("time_limit", self.time_limit, least=0.0)
        if self.top_k is not None:
            require_number("top_k", self.top_k, least=1, integral=True)

    def _check_inputs(self, X: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
        self._refuse_target(y)
        try:
            X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False, y_numeric=True)
            inputs, target = np.asarray(X), np.asarray(y, dtype=np.float64)
        except OverflowError as error:
            raise ValueError(f"X or y holds an integer beyond the range of float64: {error}") from error
        self._refuse_target(target)  # again: None and NaN among objects become numbers only now
        self._refuse_not_finite(inputs)
        for name, values, most in (("X", inputs, MOST_INPUT), ("y", target, MOST_TARGET)):
            if max(values.max(), -values.min()) > most:
                raise ValueError(f"{name} holds values beyond {most:g}, whose sums overflow: rescale it")
        return inputs, target

    @staticmethod
    def _refuse_target(y: ArrayLike) -> None:
        """Name the row of a value that is not finite; every other fault of y is scikit-learn's to name."""
        target = np.asarray(y).ravel()
        if target.dtype.kind != "f":
            return
        bad = np.flatnonzero(~np.isfinite(target))
        if bad.size:
            raise ValueError(f"Input y contains {_what(target[bad[0]])} in row {bad[0]}: remove or impute such rows")

    def _refuse_not_finite(self, X: FloatArray) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(X.sum()) or np.isfinite(X).all():
                return
        row, column = (int(v) for v in np.argwhere(~np.isfinite(X))[0])
        raise ValueError(
            f"Input X contains {_what(X[row, column])} in column {column} ({self._names()[column]!r}), row {row}: "
            f"{type(self).__name__} takes finite numbers only, impute or drop them"
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "tree_")

    def _names(self, given: Sequence[str] | None = None) -> list[str]:
        """Names of the input columns: the given ones, those seen in fit, or x0, x1, …."""
        if given is None:
            given = getattr(self, "feature_names_in_", None)
        if given is None:
            return [f"x{j}" for j in range(self.n_features_in_)]
        if len(given) != self.n_features_in_:
            raise ValueError(f"{len(given)} feature names for {self.n_features_in_} columns")
        return [str(name) for name in given]

    def _column_numbers(self, option: str, given: Sequence[int | str] | None) -> tuple[int, ...]:
        """Columns by number or name -> numbers."""
        names = self._names()
        if isinstance(given, str) or not (given is None or np.iterable(given)):
            raise ValueError(f"{option} must be a list of column numbers or names, got {given!r}")
        found: list[int] = []
        for column in () if given is None else given:
            if isinstance(column, str) and column in names:
                found.append(names.index(column))
            elif isinstance(column, numbers.Integral) and not isinstance(column, bool) and 0 <= column < len(names):
                found.append(int(column))
            else:
                raise ValueError(
                    f"{option}: there is no column {column!r} among {names if len(names) <= 20 else len(names)}"
                )
        return tuple(dict.fromkeys(found))

    def _prepare(self, X: FloatArray, y: FloatArray, n_threads: int) -> Prepared:
        return prepare(
            X,
            y,
            n_thresholds=self.n_thresholds,
            strategy=self.thresholds_strategy,
            min_leaf=self.min_leaf_node_size,
            leaf=self.leaf,
            categorical=self._column_numbers("categorical", self.categorical),
            one_hot=self.categorical_encoding == "one-hot",
            engine=self.engine,
            n_threads=n_threads,
        )

    def _grow(self, prepared: Prepared, lambdas: Sequence[float], kappa: float) -> list[Grown]:
        features = None
        if self.candidate_features is not None:
            features = self._column_numbers("candidate_features", self.candidate_features)
        return grow(
            prepared,
            lambdas,
            kappa,
            depth=self.depth,
            search=self.search,
            time_limit=self.time_limit,
            top_k=self.top_k,
            features=features,
            explore_ties=self.ties == "explore",
        )

    def _keep(self, prepared: Prepared, grown: Grown) -> None:
        """Set the learned attributes, and warn about what the user should know."""
        self.tree_ = grown.tree
        self.objective_ = grown.objective
        self.tss_ = prepared.tss
        self.n_leaves_ = grown.tree.n_leaves
        self.threshold_pool_ = prepared.pool
        self.timed_out_ = grown.timed_out
        if self.leaf == "linear" and not prepared.columns.continuous:
            warnings.warn(
                "no column of X is continuous (binary columns only split): the leaves are constants",
                UserWarning,
                stacklevel=3,
            )
        if grown.timed_out:
            warnings.warn(
                f"the time limit of {self.time_limit:g} s was reached: the rest of the tree was completed greedily",
                ConvergenceWarning,
                stacklevel=3,
            )
        if grown.ill_conditioned:
            warnings.warn(
                f"the columns are nearly linearly dependent in leaves {list(grown.ill_conditioned)}, whose coefficients are not "
                "determined well: raise kappa or drop columns",
                UserWarning,
                stacklevel=3,
            )

    def _check_predict(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        inputs = np.asarray(validate_data(self, X, dtype=np.float64, ensure_all_finite=False, reset=False))
        self._refuse_not_finite(inputs)
        return inputs

    def predict(self, X: ArrayLike) -> FloatArray:
        """Predictions (m,) for X (m, n_features), float64."""
        inputs = self._check_predict(X)
        return self.tree_.predict(inputs, self.clip_predictions)

    def apply(self, X: ArrayLike) -> NDArray[np.int64]:
        """Number of the leaf of each row of X, (m,), 0 to n_leaves_ - 1 from left to right."""
        inputs = self._check_predict(X)
        return self.tree_.apply(inputs)

    def export_text(self, feature_names: Sequence[str] | None = None, digits: int = 4) -> str:
        """The tree as indented text: the condition of each cut, and the equation, rows and error of each leaf."""
        check_is_fitted(self)
        require_number("digits", digits, least=1, integral=True)
        return self.tree_.text(self._names(feature_names), digits)

    def export_svg(
        self, path: str | os.PathLike[str] | None = None, feature_names: Sequence[str] | None = None, digits: int = 3
    ) -> str:
        """The tree as an SVG drawing, also written to `path` where given."""
        check_is_fitted(self)
        require_number("digits", digits, least=1, integral=True)
        drawing = tree_svg(self.tree_, self._names(feature_names), digits)
        if path is not None:
            write_whole(Path(path), drawing)
        return drawing

    def _repr_svg_(self) -> str | None:
        return self.export_svg() if hasattr(self, "tree_") else None


def _what(value: float) -> str:
    return "NaN" if np.isnan(value) else "infinity"


def write_whole(path: Path, text: str) -> None:
    """Write a whole file or none of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
