"""Fitted linear predictors that a run hands to metrics, and the encoding of coded categories before them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from icml26.tasks.tabular import Inputs, Output
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class OneHot:
    """Columns of codes 0 .. m-1 become m indicator columns each, after the other columns; unseen codes become zeros."""

    columns: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    """Number of codes of each of `columns`, as seen in training."""

    @classmethod
    def of(cls, inputs: Inputs) -> OneHot:
        return cls(inputs.categorical, tuple(int(inputs.X[:, j].max()) + 1 for j in inputs.categorical))

    def __call__(self, X: Array) -> Array:
        """(n, d) to (n, d'); X itself when there are no categories."""
        if not self.columns:
            return X
        numeric = np.delete(X, self.columns, axis=1)
        indicators = [
            (X[:, [j]] == np.arange(size)).astype(np.float64) for j, size in zip(self.columns, self.sizes, strict=True)
        ]
        return np.hstack([numeric, *indicators])


@dataclass(frozen=True)
class LinearPredictor:
    """x -> x . coef + intercept after encoding."""

    coef: Array
    """Shape (d,)."""
    intercept: float
    encode: OneHot = OneHot()

    def __call__(self, X: Array) -> Array:
        return np.asarray(self.encode(X) @ self.coef + self.intercept, dtype=np.float64)


@dataclass(frozen=True)
class LinearReplicates:
    """R linear predictors at once."""

    coef: Array
    """Shape (R, d)."""
    intercept: Array
    """Shape (R,)."""
    encode: OneHot = OneHot()

    def __call__(self, X: Array) -> Array:
        return np.asarray(self.coef @ self.encode(X).T + self.intercept[:, None], dtype=np.float64)


def linear_output(coef: Array, intercept: Array, encode: OneHot, info: dict[str, Any]) -> Output:
    """Output of R fits, coef (R, d) and intercept (R,); the first one is *the* fit."""
    count = coef.shape[1] + int(bool(np.any(intercept)))
    return Output(
        predict=LinearPredictor(coef[0], float(intercept[0]), encode),
        info={"n_parameters": count, "repeats": len(coef), **info},
        replicates=LinearReplicates(coef, intercept, encode) if len(coef) > 1 else None,
    )


def save_linear(output: Output, folder: Path) -> None:
    """Coefficients as .npy, the rest as JSON."""
    one = output.predict
    if not isinstance(one, LinearPredictor):
        raise TypeError(f"only linear outputs can be saved, got {type(one).__name__}")
    many = output.replicates
    coef = many.coef if isinstance(many, LinearReplicates) else one.coef[None]
    intercept = many.intercept if isinstance(many, LinearReplicates) else np.array([one.intercept])
    np.save(folder / "coef.npy", coef, allow_pickle=False)
    np.save(folder / "intercept.npy", intercept, allow_pickle=False)
    document = {"info": dict(output.info), "columns": one.encode.columns, "sizes": one.encode.sizes}
    (folder / "output.json").write_text(json.dumps(document), encoding="utf-8")


def load_linear(folder: Path) -> Output:
    """What `save_linear` wrote."""
    document = json.loads((folder / "output.json").read_text(encoding="utf-8"))
    encode = OneHot(tuple(document["columns"]), tuple(document["sizes"]))
    coef = np.load(folder / "coef.npy", allow_pickle=False)
    intercept = np.load(folder / "intercept.npy", allow_pickle=False)
    return linear_output(coef, intercept, encode, document["info"])
