"""`CLARITreeRegressor`: near-optimal sparse piecewise linear regression trees as a scikit-learn estimator."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from icml26_plugin_claritree.base import TreeEstimator, require_number, write_whole
from icml26_plugin_claritree.engines import EngineName
from icml26_plugin_claritree.training import Prepared
from icml26_plugin_claritree.tree import Tree

SCHEMA = "icml26.claritree.tree/1"


class CLARITreeRegressor(TreeEstimator):
    """Sparse regression tree with a ridge model in each leaf, found by lookahead search (CLARITree, ICML 2026).

    Minimises ``sum over leaves of (squared error + n kappa ||beta||^2 + lambda_ TSS)`` over binary trees: each cut of
    the tree is chosen by completing both of its sides greedily down to the full depth. Columns whose values are all 0
    or 1 only split; all others are standardised, split, and enter the leaf models.

    Args: depth: greatest number of cuts from the root to a leaf, 0 to 20; paper 4. lambda_: price of a leaf as a
        share of the total sum of squares, >= 0. kappa: ridge penalty a training row on the leaf coefficients of
        standardised columns, >= 0; the same in every leaf. n_thresholds: candidate thresholds a column, or "full" for
        all midpoints; paper 20. thresholds_strategy: "quantile" or "uniform" (centres of bins of equal width).
        min_leaf_node_size: least number of training rows of a leaf; 0 for the paper's ``max(1, 5 * number of
        continuous columns)``. leaf: "linear", or "constant" for the paper's variant with constant leaves. engine:
        "auto" ("binned" where Numba is installed, else "numpy"), "binned", "rank1" (the paper's Cholesky updates),
        "numpy". All find the same tree. search: "lookahead", or "greedy" for the baseline with the same objective.
        ties: of first cuts whose completions are equal (x0 then x1 often parts the rows as x1 then x0 does), take the
        "first" (the paper), or "explore" below each and keep the best tree, for up to the number of ties as much
        work.
        categorical: columns (numbers or names) of integer codes: not in the leaves, and not split on as numbers.
        categorical_encoding: "one-hot" splits on "column == code"; "ignore" leaves the columns out, as the authors'
        program does.
        candidate_features: columns whose cuts are looked ahead from, all when None. The greedy cut is always tried as
        well.
        top_k: look ahead only from this many cuts of each node, best one-step loss first; all when None (the paper).
        clip_predictions: keep predictions within the training targets of the "leaf" or of all of "train"; None for
        the paper's.
        n_jobs: threads of the search, -1 for all cores, None for 1.
        time_limit: seconds for the search; afterwards the rest of the tree is completed greedily, and `timed_out_` is
        set.

    Attributes: tree_: the fitted `Tree`: cuts, coefficients in the units of the data, rows and errors of the leaves.
        objective_: the objective reached, in squared units of y. tss_: total sum of squares of y. n_leaves_: number
        of leaves. threshold_pool_: candidate thresholds of every split column. timed_out_: see `time_limit`.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (500, 3))
        >>> y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1) * X[:, 2]
        >>> CLARITreeRegressor(depth=2, lambda_=0.01, n_thresholds=19).fit(X, y).n_leaves_
        4
    """

    def __init__(
        self,
        depth: int = 4,
        lambda_: float = 1e-3,
        kappa: float = 1e-3,
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
        self.lambda_ = lambda_
        self.kappa = kappa
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
        """Fit the tree to X (n, n_features) and y (n,), both finite.

        Raises:
            ValueError: an option is out of range, or X or y hold NaN or infinity (the message names column and row).
        """
        prepared, _ = self.prepared(X, y)
        grown = self._grow(prepared, [float(self.lambda_)], float(self.kappa))[0]
        self._keep(prepared, grown)
        return self

    def prepared(self, X: ArrayLike, y: ArrayLike) -> tuple[Prepared, float]:
        """Check options and data; bins, moments and the rest of what a search on them needs, and the ridge n * kappa."""
        self._check_common()
        require_number("lambda_", self.lambda_, least=0.0)
        require_number("kappa", self.kappa, least=0.0)
        prepared = self._prepare(*self._check_inputs(X, y), effective_n_jobs(self.n_jobs))
        return prepared, prepared.problem.n * float(self.kappa)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The fitted estimator as a JSON document, also written to `path` where given. No code is stored."""
        check_is_fitted(self)
        params = self.get_params(deep=False)
        for name in ("categorical", "candidate_features"):
            if params[name] is not None:
                params[name] = [c if isinstance(c, str) else int(c) for c in params[name]]
        document = {
            "schema": SCHEMA,
            "params": {k: v.item() if isinstance(v, np.generic) else v for k, v in params.items()},
            "n_features": int(self.n_features_in_),
            "feature_names": list(map(str, self.feature_names_in_)) if hasattr(self, "feature_names_in_") else None,
            "objective": self.objective_,
            "tss": self.tss_,
            "timed_out": self.timed_out_,
            "threshold_pool": [pool.tolist() for pool in self.threshold_pool_],
            "tree": self.tree_.to_json(),
        }
        text = json.dumps(document, allow_nan=False)
        if path is not None:
            write_whole(Path(path), text)
        return text

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> Self:
        """The inverse of `to_json`: from the text itself (it begins with a brace or bracket) or from a file.

        Raises:
            ValueError: the document is not one that `to_json` wrote, or is damaged.
            TypeError: `source` is neither text nor a path.
            OSError: there is no such file.
        """
        if not isinstance(source, (str, os.PathLike)):
            raise TypeError(f"from_json takes a JSON text or a path, not {type(source).__name__}")
        is_text = isinstance(source, str) and source.lstrip()[:1] in ("", "{", "[")
        text = str(source) if is_text else Path(source).read_text(encoding="utf-8")
        try:
            document = json.loads(text)
            if document["schema"] != SCHEMA:
                raise ValueError(f"schema is {document['schema']!r}, not {SCHEMA!r}")
            estimator = cls(**document["params"])
            estimator.n_features_in_ = int(document["n_features"])
            if document["feature_names"] is not None:
                names = document["feature_names"]
                if not isinstance(names, list) or len(names) != estimator.n_features_in_:
                    raise ValueError(f"feature_names is not a list of {estimator.n_features_in_}")
                estimator.feature_names_in_ = np.asarray(list(map(str, names)), dtype=object)
            estimator.objective_ = float(document["objective"])
            estimator.tss_ = float(document["tss"])
            estimator.timed_out_ = bool(document["timed_out"])
            estimator.threshold_pool_ = tuple(np.asarray(pool, dtype=np.float64) for pool in document["threshold_pool"])
            tree = document["tree"]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"not the JSON of a fitted {cls.__name__}: {error}") from error
        estimator.tree_ = Tree.from_json(tree)
        estimator.n_leaves_ = estimator.tree_.n_leaves
        if estimator.tree_.columns.n_inputs != estimator.n_features_in_:
            raise ValueError(f"not the JSON of a fitted {cls.__name__}: the tree has another number of columns")
        estimator._check_common()
        return estimator
