"""The `rank1` engine: Cholesky factors carried through the tree by rank-one updates and downdates, as the paper does it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from icml26_plugin_claritree.engines import rank1_kernels as kernels
from icml26_plugin_claritree.engines.parallel import run_tasks
from icml26_plugin_claritree.problem import INTERCEPT_JITTER, RELATIVE_PIVOT, TIE, Cut, SearchProblem
from icml26_plugin_claritree.search import Budget

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class FactorBox:
    """A box with the Cholesky factor of its regularised Gram matrix."""

    rows: NDArray[np.int32]
    loss: float
    factor: FloatArray  # (k, k), lower
    cross: FloatArray  # (k,): A'y
    squares: FloatArray  # (1,): y'y


class Rank1Engine:
    """Losses by triangular solves with updated factors; memory O(n p), no moments are stored."""

    def __init__(self, problem: SearchProblem, n_threads: int = 1) -> None:
        self.problem = problem
        self._n_threads = n_threads
        self._design = np.ascontiguousarray(problem.design)
        self._codes = np.ascontiguousarray(problem.codes)

    @property
    def _ridge(self) -> tuple[float, float, float]:
        return float(self.problem.ridge), INTERCEPT_JITTER, RELATIVE_PIVOT

    def with_ridge(self, ridge: float) -> Rank1Engine:
        """The same engine with another kappa'."""
        other = copy.copy(self)
        other.problem = replace(self.problem, ridge=ridge)
        return other

    def root(self) -> FactorBox:
        """The box of all rows."""
        return self._box(np.arange(self.problem.n, dtype=np.int32))

    def _box(self, rows: NDArray[np.int32]) -> FactorBox:
        k = self.problem.k
        factor, cross, squares = np.zeros((k, k)), np.zeros(k), np.zeros(1)
        squares[0] = kernels.factorize(self._design, self.problem.target, rows, self._ridge, factor, cross)
        loss = float(kernels.loss_of(factor, cross, squares[0], RELATIVE_PIVOT, np.empty(k)))
        return FactorBox(rows, loss, factor, cross, squares)

    def split(self, box: FactorBox, feature: int, code: int) -> tuple[FactorBox, FactorBox]:
        """The two sides of a cut. Their factors are made from rows: one factorisation a node of the final tree, free of drift."""
        left = self._codes[box.rows, feature] <= code
        return self._box(box.rows[left]), self._box(box.rows[~left])

    def best_cut(self, box: FactorBox) -> Cut | None:
        """The legal cut with the least sum of leaf losses, first of equals."""
        problem, k = self.problem, self.problem.k
        losses, cut = np.zeros(3), np.zeros(2, dtype=np.int64)
        left, right = ((np.zeros((k, k)), np.zeros(k), np.zeros(1)) for _ in range(2))
        kernels.scan(
            self._design, problem.target, self._codes, problem.n_bins, box.rows, (box.factor, box.cross, box.squares),
            self._ridge, problem.min_leaf, TIE, left, right, losses, cut,
        )  # fmt: skip
        return None if cut[0] < 0 else Cut(int(cut[0]), int(cut[1]), float(losses[1]), float(losses[2]))

    def completions(
        self, box: FactorBox, cuts: NDArray[np.int64], depth: int, lambdas: FloatArray, budget: Budget
    ) -> FloatArray:
        """Greedy completions of both sides of each cut: one walk for each feature."""
        problem = self.problem
        offsets = problem.offsets
        scores = np.full((int(offsets[-1]), lambdas.size), np.inf)
        tasks: list[Callable[[], None]] = []
        for feature in np.unique(cuts[:, 0]):
            wanted = np.zeros(int(problem.n_bins[feature]) - 1, dtype=np.bool_)
            wanted[cuts[cuts[:, 0] == feature, 1]] = True
            first = int(offsets[feature])
            tasks.append(
                partial(
                    kernels.sweep, self._design, problem.target, self._codes, problem.n_bins, box.rows, box.factor, box.cross,
                    box.squares, int(feature), wanted, self._ridge, problem.min_leaf, lambdas, TIE, depth, budget.flag,
                    scores[first : first + wanted.size],
                )
            )  # fmt: skip
        run_tasks(tasks, self._n_threads, budget)
        return np.asarray(scores[offsets[cuts[:, 0]] + cuts[:, 1]])
