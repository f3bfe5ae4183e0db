"""The `numpy` engine: moments summed by sorted bins, losses of all thresholds of all features in one elimination."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icml26_plugin_claritree.moments import pack_moments, ridge_losses
from icml26_plugin_claritree.problem import TIE, Cut, SearchProblem
from icml26_plugin_claritree.search import Budget, greedy_value

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class MomentBox:
    """A box that knows only its rows and loss."""

    rows: NDArray[np.int32]
    loss: float


def first_below(losses: FloatArray) -> int:
    """Position of the least loss in scan order: a later one counts only when it is lower by more than a tie."""
    best, where = np.inf, -1
    while True:
        better = np.flatnonzero(losses[where + 1 :] < best - TIE)
        if not better.size:
            return where
        where += 1 + int(better[0])
        best = float(losses[where])


class NumpyEngine:
    """Losses by NumPy alone, for machines without Numba and as an independent check of the compiled engines."""

    def __init__(self, problem: SearchProblem) -> None:
        self.problem = problem
        self._moments = pack_moments(problem.design, problem.target)

    def with_ridge(self, ridge: float) -> NumpyEngine:
        """The same engine with another kappa'."""
        other = copy.copy(self)
        other.problem = replace(self.problem, ridge=ridge)
        return other

    def root(self) -> MomentBox:
        """The box of all rows."""
        return self._box(np.arange(self.problem.n, dtype=np.int32))

    def _box(self, rows: NDArray[np.int32]) -> MomentBox:
        total = self._moments[rows].sum(axis=0, keepdims=True)
        return MomentBox(rows, float(ridge_losses(total, self.problem.k, self.problem.ridge)[0]))

    def split(self, box: MomentBox, feature: int, code: int) -> tuple[MomentBox, MomentBox]:
        """The two sides of a cut."""
        left = self.problem.codes[box.rows, feature] <= code
        return self._box(box.rows[left]), self._box(box.rows[~left])

    def best_cut(self, box: MomentBox) -> Cut | None:
        """The legal cut with the least sum of leaf losses, first of equals."""
        problem = self.problem
        moments = self._moments[box.rows]
        lefts, rights, features, codes = [], [], [], []
        for feature in range(problem.n_bins.size):
            code = problem.codes[box.rows, feature]
            order = np.argsort(code, kind="stable")
            bins, starts = np.unique(code[order], return_index=True)
            sums = np.add.reduceat(moments[order], starts, axis=0)
            left = np.cumsum(sums, axis=0)[:-1]
            right = np.cumsum(sums[::-1], axis=0)[::-1][1:]
            legal = (left[:, 0] >= problem.min_leaf) & (right[:, 0] >= problem.min_leaf)
            lefts.append(left[legal])
            rights.append(right[legal])
            codes.append(bins[:-1][legal])
            features.append(np.full(np.count_nonzero(legal), feature))
        both = np.concatenate(lefts + rights) if lefts else np.empty((0, 1))
        if not len(both):
            return None
        left_loss, right_loss = np.split(ridge_losses(both, problem.k, problem.ridge), 2)
        best = first_below(left_loss + right_loss)
        return Cut(
            int(np.concatenate(features)[best]),
            int(np.concatenate(codes)[best]),
            float(left_loss[best]),
            float(right_loss[best]),
        )

    def completions(
        self, box: MomentBox, cuts: NDArray[np.int64], depth: int, lambdas: FloatArray, budget: Budget
    ) -> FloatArray:
        """Greedy completions of both sides of each cut."""
        scores = np.full((len(cuts), lambdas.size), np.inf)
        for i, (feature, code) in enumerate(cuts):
            if budget.spent:
                break
            left, right = self.split(box, int(feature), int(code))
            scores[i] = greedy_value(self, left, depth, lambdas) + greedy_value(self, right, depth, lambdas)
        return scores
