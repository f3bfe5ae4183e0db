"""What the lookahead sees at the root: every first cut, judged by one step and by its greedy completion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icml26_plugin_claritree.estimator import CLARITreeRegressor
from icml26_plugin_claritree.problem import legal_cuts
from icml26_plugin_claritree.search import Budget

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class FirstCuts:
    """The legal first cuts in scan order, m of them; scores are objectives as shares of the total sum of squares."""

    column: NDArray[np.int64]  # (m,): input column
    threshold: FloatArray  # (m,)
    one_step: FloatArray  # (m,): with two leaves, what a greedy search compares
    completed: FloatArray  # (m,): with both sides completed greedily to the full depth, what the lookahead compares
    leaf: float  # of the root without a cut


def first_cuts(estimator: CLARITreeRegressor, X: ArrayLike, y: ArrayLike) -> FirstCuts:
    """Scores of all first cuts under the options of `estimator` (fitted or not) on X (n, d), y (n,).

    Raises:
        ValueError: the depth is 0, y is constant, or X and y are not what `fit` takes.
    """
    estimator = CLARITreeRegressor(**estimator.get_params(deep=False))
    prepared, ridge = estimator.prepared(X, y)
    if prepared.engine is None or estimator.depth == 0:
        raise ValueError("there are no cuts to judge: the depth is 0 or y is constant")
    engine = prepared.engine.with_ridge(ridge)
    problem = prepared.problem
    cuts = legal_cuts(problem.codes, problem.n_bins, problem.min_leaf)
    root, lambdas = engine.root(), np.array([float(estimator.lambda_)])
    one_step = engine.completions(root, cuts, 0, lambdas, Budget())[:, 0]
    completed = engine.completions(root, cuts, estimator.depth - 1, lambdas, Budget())[:, 0]
    return FirstCuts(
        column=np.array([prepared.columns.split_source[f] for f, _ in cuts], dtype=np.int64),
        threshold=np.array([prepared.pool[f][c] for f, c in cuts]),
        one_step=one_step,
        completed=completed,
        leaf=root.loss + float(lambdas[0]),
    )
