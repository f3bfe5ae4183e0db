"""Fitted models as outputs of `regression.tabular`, and the parts that adapters share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from icml26 import InputError
from icml26.tasks.tabular import Inputs
from numpy.typing import NDArray
from sklearn.model_selection import KFold

FloatArray = NDArray[np.float64]


def refuse_weights(inputs: Inputs, method: str) -> None:
    """Raise InputError where the problem has sample weights."""
    if inputs.sample_weight is not None:
        raise InputError(f"{method} takes no sample weights: drop the weight column, or use a method that does")


@dataclass(frozen=True)
class FittedTree:
    """A fitted `CLARITreeRegressor` as a function of X."""

    estimator: Any

    def __call__(self, X: FloatArray) -> FloatArray:
        """X (n, d) -> (n,)."""
        return np.asarray(self.estimator.predict(X))

    def __fingerprint__(self) -> str:
        """By the tree's arrays."""
        return hashlib.sha256(self.estimator.to_json().encode()).hexdigest()


@dataclass(frozen=True)
class FittedModel:
    """A model of another library as a function of X; it is told apart by its predictions on the training rows."""

    function: Callable[[FloatArray], FloatArray]
    digest: str

    @classmethod
    def of(cls, function: Callable[[FloatArray], FloatArray], X: FloatArray) -> FittedModel:
        """With the digest of its predictions on X."""
        return cls(function, hashlib.sha256(np.ascontiguousarray(function(X), dtype=np.float64).tobytes()).hexdigest())

    def __call__(self, X: FloatArray) -> FloatArray:
        """X (n, d) -> (n,)."""
        return np.asarray(self.function(X))

    def __fingerprint__(self) -> str:
        """By the digest."""
        return self.digest


@dataclass(frozen=True)
class Encoder:
    """Numbers as they are, or standardised; an indicator column for each category seen in training."""

    categorical: tuple[int, ...]
    codes: tuple[tuple[float, ...], ...]
    mean: FloatArray
    std: FloatArray
    numeric: tuple[int, ...] = field(default=())

    @classmethod
    def fit(cls, inputs: Inputs, *, standardize: bool = False) -> Encoder:
        """Learn categories, means and deviations from the training rows."""
        numeric = tuple(j for j in range(inputs.X.shape[1]) if j not in inputs.categorical)
        values = inputs.X[:, list(numeric)]
        mean, std = values.mean(axis=0), values.std(axis=0)
        if not standardize:
            mean, std = np.zeros_like(mean), np.ones_like(std)
        return cls(
            categorical=tuple(inputs.categorical),
            codes=tuple(tuple(np.unique(inputs.X[:, j]).tolist()) for j in inputs.categorical),
            mean=mean,
            std=np.where(std > 0, std, 1.0),
            numeric=numeric,
        )

    def __call__(self, X: FloatArray) -> FloatArray:
        """X (n, d) -> (n, columns)."""
        parts = [(X[:, list(self.numeric)] - self.mean) / self.std]
        for j, codes in zip(self.categorical, self.codes, strict=True):
            parts.append((X[:, [j]] == np.array(codes)).astype(np.float64))
        return np.column_stack(parts)


def tune(
    build: Callable[[dict[str, Any], int], Any],
    grid: Sequence[dict[str, Any]],
    X: FloatArray,
    y: FloatArray,
    folds: int,
    seed: int,
) -> tuple[dict[str, Any], Any]:
    """The setting of greatest mean validation R2, refitted to all rows.

    `build` makes an unfitted model with `fit` and `predict` for a setting and a number of rows; the first of equal
    settings wins. The trees are tuned on the same folds.
    """
    if len(grid) == 1 or len(y) < folds:
        return grid[0], build(grid[0], len(y)).fit(X, y)
    scores = np.zeros(len(grid))
    for train, valid in KFold(folds, shuffle=True, random_state=seed).split(X):
        total = max(float(np.square(y[valid] - y[valid].mean()).sum()), np.finfo(float).tiny)
        for i, options in enumerate(grid):
            model = build(options, len(train)).fit(X[train], y[train])
            scores[i] += 1.0 - float(np.square(y[valid] - model.predict(X[valid])).sum()) / total
    best = grid[int(np.argmax(scores))]
    return best, build(best, len(y)).fit(X, y)
