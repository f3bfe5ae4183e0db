"""What core itself brings, registered as the plugin ``core`` through the hooks that every plugin uses."""

from __future__ import annotations

from collections.abc import Iterable

from icml26.hookspecs import hookimpl
from icml26.specs import DatasetSpec, MethodSpec, MetricSpec, TaskSpec, Value

_REGRESSION = "regression.tabular"


@hookimpl
def icml26_tasks() -> Iterable[TaskSpec]:
    """Regression on tables."""
    return [
        TaskSpec(
            name=_REGRESSION,
            summary="Predict a number from a row of numbers and coded categories",
            inputs="icml26.tasks.tabular:Inputs",
            truth="icml26.tasks.tabular:Truth",
            output="icml26.tasks.tabular:Output",
            metrics=("r2", "mse", "mae", "train-mse"),
            words={"n-parameters": "the method counts the numbers in its fitted model, in info['n_parameters']"},
        )
    ]


@hookimpl
def icml26_metrics() -> Iterable[MetricSpec]:
    """Errors on the test and training rows, and the size of the model."""
    metrics = "icml26.tasks.tabular_metrics"

    def values(unit: str | None, direction: str) -> tuple[Value, ...]:
        return (Value("", unit, direction), Value("se", unit, error_of=""))  # type: ignore[arg-type]

    return [
        MetricSpec("r2", _REGRESSION, f"{metrics}:r2", values(None, "higher"), "Explained share of the test variance"),
        MetricSpec("mse", _REGRESSION, f"{metrics}:mse", values("target²", "lower"), "Mean squared error on test rows"),
        MetricSpec("mae", _REGRESSION, f"{metrics}:mae", values("target", "lower"), "Mean absolute error on test rows"),
        MetricSpec(
            "train-mse",
            _REGRESSION,
            f"{metrics}:train_mse",
            values("target²", "lower"),
            "Mean squared error on training rows",
        ),
        MetricSpec(
            "n-parameters",
            _REGRESSION,
            f"{metrics}:n_parameters",
            (Value("", "numbers", "lower"),),
            "Numbers that the fitted model holds",
            requires=("n-parameters",),
        ),
    ]


@hookimpl
def icml26_methods() -> Iterable[MethodSpec]:
    """The mean, so that a dataset can be tried at once."""
    return [
        MethodSpec(
            name="mean",
            task=_REGRESSION,
            target="icml26.tasks.mean:Mean",
            summary="Predicts the (weighted) mean of the training target",
            role="baseline",
            provides=("n-parameters",),
            default_dataset="friedman",
        )
    ]


@hookimpl
def icml26_datasets() -> Iterable[DatasetSpec]:
    """The user's table, and two to try methods on."""
    datasets = "icml26.tasks.tabular_datasets"
    return [
        DatasetSpec(
            name="table",
            task=_REGRESSION,
            target=f"{datasets}:TableDataset",
            summary="Your own table: CSV, Parquet or NPZ",
            files=("path",),
        ),
        DatasetSpec(
            name="diabetes",
            task=_REGRESSION,
            target=f"{datasets}:Diabetes",
            summary="Progression of diabetes from 10 measurements of 442 patients",
            extra="sklearn",
            source="Efron, Hastie, Johnstone and Tibshirani (2004), Least Angle Regression; as scikit-learn carries it",
        ),
        DatasetSpec(
            name="friedman",
            task=_REGRESSION,
            target=f"{datasets}:Friedman",
            summary="Friedman's first function (1991) with noise: 5 of its features matter",
            smoke={"n_rows": 60},
        ),
    ]
