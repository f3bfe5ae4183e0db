"""The simplest regressor: the training mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from icml26.context import RunContext
from icml26.method import Method
from icml26.tasks.tabular import Array, Inputs, Output


@dataclass(frozen=True, slots=True)
class Constant:
    """A regressor that predicts one value for every row."""

    value: float

    def __call__(self, X: Array) -> Array:
        """(n, d) to (n,)."""
        return np.full(len(X), self.value)

    def __fingerprint__(self) -> str:
        """By its value."""
        return repr(self.value)


class Mean(Method[Inputs, Output]):
    """Predicts the mean of the training target, weighted where there are sample weights."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Fit and return the constant."""
        value = float(np.average(inputs.y, weights=inputs.sample_weight))
        return Output(predict=Constant(value), info={"n_parameters": 1, "mean": value})
