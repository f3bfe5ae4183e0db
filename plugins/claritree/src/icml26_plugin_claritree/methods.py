"""CLARITree and its greedy counterpart as methods of `regression.tabular`: thin adapters over the estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from icml26 import InputError, Method, Problem, RunContext
from icml26.tasks.tabular import Inputs, Output, Truth

from icml26_plugin_claritree.configs import CLARITreeConfig, TreeConfig
from icml26_plugin_claritree.cv import CLARITreeCV
from icml26_plugin_claritree.estimator import CLARITreeRegressor
from icml26_plugin_claritree.figures import write_figures
from icml26_plugin_claritree.fitted import FittedTree, refuse_weights


class _TreeMethod(Method[Inputs, Output]):
    """Fit a tree: lambda and kappa as given, or tuned by cross-validation where they are left open."""

    search: ClassVar[Literal["lookahead", "greedy"]]

    def _options(self, inputs: Inputs, ctx: RunContext) -> dict[str, Any]:
        """Options of both estimators."""
        names = ("depth", "n_thresholds", "thresholds_strategy", "min_leaf_node_size", "leaf", "engine")
        config = self.config
        return {
            **{name: getattr(config, name) for name in names},
            "categorical_encoding": config.categorical_encoding,
            "clip_predictions": config.clip_predictions,
            "categorical": list(inputs.categorical) or None,
            "search": self.search,
            "n_jobs": ctx.threads,
        }

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Tune what is open, and fit."""
        refuse_weights(inputs, type(self).__name__)
        config, options = self.config, self._options(inputs, ctx)
        if config.lambda_ is not None and config.kappa is not None:
            tree = CLARITreeRegressor(lambda_=config.lambda_, kappa=config.kappa, **options).fit(inputs.X, inputs.y)
        else:
            search = CLARITreeCV(
                lambdas=config.lambdas if config.lambda_ is None else (config.lambda_,),
                kappas=config.kappas if config.kappa is None else (config.kappa,),
                cv=config.folds,
                random_state=config.fold_seed,
                **options,
            )
            tree = search.fit(inputs.X, inputs.y).best_estimator_
        tree.set_params(n_jobs=None)  # the output does not depend on the machine
        return Output(predict=FittedTree(tree), info=describe(tree))

    def visualize(self, problem: Problem[Inputs, Truth], output: Output, ctx: RunContext) -> None:
        """Draw the tree, write it as text and JSON, and plot predictions against truth."""
        assert isinstance(output.predict, FittedTree)
        write_figures(output.predict.estimator, problem, ctx)

    def save(self, output: Output, folder: Path) -> None:
        """Write the tree as JSON."""
        assert isinstance(output.predict, FittedTree)
        output.predict.estimator.to_json(folder / "tree.json")

    @classmethod
    def load(cls, folder: Path) -> Output:
        """Read what `save` wrote."""
        tree = CLARITreeRegressor.from_json(folder / "tree.json")
        return Output(predict=FittedTree(tree), info=describe(tree))


def describe(tree: CLARITreeRegressor) -> dict[str, Any]:
    """Facts about a fitted tree as JSON values; a parameter is a coefficient, an intercept, or a cut's column or threshold."""
    n_leaves = int(tree.n_leaves_)
    return {
        "n_parameters": int(tree.tree_.coef.size + n_leaves + 2 * (n_leaves - 1)),
        "n_leaves": n_leaves,
        "tree_depth": tree.tree_.depth,
        "train_objective": float(tree.objective_ / tree.tss_) if tree.tss_ > 0 else 0.0,
        "lambda": float(tree.lambda_),
        "kappa": float(tree.kappa),
        "timed_out": bool(tree.timed_out_),
    }


class CLARITree(_TreeMethod):
    """The lookahead search."""

    class Config(CLARITreeConfig):
        """Options of the method."""

    search = "lookahead"

    def _options(self, inputs: Inputs, ctx: RunContext) -> dict[str, Any]:
        config = self.config
        features = None
        if config.candidate_features is not None:
            unknown = [name for name in config.candidate_features if name not in inputs.feature_names]
            if unknown:
                raise InputError(
                    f"candidate_features: no column is called {unknown[0]!r}; columns: {', '.join(inputs.feature_names)}"
                )
            features = [inputs.feature_names.index(name) for name in config.candidate_features]
        return {
            **super()._options(inputs, ctx),
            "ties": config.ties,
            "top_k": config.top_k,
            "candidate_features": features,
            "time_limit": config.time_limit,
        }


class GreedyLinearTree(_TreeMethod):
    """The same objective, leaves, thresholds, pruning and tuning, without the lookahead."""

    class Config(TreeConfig):
        """Options of the method."""

    search = "greedy"
