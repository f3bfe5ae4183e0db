"""`CLARITreeCV`: lambda and kappa by cross-validation, the paper's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, check_cv

from icml26_plugin_claritree.base import TreeEstimator, require_number
from icml26_plugin_claritree.defaults import PAPER_KAPPAS, PAPER_LAMBDAS
from icml26_plugin_claritree.engines import EngineName
from icml26_plugin_claritree.estimator import CLARITreeRegressor
from icml26_plugin_claritree.training import Prepared

FloatArray = NDArray[np.float64]


class CLARITreeCV(TreeEstimator):
    """`CLARITreeRegressor` with `lambda_` and `kappa` chosen by the mean validation R2 of a cross-validation.

    The whole path of lambdas costs little more than one fit: greedy completions do not depend on lambda except for
    what is pruned, so each candidate is completed once for all of them. Bins and moments are shared by all settings
    of a fold.

    Args: lambdas, kappas: the grid, the paper's by default. Of equal settings the one with the larger lambda, then
        kappa, wins. cv: number of folds (shuffled by `random_state`; at most one row a fold), or a splitter of
        scikit-learn. random_state: seed of the shuffle; paper 42. The other options are those of
        `CLARITreeRegressor`; `n_jobs` threads share the folds and kappas.

    Attributes: best_lambda_, best_kappa_, best_score_: the chosen setting and its mean validation R2. cv_results_:
        dict with `lambda_`, `kappa` (settings,), `mean_test_score`, `std_test_score`, `n_leaves` (settings,) and
        `split_test_score` (settings, folds).
        best_estimator_: the `CLARITreeRegressor` of that setting, refitted to all rows; its attributes stand here as
        well.
    """

    def __init__(
        self,
        depth: int = 4,
        lambdas: Sequence[float] = PAPER_LAMBDAS,
        kappas: Sequence[float] = PAPER_KAPPAS,
        cv: Any = 3,
        random_state: int | None = 42,
        n_thresholds: int | Literal["full"] = 20,
        thresholds_strategy: Literal["quantile", "uniform"] = "quantile",
        min_leaf_node_size: int = 0,
        leaf: Literal["linear", "constant"] = "linear",
        engine: EngineName = "auto",
        search: Literal["lookahead", "greedy"] = "lookahead",
        ties: Literal["first", "explore"] = "first",
        categorical: Sequence[int | str] | None = None,
        categorical_encoding: Literal["one-hot", "ignore"] = "one-hot",
        candidate_features: Sequence[int | str] | None = None,
        top_k: int | None = None,
        clip_predictions: Literal["leaf", "train"] | None = None,
        n_jobs: int | None = None,
        time_limit: float | None = None,
    ) -> None:
        self.depth = depth
        self.lambdas = lambdas
        self.kappas = kappas
        self.cv = cv
        self.random_state = random_state
        self.n_thresholds = n_thresholds
        self.thresholds_strategy = thresholds_strategy
        self.min_leaf_node_size = min_leaf_node_size
        self.leaf = leaf
        self.engine = engine
        self.search = search
        self.ties = ties
        self.categorical = categorical
        self.categorical_encoding = categorical_encoding
        self.candidate_features = candidate_features
        self.top_k = top_k
        self.clip_predictions = clip_predictions
        self.n_jobs = n_jobs
        self.time_limit = time_limit

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Choose the setting on X (n, n_features), y (n,), and refit to all rows."""
        self._check_common()
        for name in ("lambdas", "kappas"):
            values = getattr(self, name)
            if len(values) == 0:
                raise ValueError(f"{name} is empty: give at least one value")
            for value in values:
                require_number(name, value, least=0.0)
        inputs, target = self._check_inputs(X, y)
        lambdas = sorted(map(float, self.lambdas), reverse=True)
        kappas = sorted(map(float, self.kappas), reverse=True)
        folds = list(self._folds(inputs.shape[0]).split(inputs, target))
        n_threads = effective_n_jobs(self.n_jobs)
        cells = self._cells(inputs, target, folds, lambdas, kappas, n_threads)
        scores = np.array([[cell[0] for cell in row] for row in cells])  # (folds, kappas, lambdas)
        leaves = np.array([[cell[1] for cell in row] for row in cells])
        mean = scores.mean(axis=0).T  # (lambdas, kappas)
        best = int(np.argmax(mean))  # the first of equals: the sparsest
        self.best_lambda_ = lambdas[best // len(kappas)]
        self.best_kappa_ = kappas[best % len(kappas)]
        self.best_score_ = float(mean.flat[best])
        self.cv_results_ = {
            "lambda_": np.repeat(lambdas, len(kappas)),
            "kappa": np.tile(kappas, len(lambdas)),
            "mean_test_score": mean.ravel(),
            "std_test_score": scores.std(axis=0).T.ravel(),
            "n_leaves": leaves.mean(axis=0).T.ravel(),
            "split_test_score": scores.transpose(2, 1, 0).reshape(-1, len(folds)),
        }
        self._refit(inputs, target, n_threads)
        return self

    def _folds(self, n: int) -> Any:
        if isinstance(self.cv, int | np.integer) and not isinstance(self.cv, bool):
            require_number("cv", self.cv, least=2, integral=True)
            if n < 2:
                raise ValueError(f"cross-validation needs at least 2 samples, got n_samples = {n}")
            return KFold(min(int(self.cv), n), shuffle=True, random_state=self.random_state)
        return check_cv(self.cv)

    def _cells(
        self,
        X: FloatArray,
        y: FloatArray,
        folds: Sequence[tuple[Any, Any]],
        lambdas: list[float],
        kappas: list[float],
        n_threads: int,
    ) -> list[list[tuple[list[float], list[int]]]]:
        """(validation R2, leaves) of every lambda, by fold and kappa."""

        def cell(prepared: Prepared, rows: NDArray[np.int64], kappa: float) -> tuple[list[float], list[int]]:
            grown = self._grow(prepared, lambdas, kappa)
            predictions = [g.tree.predict(X[rows], self.clip_predictions) for g in grown]
            return [_r2(y[rows], p) for p in predictions], [g.tree.n_leaves for g in grown]

        parallel = Parallel(n_jobs=n_threads, prefer="threads")
        fitted = parallel(delayed(self._prepare)(X[train], y[train], 1) for train, _ in folds)
        flat = parallel(
            delayed(cell)(prepared, rows, kappa)
            for prepared, (_, rows) in zip(fitted, folds, strict=True)
            for kappa in kappas
        )
        return [flat[i : i + len(kappas)] for i in range(0, len(flat), len(kappas))]

    def _refit(self, X: FloatArray, y: FloatArray, n_threads: int) -> None:
        shared = {
            k: v for k, v in self.get_params(deep=False).items() if k not in ("lambdas", "kappas", "cv", "random_state")
        }
        estimator = CLARITreeRegressor(lambda_=self.best_lambda_, kappa=self.best_kappa_, **shared)
        estimator.n_features_in_ = self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            estimator.feature_names_in_ = self.feature_names_in_
        prepared = self._prepare(X, y, n_threads)
        grown = self._grow(prepared, [self.best_lambda_], self.best_kappa_)[0]
        estimator._keep(prepared, grown)
        self.best_estimator_ = estimator
        self.tree_, self.objective_, self.tss_ = estimator.tree_, estimator.objective_, estimator.tss_
        self.n_leaves_, self.threshold_pool_ = estimator.n_leaves_, estimator.threshold_pool_
        self.timed_out_ = estimator.timed_out_


def _r2(y: FloatArray, prediction: FloatArray) -> float:
    """R2, where a fold of one row counts by its squared error alone."""
    if y.size < 2:
        return -float((y - prediction) @ (y - prediction))
    return float(r2_score(y, prediction))
