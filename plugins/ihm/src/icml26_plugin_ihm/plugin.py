"""What this plugin declares: specs only, nothing is imported but icml26's spec types."""

from __future__ import annotations

from icml26 import DatasetSpec, MethodSpec, MetricSpec, Paper, Value, hookimpl

TASK = "regression.tabular"
PACKAGE = "icml26_plugin_ihm"

PAPER = Paper(
    title="Near-Optimal Private Linear Regression via Iterative Hessian Mixing",
    arxiv="2601.07545",
    authors=("Omri Lev", "Moshe Shenfeld", "Vishwak Srinivasan", "Katrina Ligett", "Ashia C. Wilson"),
)

MONTE_CARLO = {"repeats": 250}
SMOKE = {"repeats": 4, "delta": 1e-6}
WORDS = ("n-parameters", "ihm:label-bound")


def _private(name: str, target: str, summary: str, role: str = "baseline", **options: object) -> MethodSpec:
    return MethodSpec(
        name=name,
        task=TASK,
        target=f"{PACKAGE}.methods:{target}",
        summary=summary,
        role=role,  # type: ignore[arg-type]
        provides=WORDS,
        metrics=("excess-risk", "clipped-residuals"),
        default_dataset="randhie",
        reference="ols",
        smoke=SMOKE,
        **{"profiles": {"monte-carlo": MONTE_CARLO}, **options},  # type: ignore[arg-type]
    )


@hookimpl
def icml26_methods() -> list[MethodSpec]:
    """Iterative Hessian mixing, its baselines, least squares and the null model."""
    return [
        _private(
            "ihm",
            "HessianMixing",
            "Iterative Hessian mixing: private Newton steps with sketched, regularised Hessians.",
            role="paper",
            paper=PAPER,
            profiles={"monte-carlo": {**MONTE_CARLO, "tradeoff_repeats": 50}},
        ),
        _private("adassp", "AdaSSP", "AdaSSP: noisy X^T X and X^T y with an adaptive ridge (Wang 2018)."),
        _private("adassp-official", "OfficialAdaSSP", "AdaSSP with the eigenvalue shift of the mixing paper's code."),
        _private("linear-mixing", "LinearMixing", "Least squares on one private Gaussian sketch of [X, y]."),
        _private("ihm-one-step", "OneStep", "Ablation: one step of iterative mixing with linear mixing's sketch size."),
        _private("dp-gd", "GradientDescent", "Noisy full-batch gradient descent on clipped residuals."),
        _private("dp-gd-official", "OfficialGradientDescent", "The DP-GD of the paper's code: 3 steps of rate 0.25."),
        MethodSpec(
            name="ols",
            task=TASK,
            target=f"{PACKAGE}.methods:LeastSquares",
            summary="Ordinary least squares, not private.",
            role="reference",
            provides=("n-parameters",),
            metrics=("excess-risk",),
            default_dataset="randhie",
        ),
        MethodSpec(
            name="null",
            task=TASK,
            target=f"{PACKAGE}.methods:Null",
            summary="Predicts zero: perfectly private; a private method that is worse is useless.",
            role="baseline",
            provides=("n-parameters",),
            metrics=("excess-risk",),
            default_dataset="randhie",
            reference="ols",
        ),
    ]


@hookimpl
def icml26_datasets() -> list[DatasetSpec]:
    """Two real tables of statsmodels, a synthetic one, the paper's UCI files and the user's own."""
    return [
        DatasetSpec(
            name="randhie",
            task=TASK,
            target=f"{PACKAGE}.datasets:Randhie",
            summary="RAND health insurance experiment, 20,190 x 9: log(1 + doctor visits).",
            seeded=False,
            profile="monte-carlo",
            smoke={"rows": 2000},
            license="public domain",
            source="statsmodels",
        ),
        DatasetSpec(
            name="fair",
            task=TASK,
            target=f"{PACKAGE}.datasets:Fair",
            summary="Fair's affairs survey, 6,366 x 8: hardly any signal, a case that the method loses.",
            seeded=False,
            profile="monte-carlo",
            smoke={"rows": 2000},
            license="public domain",
            source="statsmodels",
        ),
        DatasetSpec(
            name="aniso",
            task=TASK,
            target=f"{PACKAGE}.datasets:Aniso",
            summary="Synthetic Gaussian rows with a power-law spectrum.",
            profile="monte-carlo",
            smoke={"n": 1000, "d": 4},
        ),
        DatasetSpec(
            name="bounded-table",
            task=TASK,
            target=f"{PACKAGE}.datasets:BoundedTable",
            summary="Your CSV, Parquet or NPZ table, brought into the unit ball by public column bounds.",
            seeded=False,
            files=("path",),
        ),
        DatasetSpec(
            name="uci",
            task=TASK,
            target=f"{PACKAGE}.datasets:Uci",
            summary="A set of the paper's UCI collection, from a local folder.",
            seeded=False,
            files=("path",),
            source="https://github.com/treforevans/uci_datasets",
        ),
    ]


@hookimpl
def icml26_metrics() -> list[MetricSpec]:
    """Excess risk and clipping."""
    unit = "target²"
    return [
        MetricSpec(
            name="excess-risk",
            task=TASK,
            target=f"{PACKAGE}.metrics:excess_risk",
            values=(
                Value("", unit, "lower"),
                Value("se", unit, error_of=""),
                Value("median", unit, "lower"),
                Value("worse-than-null", "share of fits", "lower"),
            ),
            summary="Training error above that of least squares (no intercept), mean over replicates.",
        ),
        MetricSpec(
            name="clipped-residuals",
            task=TASK,
            target=f"{PACKAGE}.metrics:clipped_residuals",
            values=(Value("", "share of rows", None),),
            summary="Share of training residuals beyond the label bound, where clipping biases the method.",
            requires=("ihm:label-bound",),
        ),
    ]
