"""From arrays to fitted trees: preparing a training set once, and growing trees for any lambda and kappa on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from icml26_plugin_claritree.columns import Columns, find_columns
from icml26_plugin_claritree.engines import EngineName, make_engine
from icml26_plugin_claritree.leaves import ILL_CONDITIONED, LeafModel, fit_leaf
from icml26_plugin_claritree.problem import SearchProblem
from icml26_plugin_claritree.search import Budget, Engine, Lookahead, Subtree, greedy_tree
from icml26_plugin_claritree.thresholds import MOST_BINS, Strategy, bin_codes, threshold_pool
from icml26_plugin_claritree.tree import LEAF, Tree

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Prepared:
    """A training set with everything that does not depend on lambda and kappa."""

    columns: Columns
    pool: tuple[FloatArray, ...]
    engine: Engine[Any] | None  # None where the target is constant: one leaf
    problem: SearchProblem
    X: FloatArray
    y: FloatArray
    y_mean: float
    y_scale: float  # the target of the search is (y - y_mean) / y_scale
    tss: float


@dataclass(frozen=True)
class Grown:
    """A fitted tree and what the search says about it."""

    tree: Tree
    objective: float  # sum over leaves of loss + lambda * TSS, in squared units of y
    timed_out: bool
    ill_conditioned: tuple[int, ...]  # leaves whose Gram matrix is close to singular


def prepare(
    X: FloatArray,
    y: FloatArray,
    *,
    n_thresholds: int | Literal["full"],
    strategy: Strategy,
    min_leaf: int,
    leaf: Literal["linear", "constant"],
    categorical: Sequence[int],
    one_hot: bool,
    engine: EngineName,
    n_threads: int,
) -> Prepared:
    """Find columns, thresholds and bins of a training set X (n, d), y (n,), and hand them to an engine."""
    n = X.shape[0]
    columns = find_columns(X, categorical, one_hot=one_hot)
    split_columns = columns.split_columns(X)
    pool = threshold_pool(split_columns, columns.split_binary, n if n_thresholds == "full" else n_thresholds, strategy)
    widest = max((t.size + 1 for t in pool), default=1)
    if widest > MOST_BINS:
        raise ValueError(f"a column has {widest - 1} thresholds, the most is {MOST_BINS - 1}: lower n_thresholds")
    design = columns.leaf_design(X) if leaf == "linear" else np.ones((n, 1))
    if min_leaf <= 0:
        min_leaf = max(1, 5 * (design.shape[1] - 1))
    y_mean = float(y.mean())
    centred = y - y_mean
    greatest = float(np.abs(centred).max())
    if greatest <= 1e-14 * float(np.abs(y).max()):  # what is left of a constant is rounding
        centred, greatest = np.zeros(n), 0.0
    y_scale = greatest * float(np.linalg.norm(centred / greatest)) if greatest else 1.0
    problem = SearchProblem(
        design=design,
        target=centred / y_scale,
        codes=bin_codes(split_columns, pool),
        n_bins=np.array([t.size + 1 for t in pool], dtype=np.int64),
        ridge=0.0,
        min_leaf=min_leaf,
    )
    built = make_engine(engine, problem, n_threads) if greatest else None
    return Prepared(columns, pool, built, problem, X, y, y_mean, y_scale, y_scale**2 if greatest else 0.0)


def grow(
    prepared: Prepared,
    lambdas: Sequence[float],
    kappa: float,
    *,
    depth: int,
    search: Literal["lookahead", "greedy"] = "lookahead",
    time_limit: float | None = None,
    top_k: int | None = None,
    features: Sequence[int] | None = None,
    explore_ties: bool = False,
) -> list[Grown]:
    """One fitted tree for each lambda; the search is shared between them. `features` are input columns to look ahead from."""
    ridge = prepared.problem.n * kappa
    if prepared.engine is None:
        rows = np.arange(prepared.problem.n, dtype=np.int32)
        return [_finish(prepared, Subtree(rows, 0.0), ridge, {}, timed_out=False)] * len(lambdas)
    # Each cut of a path leaves at least min_leaf rows outside: no deeper tree is legal, and engines reserve 2^depth slots.
    depth = min(depth, max(prepared.problem.n // prepared.problem.min_leaf - 1, 0))
    engine = prepared.engine.with_ridge(ridge)
    allowed = None
    if features is not None:
        allowed = np.flatnonzero(np.isin(prepared.columns.split_source, list(features)))
    with Budget(time_limit) as budget:
        if search == "greedy":
            found, timed_out = [greedy_tree(engine, engine.root(), depth, v) for v in lambdas], False
        else:
            lookahead = Lookahead(engine, budget, top_k, allowed, explore_ties)
            found = lookahead.path(engine.root(), depth, lambdas)
            timed_out = lookahead.timed_out
    models: dict[bytes, LeafModel] = {}  # trees of neighbouring lambdas share most leaves
    return [_finish(prepared, subtree, ridge, models, timed_out=timed_out) for subtree in found]


def _finish(
    prepared: Prepared, found: Subtree, ridge: float, known: dict[bytes, LeafModel], *, timed_out: bool
) -> Grown:
    """Refit the leaves on their rows (`known` holds those fitted before), and write the tree in the units of the data."""
    nodes: list[Subtree] = []  # depth first, left before right
    left: list[int] = []
    right: list[int] = []
    open_: list[tuple[Subtree, int, bool]] = [(found, LEAF, True)]
    while open_:
        subtree, parent, is_left = open_.pop()
        at = len(nodes)
        nodes.append(subtree)
        left.append(LEAF)
        right.append(LEAF)
        if parent != LEAF:
            (left if is_left else right)[parent] = at
        if subtree.left is not None and subtree.right is not None:
            open_.append((subtree.right, at, False))
            open_.append((subtree.left, at, True))
    leaves = [subtree for subtree in nodes if subtree.feature is None]
    for subtree in leaves:
        rows = subtree.rows
        if rows.tobytes() not in known:
            known[rows.tobytes()] = fit_leaf(prepared.problem.design[rows], prepared.problem.target[rows], ridge)
    models = [known[subtree.rows.tobytes()] for subtree in leaves]
    leaf_number = np.cumsum([subtree.feature is None for subtree in nodes]) - 1
    intercept, coef = _in_data_units(prepared, models)
    tree = Tree(
        columns=prepared.columns,
        feature=np.array([LEAF if s.feature is None else s.feature for s in nodes], dtype=np.int64),
        threshold=np.array([0.0 if s.feature is None else float(prepared.pool[s.feature][s.code]) for s in nodes]),
        left=np.array(left, dtype=np.int64),
        right=np.array(right, dtype=np.int64),
        n=np.array([s.rows.size for s in nodes], dtype=np.int64),
        leaf=np.array([leaf_number[at] if s.feature is None else LEAF for at, s in enumerate(nodes)], dtype=np.int64),
        intercept=intercept,
        coef=coef,
        loss=np.array([m.loss for m in models]) * prepared.y_scale**2,
        mse=np.array([m.squared_error / s.rows.size for m, s in zip(models, leaves, strict=True)])
        * prepared.y_scale**2,
        y_range=np.array([[prepared.y[s.rows].min(), prepared.y[s.rows].max()] for s in leaves]),
    )
    ill = tuple(i for i, m in enumerate(models) if m.condition > ILL_CONDITIONED)
    return Grown(tree, found.value * prepared.tss, timed_out, ill)


def _in_data_units(prepared: Prepared, models: Sequence[LeafModel]) -> tuple[FloatArray, FloatArray]:
    """Undo the standardisation: (intercepts (n_leaves,), coefficients (n_leaves, n_continuous))."""
    beta = np.stack([m.coefficients for m in models]) * prepared.y_scale
    mean, std = prepared.columns.mean, prepared.columns.std
    coef = beta[:, 1:] / std if beta.shape[1] > 1 else np.zeros((len(models), mean.size))
    return prepared.y_mean + beta[:, 0] - coef @ mean, coef
