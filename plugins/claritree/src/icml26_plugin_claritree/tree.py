"""A fitted piecewise linear tree as arrays: predicting, and moving to and from JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icml26_plugin_claritree.columns import Columns

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

LEAF = -1


@dataclass(frozen=True)
class Tree:
    """Nodes in depth-first order (node 0 is the root, a left child follows its parent), leaves numbered from left to
    right.

    All numbers are in the units of the training data.
    """

    columns: Columns
    feature: IntArray  # (n_nodes,): split column, LEAF for leaves
    threshold: FloatArray  # (n_nodes,): rows at or below it go left
    left: IntArray  # (n_nodes,), LEAF for leaves
    right: IntArray  # (n_nodes,), LEAF for leaves
    n: IntArray  # (n_nodes,): training rows
    leaf: IntArray  # (n_nodes,): number of the leaf, LEAF for inner nodes
    intercept: FloatArray  # (n_leaves,)
    coef: FloatArray  # (n_leaves, n_continuous)
    loss: FloatArray  # (n_leaves,): squared error + ridge penalty on the training rows
    mse: FloatArray  # (n_leaves,): mean squared error on the training rows
    y_range: FloatArray  # (n_leaves, 2): least and greatest training target

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return int(self.intercept.size)

    @property
    def depth(self) -> int:
        """Greatest number of cuts from the root to a leaf."""
        depth = np.zeros(self.feature.size, dtype=int)
        for node in np.flatnonzero(self.feature != LEAF):
            depth[self.left[node]] = depth[self.right[node]] = depth[node] + 1
        return int(depth.max())

    def goes_left(self, node: int, X: FloatArray, rows: IntArray) -> NDArray[np.bool_]:
        """Whether each of the rows goes left at an inner node."""
        split = int(self.feature[node])
        values = X[rows, self.columns.split_source[split]]
        code = self.columns.split_code[split]
        return np.asarray(values != code if code is not None else values <= self.threshold[node])

    def rows_of_leaves(self, X: FloatArray) -> list[IntArray]:
        """Rows of X that fall into each leaf."""
        found: list[IntArray] = [np.empty(0, dtype=np.int64)] * self.n_leaves
        open_ = [(0, np.arange(X.shape[0]))]
        while open_:
            node, rows = open_.pop()
            if self.feature[node] == LEAF:
                found[self.leaf[node]] = rows
                continue
            left = self.goes_left(node, X, rows)
            open_.append((int(self.left[node]), rows[left]))
            open_.append((int(self.right[node]), rows[~left]))
        return found

    def apply(self, X: FloatArray) -> IntArray:
        """Number of the leaf of each row, (m,)."""
        out = np.empty(X.shape[0], dtype=np.int64)
        for leaf, rows in enumerate(self.rows_of_leaves(X)):
            out[rows] = leaf
        return out

    def predict(self, X: FloatArray, clip: str | None = None) -> FloatArray:
        """Predictions (m,); `clip` "leaf" or "train" keeps them within the training targets of the leaf or of all rows."""
        out = np.empty(X.shape[0])
        continuous = np.array(self.columns.continuous, dtype=np.intp)
        everything = continuous.size == X.shape[1]
        lowest, highest = self.y_range[:, 0].min(), self.y_range[:, 1].max()
        for leaf, rows in enumerate(self.rows_of_leaves(X)):
            values = X[rows] if everything else X[np.ix_(rows, continuous)]
            prediction = self.intercept[leaf] + values @ self.coef[leaf]
            if clip == "leaf":
                prediction = np.clip(prediction, self.y_range[leaf, 0], self.y_range[leaf, 1])
            elif clip == "train":
                prediction = np.clip(prediction, lowest, highest)
            out[rows] = prediction
        return out

    def equation(self, leaf: int, names: Sequence[str], digits: int = 4) -> str:
        """The leaf's model as text, terms whose coefficient is exactly 0 left out."""
        text = f"{self.intercept[leaf]:.{digits}g}"
        for j, value in zip(self.columns.continuous, self.coef[leaf], strict=True):
            if value != 0.0:
                text += f" {'-' if value < 0 else '+'} {abs(value):.{digits}g}*{names[j]}"
        return text

    def text(self, names: Sequence[str], digits: int = 4) -> str:
        """The whole tree as indented text, every leaf with its equation."""
        lines: list[str] = []
        open_ = [(0, 0, "")]
        while open_:
            node, level, label = open_.pop()
            lead = "|   " * level + label
            if self.feature[node] == LEAF:
                leaf = int(self.leaf[node])
                facts = f"n={self.n[node]}, mse={self.mse[leaf]:.{digits}g}"
                lines.append(f"{lead}leaf {leaf} ({facts}): y = {self.equation(leaf, names, digits)}")
                continue
            condition = self.columns.describe(int(self.feature[node]), float(self.threshold[node]), names)
            lines.append(f"{lead}if {condition} (n={self.n[node]})")
            open_.append((int(self.right[node]), level + 1, "no:  "))
            open_.append((int(self.left[node]), level + 1, "yes: "))
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON document; floats survive exactly."""
        arrays = {f.name: getattr(self, f.name).tolist() for f in fields(self) if f.name != "columns"}
        return {"columns": self.columns.to_json(), **arrays}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Tree:
        """The inverse of `to_json`.

        Raises: ValueError: the document is not a tree: keys are missing, shapes or node numbers do not fit, values
            are not finite.
        """
        try:
            columns = Columns.from_json(document["columns"])
            arrays: dict[str, Any] = {
                name: np.asarray(document[name], dtype=np.int64) for name in ("feature", "left", "right", "n", "leaf")
            }
            for name in ("threshold", "intercept", "coef", "loss", "mse", "y_range"):
                arrays[name] = np.asarray(document[name], dtype=np.float64)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not the JSON of a CLARITree: {error!r}") from error
        if not arrays["coef"].size:  # JSON has one empty list for each leaf of a model without continuous columns
            arrays["coef"] = np.empty((arrays["intercept"].size, 0))
        tree = cls(columns=columns, **arrays)
        tree.check()
        return tree

    def check(self) -> None:
        """Raise ValueError unless the arrays form one tree that fits the columns."""
        if any(a.ndim != 1 or a.size != self.feature.size for a in (self.feature, self.left, self.right, self.leaf)):
            raise ValueError("not a CLARITree: node arrays differ in length")  # what follows indexes them
        if self.y_range.ndim != 2 or self.intercept.ndim != 1:
            raise ValueError("not a CLARITree: leaf arrays differ in length")
        n_nodes, n_leaves = self.feature.size, self.n_leaves
        n_splits, n_continuous = len(self.columns.split_source), len(self.columns.continuous)
        inner = np.flatnonzero(self.feature != LEAF)
        children = np.sort(np.concatenate([self.left[inner], self.right[inner]]))
        leaves = self.leaf[self.feature == LEAF]
        inputs = (*self.columns.continuous, *self.columns.split_source)
        checks = {
            "node arrays differ in length": all(
                a.shape == (n_nodes,) for a in (self.threshold, self.left, self.right, self.n, self.leaf)
            ),
            "leaf arrays differ in length": self.coef.shape == (n_leaves, n_continuous)
            and self.loss.shape == self.mse.shape == (n_leaves,)
            and self.y_range.shape == (n_leaves, 2),
            "a split column does not exist": bool(np.all((self.feature >= LEAF) & (self.feature < n_splits))),
            "an input column does not exist": all(0 <= j < self.columns.n_inputs for j in inputs),
            "column roles differ in length": len(self.columns.split_code) == len(self.columns.split_binary) == n_splits
            and self.columns.mean.shape == self.columns.std.shape == (n_continuous,),
            "children do not form a tree": np.array_equal(children, np.arange(1, n_nodes))
            and bool(np.all(self.left[inner] > inner) and np.all(self.right[inner] > inner)),
            "leaves are not numbered once each": np.array_equal(np.sort(leaves), np.arange(n_leaves)),
            "a number is not finite": all(
                bool(np.isfinite(a).all())
                for a in (self.threshold, self.intercept, self.coef, self.loss, self.mse, self.y_range)
            ),
        }
        for fault, sound in checks.items():
            if not sound:
                raise ValueError(f"not a CLARITree: {fault}")
