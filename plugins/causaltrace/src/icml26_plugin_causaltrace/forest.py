"""A fitted random forest as plain arrays: stored without pickle, read without scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_FIELDS = ("feature", "threshold", "left", "right", "value", "roots")


@dataclass(frozen=True)
class Forest:
    """Nodes of all trees in one table: ``feature`` (-1 in leaves), ``threshold``, children, ``value`` = P(attack); ``roots``."""

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    roots: np.ndarray

    @classmethod
    def of(cls, model: Any) -> Forest:
        """From a fitted scikit-learn ``RandomForestClassifier`` with classes False and True."""
        parts: dict[str, list[np.ndarray]] = {name: [] for name in _FIELDS[:-1]}
        roots, offset = [], 0
        for estimator in model.estimators_:
            tree = estimator.tree_
            share = tree.value[:, 0, :]
            parts["feature"].append(np.where(tree.children_left < 0, -1, tree.feature))
            parts["threshold"].append(tree.threshold)
            parts["left"].append(np.where(tree.children_left < 0, 0, tree.children_left + offset))
            parts["right"].append(np.where(tree.children_left < 0, 0, tree.children_right + offset))
            parts["value"].append(share[:, 1] / share.sum(axis=1))
            roots.append(offset)
            offset += tree.node_count
        return cls(**{k: np.concatenate(v) for k, v in parts.items()}, roots=np.array(roots))

    def predict(self, X: np.ndarray) -> np.ndarray:
        """P(attack) of rows (n, d), the mean over trees, as scikit-learn computes it (float32 features)."""
        rows = np.asarray(X, dtype=np.float32)
        total = np.zeros(len(rows))
        for root in self.roots:
            node = np.full(len(rows), root)
            while (inner := self.feature[node] >= 0).any():
                at = node[inner]
                goes_left = rows[np.flatnonzero(inner), self.feature[at]] <= self.threshold[at]
                node[inner] = np.where(goes_left, self.left[at], self.right[at])
            total += self.value[node]
        return total / len(self.roots)

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays to store."""
        return {name: getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_arrays(cls, arrays: Any, n_features: int) -> Forest:
        """Read arrays back; ValueError or KeyError when they do not make a forest over ``n_features`` columns."""
        forest = cls(**{name: np.asarray(arrays[name]) for name in _FIELDS})
        size = len(forest.feature)
        for name in _FIELDS[:-1]:
            if getattr(forest, name).shape != (size,):
                raise ValueError(f"forest array {name} has shape {getattr(forest, name).shape}, expected ({size},)")
        for name in ("feature", "left", "right", "roots"):
            if not np.issubdtype(getattr(forest, name).dtype, np.integer):
                raise ValueError(f"forest array {name} holds {getattr(forest, name).dtype}, expected whole numbers")
        if not np.isfinite(forest.threshold).all() or not ((forest.value >= 0) & (forest.value <= 1)).all():
            raise ValueError("forest thresholds must be finite, and its values shares in [0, 1]")
        if (
            forest.feature.max() >= n_features
            or forest.roots.ndim != 1
            or not len(forest.roots)
            or forest.roots.min() < 0
        ):
            raise ValueError("forest names features or roots that do not exist")
        inner = forest.feature >= 0
        own = np.flatnonzero(inner)
        forward = (forest.left[inner] > own) & (forest.right[inner] > own)
        if not forward.all() or max(forest.left.max(), forest.right.max(), forest.roots.max()) >= size:
            raise ValueError("forest nodes do not point forward inside the table")
        return forest
