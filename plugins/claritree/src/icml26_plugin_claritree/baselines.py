"""Other regressors of the same task: ridge, CART, LightGBM, STreeD, linear-tree, and the authors' own program."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from icml26 import EnvironmentError_, Method, RunContext
from icml26.tasks.tabular import Inputs, Output
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

from icml26_plugin_claritree.configs import (
    CartConfig,
    LightGBMConfig,
    LinearTreeConfig,
    OfficialConfig,
    RidgeConfig,
    StreedConfig,
)
from icml26_plugin_claritree.fitted import Encoder, FittedModel, refuse_weights, tune


def _output(model: Any, encode: Encoder, inputs: Inputs, info: dict[str, Any]) -> Output:
    predict = FittedModel.of(lambda X: np.asarray(model.predict(encode(X)), dtype=np.float64).ravel(), inputs.X)
    return Output(predict=predict, info=info)


class RidgeRegression(Method[Inputs, Output]):
    """Ridge regression on standardised columns: the tree with one leaf."""

    class Config(RidgeConfig):
        """Options of the method."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Tune the penalty, and fit."""
        refuse_weights(inputs, "ridge")
        encode = Encoder.fit(inputs, standardize=True)
        grid = [{"kappa": kappa} for kappa in sorted(self.config.kappas, reverse=True)]

        best, model = tune(
            lambda options, n: Ridge(alpha=options["kappa"] * n),
            grid,
            encode(inputs.X),
            inputs.y,
            self.config.folds,
            self.config.fold_seed,
        )
        return _output(model, encode, inputs, {"n_parameters": int(model.coef_.size + 1), **best})


class Cart(Method[Inputs, Output]):
    """CART of scikit-learn: constant leaves, greedy."""

    class Config(CartConfig):
        """Options of the method."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Tune depth and leaf size, and fit."""
        refuse_weights(inputs, "cart")
        encode = Encoder.fit(inputs)
        grid = [{"max_depth": d, "min_samples_leaf": m} for d, m in product(self.config.depths, self.config.min_leaves)]
        best, model = tune(
            lambda options, n: DecisionTreeRegressor(random_state=0, **options),
            grid,
            encode(inputs.X),
            inputs.y,
            self.config.folds,
            self.config.fold_seed,
        )
        n_leaves = int(model.get_n_leaves())
        return _output(model, encode, inputs, {"n_parameters": 3 * n_leaves - 2, "n_leaves": n_leaves, **best})


class LightGBMLinear(Method[Inputs, Output]):
    """LightGBM with ``linear_tree=True``: linear leaves in the columns on the leaf's path."""

    class Config(LightGBMConfig):
        """Options of the method."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Tune leaves and penalty, and fit."""
        refuse_weights(inputs, "lightgbm-linear")
        from lightgbm import LGBMRegressor

        config = self.config
        rate = config.learning_rate or (1.0 if config.n_trees == 1 else 0.1)
        encode = Encoder.fit(inputs)

        def build(options: dict[str, Any], n: int) -> Any:
            return LGBMRegressor(
                n_estimators=config.n_trees,
                learning_rate=rate,
                linear_tree=True,
                min_child_samples=config.min_data_in_leaf,
                num_threads=ctx.threads,
                deterministic=True,
                force_row_wise=True,
                random_state=0,
                verbose=-1,
                **options,
            )

        grid = [{"num_leaves": n, "linear_lambda": v} for n, v in product(config.leaves, config.linear_lambdas)]
        best, model = tune(build, grid, encode(inputs.X), inputs.y, config.folds, config.fold_seed)
        trees = model.booster_.dump_model()["tree_info"]
        n_leaves = sum(int(tree["num_leaves"]) for tree in trees)
        return _output(model, encode, inputs, {"n_leaves": n_leaves, "n_trees": len(trees), **best})


class Streed(Method[Inputs, Output]):
    """STreeD's search for an optimal piecewise linear tree, stopped at a time limit with the best tree found."""

    class Config(StreedConfig):
        """Options of the method."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Fit; `info["timed_out"]` says whether optimality was not proved."""
        refuse_weights(inputs, "streed")
        from pystreed import STreeDPiecewiseLinearRegressor

        config = self.config
        encode = Encoder.fit(inputs, standardize=True)
        X = encode(inputs.X)
        model = STreeDPiecewiseLinearRegressor(
            simple=config.simple,
            max_depth=config.depth,
            cost_complexity=config.lambda_,
            ridge_penalty=config.ridge,
            lasso_penalty=0.0 if config.simple else config.lasso,
            n_thresholds=config.n_thresholds,
            min_leaf_node_size=config.min_leaf_node_size or (5 if config.simple else max(1, 5 * X.shape[1])),
            time_limit=config.time_limit,
        )
        model.fit(X, inputs.y)
        info = {"n_leaves": int(model.get_n_leaves()), "timed_out": not model.fit_result.is_optimal()}
        return _output(model, encode, inputs, info)


class LinearTree(Method[Inputs, Output]):
    """`LinearTreeRegressor` of the package linear-tree: greedy, ridge leaves, no price for a leaf."""

    class Config(LinearTreeConfig):
        """Options of the method."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Tune depth and penalty, and fit."""
        refuse_weights(inputs, "linear-tree")
        import sklearn

        if tuple(int(part) for part in sklearn.__version__.split(".")[:2]) >= (1, 6):
            raise EnvironmentError_(
                f"linear-tree needs scikit-learn<1.6, installed is {sklearn.__version__}: use an environment of its own, "
                "pip install 'icml26-plugin-claritree[linear-tree]'"
            )
        from lineartree import LinearTreeRegressor

        config = self.config
        encode = Encoder.fit(inputs, standardize=True)
        grid = [{"max_depth": d, "kappa": k} for d, k in product(config.depths, config.kappas)]

        def build(options: dict[str, Any], n: int) -> Any:
            return LinearTreeRegressor(
                Ridge(alpha=options["kappa"] * n),
                max_depth=options["max_depth"],
                max_bins=config.max_bins,
                min_samples_leaf=config.min_samples_leaf,
            )

        best, model = tune(build, grid, encode(inputs.X), inputs.y, config.folds, config.fold_seed)
        return _output(model, encode, inputs, {"n_leaves": len(model.summary(only_leaves=True)), **best})


class Official(Method[Inputs, Output]):
    """The authors' own program, to compare with."""

    class Config(OfficialConfig):
        """Options of the method."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Fit."""
        refuse_weights(inputs, "official")
        import clari_tree

        config = self.config
        encode = Encoder.fit(inputs)
        kind = clari_tree.CLARITree if config.search == "lookahead" else clari_tree.Greedy
        model = kind(
            config.kappa,
            config.depth,
            config.lambda_,
            config.n_thresholds,
            "quantile",
            False,
            config.min_leaf_node_size,
        )
        objective = float(model.fit(encode(inputs.X), inputs.y))
        total = float(np.square(inputs.y - inputs.y.mean()).sum())
        return _output(model, encode, inputs, {"train_objective": objective / total if total > 0 else 0.0})
