"""What each input column is used for: continuous columns split and enter the leaf models, binary ones only split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

SMALLEST_STD = 1e-12  # a column whose standard deviation is below this share of its greatest value is constant


@dataclass(frozen=True)
class Columns:
    """Roles of the input columns, and the standardisation of the continuous ones.

    Split columns are numbered in the order of the input columns; a categorical column takes one split column for each
    of its codes (an indicator "column == code"), or none when categories are ignored.
    """

    n_inputs: int
    continuous: tuple[int, ...]
    split_source: tuple[int, ...]  # input column of each split column
    split_code: tuple[float | None, ...]  # the category's code, None for a plain column
    split_binary: tuple[bool, ...]
    mean: FloatArray  # (n_continuous,)
    std: FloatArray  # (n_continuous,), population standard deviation, 1 for constant columns

    def split_columns(self, X: FloatArray) -> FloatArray:
        """Values that the thresholds apply to, (n, p)."""
        out = np.empty((X.shape[0], len(self.split_source)), order="F")
        for j, (source, code) in enumerate(zip(self.split_source, self.split_code, strict=True)):
            out[:, j] = X[:, source] if code is None else X[:, source] == code
        return out

    def leaf_design(self, X: FloatArray) -> FloatArray:
        """Leaf design [1, z] with standardised continuous columns, (n, 1 + n_continuous)."""
        design = np.ones((X.shape[0], 1 + len(self.continuous)))
        design[:, 1:] = (X[:, list(self.continuous)] - self.mean) / self.std
        return design

    def describe(self, split: int, threshold: float, names: Sequence[str]) -> str:
        """The condition for going left at a split, as text."""
        name, code = names[self.split_source[split]], self.split_code[split]
        if code is not None:
            return f"{name} != {code:g}"
        return f"{name} = 0" if self.split_binary[split] else f"{name} <= {threshold:.6g}"

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON document."""
        return {
            "n_inputs": self.n_inputs,
            "continuous": list(self.continuous),
            "split_source": list(self.split_source),
            "split_code": list(self.split_code),
            "split_binary": list(self.split_binary),
            "mean": self.mean.tolist(),
            "std": self.std.tolist(),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Columns:
        """The inverse of `to_json`."""
        return cls(
            n_inputs=int(document["n_inputs"]),
            continuous=tuple(int(j) for j in document["continuous"]),
            split_source=tuple(int(j) for j in document["split_source"]),
            split_code=tuple(None if c is None else float(c) for c in document["split_code"]),
            split_binary=tuple(bool(b) for b in document["split_binary"]),
            mean=np.asarray(document["mean"], dtype=np.float64),
            std=np.asarray(document["std"], dtype=np.float64),
        )


def is_binary(values: FloatArray) -> bool:
    """Whether all values of a column are 0 or 1."""
    return bool(np.all((values == 0.0) | (values == 1.0)))


def _mean_and_std(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and population standard deviation of the columns, 1 for constant ones; squares are taken of scaled values only."""
    greatest = np.abs(values).max(axis=0, initial=0.0)
    scale = np.where(greatest > 0, greatest, 1.0)
    scaled = values / scale
    mean = scaled.mean(axis=0)
    std = (scaled - mean).std(axis=0)
    return mean * scale, np.where(std < SMALLEST_STD, 1.0, std * scale)


def find_columns(X: FloatArray, categorical: Sequence[int] = (), *, one_hot: bool = True) -> Columns:
    """Roles of the columns of the training inputs X (n, d); `categorical` holds column indices of integer codes."""
    declared = set(categorical)
    continuous: list[int] = []
    source: list[int] = []
    code: list[float | None] = []
    binary: list[bool] = []
    for j in range(X.shape[1]):
        if j in declared:
            for value in np.unique(X[:, j]) if one_hot else ():
                source.append(j)
                code.append(float(value))
                binary.append(True)
            continue
        flag = is_binary(X[:, j])
        source.append(j)
        code.append(None)
        binary.append(flag)
        if not flag:
            continuous.append(j)
    values = X[:, continuous]
    mean, std = _mean_and_std(values)
    return Columns(
        n_inputs=X.shape[1],
        continuous=tuple(continuous),
        split_source=tuple(source),
        split_code=tuple(code),
        split_binary=tuple(binary),
        mean=mean,
        std=std,
    )
