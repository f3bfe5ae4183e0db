"""What private regression is judged by: how far the training error is from the best a linear model can do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from icml26 import PluginError
from icml26.tasks.tabular import Output, Truth
from numpy.typing import NDArray

Array = NDArray[np.float64]

_BLOCK_BYTES = 1 << 26


def excess_risk(output: Output, truth: Truth) -> dict[str, float]:
    """(||y - f(X)||^2 - min_theta ||y - X theta||^2) / n on the training rows, in squared units of the target.

    The minimum is over linear models without intercept, the paper's class; a richer model may come out below zero. With
    replicates: their mean, its standard error, the median, and the share of them that is worse than predicting zero.
    """
    X, y = truth.X_train, truth.y_train
    theta = np.linalg.lstsq(X, y, rcond=None)[0]
    least = float(np.square(y - X @ theta).mean())
    total: Array = np.zeros(_replicates(output, X))
    for rows, predicted in _predictions(output, X):
        total += np.square(predicted - y[rows]).sum(axis=1)
    excess = total / len(y) - least
    null = float(np.square(y).mean()) - least
    scores = {
        "": float(excess.mean()),
        "median": float(np.median(excess)),
        "worse-than-null": float((excess > null).mean()),
    }
    if len(excess) > 1:
        scores["se"] = float(excess.std(ddof=1) / np.sqrt(len(excess)))
    return scores


def clipped_residuals(output: Output, truth: Truth) -> float:
    """Share of training residuals beyond the label bound, which iterative mixing clips at; mean over replicates."""
    bound = output.info.get("label_bound")
    if not isinstance(bound, int | float) or not bound > 0:
        raise PluginError(f"info['label_bound'] must be a positive number, got {bound!r}")
    clipped = 0
    for rows, predicted in _predictions(output, truth.X_train):
        clipped += int(np.count_nonzero(np.abs(truth.y_train[rows] - predicted) > bound))
    return clipped / (len(truth.y_train) * _replicates(output, truth.X_train))


def _replicates(output: Output, X: Array) -> int:
    return 1 if output.replicates is None else len(output.replicates(X[:1].copy()))


def _predictions(output: Output, X: Array) -> Iterator[tuple[slice, Array]]:
    """Predictions (R, m) block by block, so that R x n is never held."""
    repeats = _replicates(output, X)
    step = max(1, _BLOCK_BYTES // (8 * repeats))
    for start in range(0, len(X), step):
        rows = slice(start, min(start + step, len(X)))
        block = X[rows].copy()
        predicted = output.replicates(block) if output.replicates is not None else output.predict(block)[None]
        if predicted.shape != (repeats, len(block)):
            raise PluginError(f"predictions have shape {predicted.shape}, expected {(repeats, len(block))}")
        yield rows, predicted
