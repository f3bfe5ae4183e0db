"""Options of the methods, with the paper's defaults."""

from __future__ import annotations

from typing import Annotated, Literal

from icml26 import MethodConfig
from pydantic import Field

from icml26_plugin_claritree.defaults import PAPER_KAPPAS, PAPER_LAMBDAS

Penalty = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class FoldsConfig(MethodConfig):
    """How options that are left open are tuned."""

    folds: int = Field(3, ge=2, le=50, description="Folds of the cross-validation that tunes open options (paper: 3).")
    fold_seed: int = Field(42, ge=0, description="Seed of the shuffle into folds (paper: 42).")


class TreeConfig(FoldsConfig):
    """A piecewise linear tree."""

    depth: int = Field(4, ge=0, le=20, description="Most cuts from the root to a leaf (paper: 4).")
    lambda_: Penalty | None = Field(
        None, description="Price of a leaf, as a share of the total sum of squares; none: tuned over `lambdas` (paper)."
    )
    kappa: Penalty | None = Field(
        None, description="Ridge penalty a training row in every leaf; none: tuned over `kappas` (paper)."
    )
    lambdas: tuple[Penalty, ...] = Field(
        PAPER_LAMBDAS, min_length=1, description="Grid for lambda_ when it is left open (paper: these eleven)."
    )
    kappas: tuple[Penalty, ...] = Field(
        PAPER_KAPPAS, min_length=1, description="Grid for kappa when it is left open (paper: these five)."
    )
    n_thresholds: Annotated[int, Field(ge=1, le=65534)] | Literal["full"] = Field(
        20, description='Candidate thresholds a column, or "full" for all midpoints (paper: 20).'
    )
    thresholds_strategy: Literal["quantile", "uniform"] = Field(
        "quantile", description="Thresholds at quantiles, or at the centres of bins of equal width (paper: quantile)."
    )
    min_leaf_node_size: int = Field(
        0, ge=0, description="Least rows of a leaf; 0: max(1, 5 x number of continuous columns) (paper: 0)."
    )
    leaf: Literal["linear", "constant"] = Field(
        "linear", description="Leaf models (paper: linear; its variant: constant)."
    )
    engine: Literal["auto", "binned", "rank1", "numpy"] = Field(
        "auto", description="How losses are computed; every engine finds the same tree (paper: rank1)."
    )
    categorical_encoding: Literal["one-hot", "ignore"] = Field(
        "one-hot", description="Split on single categories, or leave them out (the authors' program: ignore)."
    )
    clip_predictions: Literal["leaf", "train"] | None = Field(
        None, description="Keep predictions within the training targets of the leaf or of all rows (paper: none)."
    )


class CLARITreeConfig(TreeConfig):
    """CLARITree."""

    ties: Literal["first", "explore"] = Field(
        "first",
        description="Of cuts with equal completions take the first (paper), or search below each and keep the best.",
    )
    top_k: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Look ahead only from this many cuts of a node, best one-step loss first (paper: all)."
    )
    candidate_features: tuple[str, ...] | None = Field(
        None, description="Names of the columns whose cuts are looked ahead from (paper: all)."
    )
    time_limit: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Seconds for one search; afterwards the tree is completed greedily (paper: none)."
    )


class RidgeConfig(FoldsConfig):
    """Ridge regression on all rows: the tree with one leaf."""

    kappas: tuple[Penalty, ...] = Field(
        PAPER_KAPPAS, min_length=1, description="Grid of the ridge penalty a row (the trees' grid)."
    )


class CartConfig(FoldsConfig):
    """CART."""

    depths: tuple[Annotated[int, Field(ge=1, le=50)], ...] = Field(
        (2, 3, 4, 6, 8), min_length=1, description="Grid of the depth."
    )
    min_leaves: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (1, 5, 20), min_length=1, description="Grid of the least rows of a leaf."
    )


class LightGBMConfig(FoldsConfig):
    """LightGBM with linear leaves."""

    n_trees: int = Field(100, ge=1, description="Number of boosted trees; 1 for a single linear tree.")
    learning_rate: float | None = Field(
        None, gt=0, le=1, description="Shrinkage of each tree; none: 0.1, or 1 for a single tree."
    )
    leaves: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (4, 8, 16, 31), min_length=1, description="Grid of the number of leaves of a tree."
    )
    linear_lambdas: tuple[Penalty, ...] = Field(
        (0.0, 0.01, 1.0), min_length=1, description="Grid of the ridge penalty of the leaves."
    )
    min_data_in_leaf: int = Field(20, ge=1, description="Least rows of a leaf.")


class StreedConfig(MethodConfig):
    """STreeD's piecewise linear regression trees (pystreed)."""

    depth: int = Field(3, ge=0, le=10, description="Most cuts from the root to a leaf.")
    lambda_: Penalty = Field(1e-3, description="Price of a leaf (STreeD's cost_complexity).")
    ridge: Penalty = Field(1e-4, description="Ridge penalty of the leaves.")
    lasso: Penalty = Field(1e-3, description="Lasso penalty of the leaves; not used with simple leaves.")
    n_thresholds: int = Field(20, ge=1, description="Candidate thresholds a column.")
    time_limit: float = Field(
        600.0, gt=0, description="Seconds, then the best tree found so far is taken (paper: 600)."
    )
    min_leaf_node_size: int = Field(
        0, ge=0, description="Least rows of a leaf; 0: 5 x columns as in claritree, or 5 if simple."
    )
    simple: bool = Field(False, description="Leaves with one column each (STreeD-S).")


class LinearTreeConfig(FoldsConfig):
    """The package linear-tree."""

    depths: tuple[Annotated[int, Field(ge=1, le=20)], ...] = Field(
        (2, 3, 4), min_length=1, description="Grid of the depth."
    )
    kappas: tuple[Penalty, ...] = Field(
        (1e-2, 1e-3, 1e-4), min_length=1, description="Grid of the ridge penalty a row."
    )
    max_bins: int = Field(25, ge=10, le=120, description="Candidate thresholds a column.")
    min_samples_leaf: float = Field(0.05, gt=0, lt=1, description="Least share of the rows in a leaf.")


class OfficialConfig(MethodConfig):
    """The authors' program (package claritree)."""

    depth: int = Field(4, ge=0, le=20, description="Most cuts from the root to a leaf (paper: 4).")
    lambda_: Penalty = Field(
        1e-3, description="Price of a leaf, as a share of the total sum of squares (their README: 0.001)."
    )
    kappa: Penalty = Field(1e-3, description="Ridge penalty a training row (their README: 0.001).")
    n_thresholds: int = Field(20, ge=1, description="Candidate thresholds a column (paper: 20).")
    min_leaf_node_size: int = Field(0, ge=0, description="Least rows of a leaf; 0: as in claritree.")
    search: Literal["lookahead", "greedy"] = Field("lookahead", description="Their CLARITree or their Greedy.")
