"""Greedy and lookahead search over trees, independent of how losses are computed.

Losses are shares of the total sum of squares, so the price of a leaf is `lambda_` itself. The lookahead runs for a
whole path of lambdas at
once: the greedy choice of a cut does not depend on lambda, so the completions of all candidates are computed once and
only their pruned values differ; lambdas that choose the same cut share everything below it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from icml26_plugin_claritree.problem import TIE, Cut, SearchProblem, legal_cuts

FloatArray = NDArray[np.float64]


class Box(Protocol):
    """A set of training rows with its leaf loss."""

    @property
    def rows(self) -> NDArray[np.int32]:
        """Row numbers, ascending."""

    @property
    def loss(self) -> float:
        """Ridge loss L of one leaf on the rows."""


B = TypeVar("B", bound=Box)

MOST_SECONDS = 1e8  # three years: longer limits are none, and the greatest overflow the clock in the timer's thread
MOST_TIES = 4  # cuts of equal score that are searched below one node


class Budget:
    """A time limit for one search: `flag[0]` turns 1 when it has passed; compiled code watches it, too."""

    def __init__(self, seconds: float | None = None) -> None:
        self.flag = np.zeros(1, dtype=np.int8)
        self._timer: threading.Timer | None = None
        if seconds is not None and seconds < MOST_SECONDS:
            self._timer = threading.Timer(seconds, self.stop)

    def stop(self) -> None:
        """End the search now."""
        self.flag[0] = 1

    @property
    def spent(self) -> bool:
        """Whether the time is over."""
        return bool(self.flag[0])

    def __enter__(self) -> Self:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Engine(Protocol[B]):
    """How boxes are cut and their losses computed; every engine finds the same tree."""

    problem: SearchProblem

    def with_ridge(self, ridge: float) -> Engine[B]:
        """The same engine with another kappa', sharing what does not depend on it."""

    def root(self) -> B:
        """The box of all rows."""

    def best_cut(self, box: B) -> Cut | None:
        """The legal cut with the least sum of the two leaf losses, first of equals; None when no cut is legal."""

    def split(self, box: B, feature: int, code: int) -> tuple[B, B]:
        """The two sides of a cut."""

    def completions(
        self, box: B, cuts: NDArray[np.int64], depth: int, lambdas: FloatArray, budget: Budget
    ) -> FloatArray:
        """G(left) + G(right) with `depth` further levels of each cut (m, 2): (m, lambdas), inf where time ran out."""


@dataclass(frozen=True)
class Subtree:
    """A tree below a box; a leaf when `feature` is None. `value` is its objective, leaf prices included."""

    rows: NDArray[np.int32]
    value: float
    feature: int | None = None
    code: int = 0
    left: Subtree | None = None
    right: Subtree | None = None


def stops(engine: Engine[B], box: B, depth: int, lambda_: float) -> bool:
    """The stop rule at a node: no depth, nothing to gain (two leaves cost 2 lambda, losses are not negative), or too few rows."""
    return depth == 0 or box.loss + lambda_ <= 2 * lambda_ or box.rows.size < 2 * engine.problem.min_leaf


def greedy_value(engine: Engine[B], box: B, depth: int, lambdas: FloatArray) -> FloatArray:
    """Greedy completion G of a box for every lambda: the objective of its greedy tree after bottom-up pruning."""
    leaf = box.loss + lambdas
    if depth == 0 or box.loss <= lambdas.min() or box.rows.size < 2 * engine.problem.min_leaf:
        return leaf
    cut = engine.best_cut(box)
    if cut is None:
        return leaf
    if depth == 1:
        return np.minimum(cut.loss + 2 * lambdas, leaf)
    left, right = engine.split(box, cut.feature, cut.code)
    return np.minimum(
        greedy_value(engine, left, depth - 1, lambdas) + greedy_value(engine, right, depth - 1, lambdas), leaf
    )


def _leaf(box: Box, lambda_: float) -> Subtree:
    return Subtree(box.rows, box.loss + lambda_)


def _join(box: Box, lambda_: float, feature: int, code: int, left: Subtree, right: Subtree) -> Subtree:
    """The split where it pays, else the leaf."""
    value = left.value + right.value
    if value < box.loss + lambda_ - TIE:
        return Subtree(box.rows, value, feature, code, left, right)
    return _leaf(box, lambda_)


def greedy_tree(engine: Engine[B], box: B, depth: int, lambda_: float) -> Subtree:
    """The tree whose objective is `greedy_value`."""
    if stops(engine, box, depth, lambda_):
        return _leaf(box, lambda_)
    cut = engine.best_cut(box)
    if cut is None:
        return _leaf(box, lambda_)
    left, right = (greedy_tree(engine, side, depth - 1, lambda_) for side in engine.split(box, cut.feature, cut.code))
    return _join(box, lambda_, cut.feature, cut.code, left, right)


@dataclass
class Lookahead(Generic[B]):
    """The lookahead search of one engine under a time limit.

    Args: engine: how losses are computed. budget: when it is spent, the rest of the tree is completed greedily and
        `timed_out` is set. top_k: look ahead only from this many cuts of each node, best one-step loss first; all
        when None. features: split columns whose cuts are looked ahead from; all when None. explore_ties: of cuts
        whose scores are equal, search below each (at most `MOST_TIES`) and keep the best tree, not the first.
    """

    engine: Engine[B]
    budget: Budget
    top_k: int | None = None
    features: NDArray[np.int64] | None = None
    explore_ties: bool = False
    timed_out: bool = False

    def path(self, box: B, depth: int, lambdas: Sequence[float] | FloatArray) -> list[Subtree]:
        """The lookahead tree for each lambda: a cut's score is the greedy completion of both sides to the full depth."""
        values = np.asarray(lambdas, dtype=np.float64)
        trees = [_leaf(box, float(v)) for v in values]
        open_ = np.array(
            [i for i, v in enumerate(values) if not stops(self.engine, box, depth, float(v))], dtype=np.intp
        )
        if not open_.size:
            return trees
        if self.budget.spent:
            self.timed_out = True
            for i in open_:
                trees[i] = greedy_tree(self.engine, box, depth, float(values[i]))
            return trees
        if depth == 1:
            best = self.engine.best_cut(box)
            cuts = np.array([] if best is None else [[best.feature, best.code]], dtype=np.int64).reshape(-1, 2)
            chosen = np.ones((len(cuts), open_.size), dtype=bool)
        else:
            cuts = self._candidates(box)
            scores = self.engine.completions(box, cuts, depth - 1, values[open_], self.budget)
            if not np.isfinite(scores).all():
                return self._incumbents(box, depth, values, open_, trees, cuts, scores)
            chosen = least(scores, MOST_TIES if self.explore_ties else 1)
        for c, members in self._partitions(box, cuts, chosen):
            feature, code = (int(v) for v in cuts[c])
            sides = self.engine.split(box, feature, code)
            left, right = (self.path(side, depth - 1, values[open_[members]]) for side in sides)
            for i, left_tree, right_tree in zip(open_[members], left, right, strict=True):
                tree = _join(box, float(values[i]), feature, code, left_tree, right_tree)
                if tree.value < trees[i].value - TIE:
                    trees[i] = tree
        return trees

    def _partitions(
        self, box: B, cuts: NDArray[np.int64], chosen: NDArray[np.bool_]
    ) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        """The chosen cuts with the lambdas that chose them; cuts that part the rows alike count once for each lambda."""
        done: dict[bytes, NDArray[np.bool_]] = {}
        for c in np.flatnonzero(chosen.any(axis=1)):
            left = self.engine.problem.codes[box.rows, cuts[c, 0]] <= cuts[c, 1]
            parts = np.packbits(left ^ left[0]).tobytes()
            members = chosen[c] & ~done.get(parts, np.zeros_like(chosen[c]))
            done[parts] = done.get(parts, members) | members
            if members.any():
                yield int(c), members

    def _candidates(self, box: B) -> NDArray[np.int64]:
        """Cuts to look ahead from. The greedy cut is always one of them, so that the tree is never worse than the greedy one."""
        problem = self.engine.problem
        legal = legal_cuts(problem.codes[box.rows], problem.n_bins, problem.min_leaf)
        kept = np.ones(len(legal), dtype=bool)
        if self.features is not None:
            kept = np.isin(legal[:, 0], self.features)
        if self.top_k is not None and np.count_nonzero(kept) > self.top_k:
            one_step = self.engine.completions(box, legal[kept], 0, np.zeros(1), Budget())[:, 0]
            positions = np.flatnonzero(kept)[np.argsort(one_step, kind="stable")[self.top_k :]]
            kept[positions] = False
        if not kept.all():
            best = self.engine.best_cut(box)
            if best is not None:
                kept |= (legal[:, 0] == best.feature) & (legal[:, 1] == best.code)
        return legal[kept]

    def _incumbents(
        self, box: B, depth: int, values: FloatArray, open_: NDArray[np.intp], trees: list[Subtree],
        cuts: NDArray[np.int64], scores: FloatArray,
    ) -> list[Subtree]:  # fmt: skip
        """Time ran out among the candidates: the best one scored so far, or the greedy tree where that is better."""
        self.timed_out = True
        for column, i in enumerate(open_):
            lambda_ = float(values[i])
            tree = greedy_tree(self.engine, box, depth, lambda_)
            best = int(np.argmin(scores[:, column]))
            if scores[best, column] < tree.value:
                feature, code = (int(v) for v in cuts[best])
                sides = self.engine.split(box, feature, code)
                left, right = (greedy_tree(self.engine, side, depth - 1, lambda_) for side in sides)
                tree = _join(box, lambda_, feature, code, left, right)
            trees[i] = tree
        return trees


def least(scores: FloatArray, most: int) -> NDArray[np.bool_]:
    """Which scores (m, lambdas) are the least of their column, the first `most` of equals."""
    if not len(scores):
        return np.zeros(scores.shape, dtype=bool)
    equal = scores <= scores.min(axis=0) + TIE
    return np.asarray(equal & (np.cumsum(equal, axis=0) <= most))
