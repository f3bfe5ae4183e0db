"""What this plugin declares: specs only, nothing is imported but icml26's spec types."""

from __future__ import annotations

from icml26 import DatasetSpec, MethodSpec, MetricSpec, Paper, Value, hookimpl

TASK = "regression.tabular"
PACKAGE = "icml26_plugin_claritree"
TREE = "claritree:tree"  # the output tells its leaves
OBJECTIVE = "claritree:objective"  # … and the objective that its search reached
ANYTIME = "claritree:anytime"  # … and whether a time limit ended the search

PAPER = Paper(
    title="CLARITree: Cholesky and Lookahead Accelerations for Regression with Interpretable Piecewise Linear Trees",
    arxiv="2606.12840",
    authors=("Yixiao Wang", "Hayden McTavish", "Varun Babbar", "Margo Seltzer", "Cynthia Rudin"),
)

SMALL_TREE = {"depth": 2, "n_thresholds": 5, "lambdas": [0.1, 0.01], "kappas": [0.01], "folds": 2}


def _baseline(name: str, target: str, summary: str, **options: object) -> MethodSpec:
    return MethodSpec(
        name=name,
        task=TASK,
        target=f"{PACKAGE}.baselines:{target}",
        summary=summary,
        role="baseline",
        default_dataset="plxor",
        reference="ridge",
        **options,  # type: ignore[arg-type]
    )


@hookimpl
def icml26_methods() -> list[MethodSpec]:
    """CLARITree, its greedy counterpart, the reference, and other trees."""
    return [
        MethodSpec(
            name="claritree",
            task=TASK,
            target=f"{PACKAGE}.methods:CLARITree",
            summary="Sparse tree with linear leaves; each cut is chosen by completing both of its sides greedily.",
            paper=PAPER,
            provides=("n-parameters", TREE, OBJECTIVE, ANYTIME),
            metrics=("n-parameters", "tree-leaves", "train-objective"),
            default_dataset="plxor",
            reference="ridge",
            profiles={"plxor": {"depth": 3, "n_thresholds": 19, "lambda_": 1e-3, "kappa": 1e-4}},
            smoke=SMALL_TREE,
        ),
        MethodSpec(
            name="greedy-linear-tree",
            task=TASK,
            target=f"{PACKAGE}.methods:GreedyLinearTree",
            summary="The same objective, leaves, pruning and tuning as claritree, without the lookahead.",
            role="baseline",
            provides=("n-parameters", TREE, OBJECTIVE, ANYTIME),
            metrics=("n-parameters", "tree-leaves", "train-objective"),
            default_dataset="plxor",
            reference="ridge",
            profiles={"plxor": {"depth": 3, "n_thresholds": 19, "lambda_": 1e-3, "kappa": 1e-4}},
            smoke=SMALL_TREE,
        ),
        MethodSpec(
            name="ridge",
            task=TASK,
            target=f"{PACKAGE}.baselines:RidgeRegression",
            summary="Ridge regression on all rows: the tree with one leaf.",
            role="reference",
            provides=("n-parameters",),
            default_dataset="plxor",
        ),
        _baseline(
            "cart",
            "Cart",
            "CART of scikit-learn, depth and leaf size tuned.",
            provides=("n-parameters", TREE),
            smoke={"depths": [2], "min_leaves": [5]},
        ),
        _baseline(
            "lightgbm-linear",
            "LightGBMLinear",
            "LightGBM with linear leaves, leaves and penalty tuned.",
            provides=(TREE,),
            smoke={"n_trees": 3, "leaves": [4], "linear_lambdas": [0.01]},
            extra="lightgbm",
        ),
        _baseline(
            "streed",
            "Streed",
            "STreeD: search for an optimal piecewise linear tree, the best one found at the time limit.",
            provides=(TREE, ANYTIME),
            smoke={"depth": 1, "n_thresholds": 3, "time_limit": 5.0},
            extra="streed",
        ),
        _baseline(
            "linear-tree",
            "LinearTree",
            "The package linear-tree: greedy, ridge leaves; needs scikit-learn below 1.6.",
            provides=(TREE,),
            smoke={"depths": [1], "kappas": [0.01], "max_bins": 10},
            extra="linear-tree",
        ),
        _baseline(
            "claritree-official",
            "Official",
            "The authors' own program (C++), to compare results and speed; building it needs the Eigen headers.",
            provides=(OBJECTIVE,),
            smoke={"depth": 2, "n_thresholds": 5},
            extra="official",
        ),
    ]


@hookimpl
def icml26_datasets() -> list[DatasetSpec]:
    """The synthetic one, real ones of packages, and the paper's splits."""
    return [
        DatasetSpec(
            name="plxor",
            task=TASK,
            target=f"{PACKAGE}.datasets:PlXor",
            summary="Two signs decide between two slopes: no single first cut lowers the loss.",
            profile="plxor",
            smoke={"n_train": 200, "n_test": 100},
        ),
        DatasetSpec(
            name="bundled-tables",
            task=TASK,
            target=f"{PACKAGE}.datasets:BundledTables",
            summary="Real tables that packages ship (diabetes, auto-mpg, star98, fair, randhie) in five outer folds.",
            smoke={"name": "diabetes", "most_rows": 120},
            license="public domain or BSD, see each package",
            source="scikit-learn, mlxtend, statsmodels",
        ),
        DatasetSpec(
            name="paper-splits",
            task=TASK,
            target=f"{PACKAGE}.datasets:PaperSplits",
            summary="The paper's five outer splits of a data set, from a folder of the authors' repository.",
            files=("path",),
            source="https://github.com/Yixiao-Wang-Stats/CLARITree",
        ),
    ]


@hookimpl
def icml26_metrics() -> list[MetricSpec]:
    """Size and objective of trees."""
    metrics = f"{PACKAGE}.metrics"
    return [
        MetricSpec(
            name="tree-leaves",
            task=TASK,
            target=f"{metrics}:leaves",
            values=(Value(unit="leaves", direction="lower"),),
            summary="Number of leaves.",
            requires=(TREE,),
        ),
        MetricSpec(
            name="train-objective",
            task=TASK,
            target=f"{metrics}:train_objective",
            values=(Value(unit="share of TSS", direction="lower"),),
            summary="What the search minimises: loss of the leaves plus their price, on the training rows.",
            requires=(OBJECTIVE,),
        ),
        MetricSpec(
            name="timed-out",
            task=TASK,
            target=f"{metrics}:timed_out",
            values=(Value(unit="share of runs", direction="lower"),),
            summary="1 when a time limit ended the search.",
            requires=(ANYTIME,),
        ),
    ]
