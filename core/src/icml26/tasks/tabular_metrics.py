"""The metrics of ``regression.tabular``.

Each returns a number, or ``{"": mean, "se": standard error}`` over the replicates of an output that has them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from icml26.errors import PluginError
from icml26.tasks.tabular import Output, Truth

Array = np.ndarray


def mse(output: Output, truth: Truth) -> float | dict[str, float]:
    """Mean squared error on the test rows."""
    return _score(output, truth.X_test, truth.y_test, _mse)


def mae(output: Output, truth: Truth) -> float | dict[str, float]:
    """Mean absolute error on the test rows."""
    return _score(output, truth.X_test, truth.y_test, lambda y, f: np.abs(f - y).mean(axis=-1))


def r2(output: Output, truth: Truth) -> float | dict[str, float]:
    """1 - (squared error) / (squared deviation from the test rows' mean); NaN where the test target is constant."""
    return _score(output, truth.X_test, truth.y_test, _r2)


def train_mse(output: Output, truth: Truth) -> float | dict[str, float]:
    """Mean squared error on the training rows, without weights."""
    return _score(output, truth.X_train, truth.y_train, _mse)


def n_parameters(output: Output, truth: Truth) -> float:
    """How many numbers the fitted model holds, as the method counted them in ``info["n_parameters"]``."""
    count = output.info.get("n_parameters")
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise PluginError(f"info['n_parameters'] must be a count, got {count!r}")
    return float(count)


def _mse(y: Array, predicted: Array) -> Array:
    return np.square(predicted - y).mean(axis=-1)


def _r2(y: Array, predicted: Array) -> Array:
    total = np.square(y - y.mean()).sum()
    if (y == y[0]).all() or total == 0:  # the mean of equal numbers may differ from them in the last bit
        return np.full(predicted.shape[:-1], np.nan)
    return 1.0 - np.square(predicted - y).sum(axis=-1) / total


def _score(output: Output, X: Array, y: Array, loss: Callable[[Array, Array], Array]) -> float | dict[str, float]:
    if output.replicates is None:
        return float(loss(y, _checked("predict", output.predict(X.copy()), (len(y),))))
    values = loss(y, _checked("replicates", output.replicates(X.copy()), (None, len(y))))
    if len(values) == 1:
        return float(values[0])
    return {"": float(values.mean()), "se": float(values.std(ddof=1) / np.sqrt(len(values)))}


def _checked(name: str, predicted: object, shape: tuple[int | None, ...]) -> Array:
    """``predicted`` as float64; raises PluginError unless it is a real array of ``shape`` (None: any number above 0)."""
    array = np.asarray(predicted)
    fits = array.ndim == len(shape) and all(
        have == want if want is not None else have > 0 for have, want in zip(array.shape, shape, strict=True)
    )
    if not fits or array.dtype.kind not in "fiub":
        wanted = "({})".format(", ".join("R" if want is None else str(want) for want in shape))
        raise PluginError(f"{name} must return numbers of shape {wanted}, got {array.dtype} {array.shape}")
    return array.astype(np.float64)
