"""The `binned` engine: histograms of packed moments over the global bins, losses by compiled elimination. The default."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from icml26_plugin_claritree.engines import kernels
from icml26_plugin_claritree.engines.parallel import run_tasks
from icml26_plugin_claritree.engines.vectorized import MomentBox
from icml26_plugin_claritree.problem import INTERCEPT_JITTER, RELATIVE_PIVOT, TIE, Cut, SearchProblem
from icml26_plugin_claritree.search import Budget

FloatArray = NDArray[np.float64]

SMALL_TASK = 200_000  # below this many additions a thread costs more than it saves


class BinnedEngine:
    """Losses from histograms of moments.

    Memory: n * q doubles for the moments, q = (k + 1)(k + 2) / 2, and a thread 2^(depth - 1) histograms of q doubles
    a bin.
    """

    def __init__(self, problem: SearchProblem, n_threads: int = 1) -> None:
        self.problem = problem
        self._n_threads = n_threads
        self._codes = np.ascontiguousarray(problem.codes)
        self._offsets = problem.offsets
        self._moments = kernels.pack_moments(problem.design, problem.target)

    @property
    def _ridge(self) -> tuple[float, float, float]:
        return float(self.problem.ridge), INTERCEPT_JITTER, RELATIVE_PIVOT

    def with_ridge(self, ridge: float) -> BinnedEngine:
        """The same engine with another kappa'."""
        other = copy.copy(self)
        other.problem = replace(self.problem, ridge=ridge)
        return other

    def root(self) -> MomentBox:
        """The box of all rows."""
        return self._box(np.arange(self.problem.n, dtype=np.int32))

    def _box(self, rows: NDArray[np.int32]) -> MomentBox:
        return MomentBox(rows, float(kernels.box_loss(self._moments, rows, self.problem.k, self._ridge)))

    def split(self, box: MomentBox, feature: int, code: int) -> tuple[MomentBox, MomentBox]:
        """The two sides of a cut."""
        left = self._codes[box.rows, feature] <= code
        return self._box(box.rows[left]), self._box(box.rows[~left])

    def best_cut(self, box: MomentBox) -> Cut | None:
        """The legal cut with the least sum of leaf losses, first of equals."""
        problem = self.problem
        losses, cut = kernels.best_cut(
            self._moments, self._codes, self._offsets, box.rows, problem.k, self._ridge, problem.min_leaf, TIE
        )
        return None if cut[0] < 0 else Cut(int(cut[0]), int(cut[1]), float(losses[1]), float(losses[2]))

    def completions(
        self, box: MomentBox, cuts: NDArray[np.int64], depth: int, lambdas: FloatArray, budget: Budget
    ) -> FloatArray:
        """Greedy completions of both sides of each cut: one sweep for each feature and side."""
        problem = self.problem
        sides = np.full((2, int(self._offsets[-1]), lambdas.size), np.inf)
        tasks: list[Callable[[], None]] = []
        for feature in np.unique(cuts[:, 0]):
            wanted = np.zeros(int(problem.n_bins[feature]) - 1, dtype=np.bool_)
            wanted[cuts[cuts[:, 0] == feature, 1]] = True
            first = int(self._offsets[feature])
            for side in (0, 1):
                scores = sides[side, first : first + wanted.size]
                tasks.append(
                    partial(
                        kernels.sweep, self._moments, self._codes, self._offsets, box.rows, int(feature), side, wanted,
                        problem.k, self._ridge, problem.min_leaf, lambdas, TIE, depth, budget.flag, scores,
                    )
                )  # fmt: skip
        work = box.rows.size * problem.n_bins.size * self._moments.shape[1]
        run_tasks(tasks, self._n_threads if work > SMALL_TASK else 1, budget)
        at = self._offsets[cuts[:, 0]] + cuts[:, 1]
        return np.asarray(sides[0, at] + sides[1, at])
