"""Regression problems with rows in the unit ball and labels in [-1, 1]: offline sets, UCI files, the user's tables.

The problem is scaled once, on all training rows. Where the scale was read off the data (`bounds = "data"`, as in the
paper's experiments), `info["bounds_from_data"]` says so: a method's guarantee does not cover it.
"""

from __future__ import annotations

import importlib
import warnings
import zlib
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from icml26 import Dataset, DatasetConfig, InputError, Problem, RunContext
from icml26.tasks.tabular import Inputs, Output, TableFileConfig, Truth
from numpy.typing import NDArray
from pydantic import Field, model_validator

from icml26_plugin_ihm.bounds import PrivacyLeakWarning
from icml26_plugin_ihm.predictor import OneHot, linear_output

Array = NDArray[np.float64]
Tabular = Problem[Inputs, Truth]


class Split(NamedTuple):
    """Training and test rows in the units of the file."""

    X_train: Array
    y_train: Array
    X_test: Array
    y_test: Array


def split_rows(X: Array, y: Array, share: float, rng: np.random.Generator) -> Split:
    """A random split; with `share` 0 the test rows are a copy of the training rows."""
    if share == 0.0:
        return Split(X, y, X.copy(), y.copy())
    order = rng.permutation(len(X))
    held_out = max(1, round(share * len(X)))
    if held_out >= len(X):
        raise InputError(f"test_fraction={share} leaves no training row of {len(X)}; lower it or give more rows")
    test, train = order[:held_out], order[held_out:]
    return Split(X[train], y[train], X[test], y[test])


def as_problem(split: Split, names: tuple[str, ...], info: dict[str, Any]) -> Tabular:
    """A problem whose inputs share no memory with its truth."""
    inputs = Inputs(np.ascontiguousarray(split.X_train), np.ascontiguousarray(split.y_train), names)
    truth = Truth(split.X_test.copy(), split.y_test.copy(), split.X_train.copy(), split.y_train.copy())
    sizes = {"n": len(split.y_train), "d": split.X_train.shape[1], "n_test": len(split.y_test)}
    return Problem(inputs, truth, {**sizes, **info})


def scale_by_data(split: Split, *, standardise: bool = True) -> Split:
    """The paper's scaling: standardise columns (ddof 0), divide rows by the largest norm and labels by the largest |y|.

    All statistics come from the training rows. Columns that are constant there become zero.
    """
    X_train, X_test = split.X_train, split.X_test
    if standardise:
        mean, deviation = X_train.mean(axis=0), X_train.std(axis=0)
        deviation[deviation == 0] = np.inf
        X_train, X_test = (X_train - mean) / deviation, (X_test - mean) / deviation
    radius = float(np.linalg.norm(X_train, axis=1).max()) or 1.0
    largest = float(np.abs(split.y_train).max()) or 1.0
    return Split(X_train / radius, split.y_train / largest, X_test / radius, split.y_test / largest)


def draw_aniso(n: int, d: int, s: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Gaussian rows with column scales j^(-s/2), in the unit ball; labels of a random direction with noise, in [-1, 1]."""
    X = rng.standard_normal((n, d)) * np.arange(1, d + 1) ** (-s / 2.0)
    X /= np.linalg.norm(X, axis=1).max()
    theta = rng.standard_normal(d)
    signal = X @ (theta / np.linalg.norm(theta))
    signal /= 1.2 * np.abs(signal).max()
    return X, np.clip(signal + 0.2 * signal.std() * rng.standard_normal(n), -1.0, 1.0)


class _Recall:
    """Looks the label of a known row up."""

    def __init__(self, X: Array, y: Array) -> None:
        self._labels = {row.tobytes(): label for row, label in zip(np.ascontiguousarray(X), y, strict=True)}

    def __call__(self, X: Array) -> Array:
        return np.array([self._labels[row.tobytes()] for row in np.ascontiguousarray(X)])


class _LinearProblem(Dataset[Inputs, Truth]):
    """What every dataset here shares: a best and a plainly bad linear output, for the conformance kit."""

    def perfect(self, problem: Tabular) -> Output:
        """Every label by heart."""
        truth = problem.truth
        X, y = np.vstack([truth.X_test, truth.X_train]), np.concatenate([truth.y_test, truth.y_train])
        return Output(predict=_Recall(X, y), info={"n_parameters": 0, "label_bound": 1.0})

    def broken(self, problem: Tabular) -> Output:
        """Coefficients that point anywhere, far too long."""
        coef = np.full((1, problem.inputs.X.shape[1]), 50.0)
        return linear_output(coef, np.zeros(1), OneHot(), {"label_bound": 1.0})


class Aniso(_LinearProblem):
    """Synthetic rows with a power-law spectrum."""

    class Config(DatasetConfig):
        """Sizes and spectrum."""

        n: int = Field(20_000, ge=2, description="Training rows.")
        d: int = Field(10, ge=1, description="Columns.")
        s: float = Field(1.0, ge=0.0, description="Spectrum: column j has variance j^-s; 0 is isotropic.")
        seed: int | None = Field(None, ge=0, description="Seed of the data alone; None takes the run's.")

    def load(self, ctx: RunContext) -> Tabular:
        c = self.config
        rng = ctx.rng if c.seed is None else np.random.default_rng(c.seed)
        X, y = draw_aniso(c.n, c.d, c.s, rng)
        names = tuple(f"x{j}" for j in range(c.d))
        return as_problem(split_rows(X, y, 0.0, rng), names, {"bounds_from_data": True})


class SplitConfig(DatasetConfig):
    """Which rows are held out."""

    test_fraction: float = Field(
        0.0, ge=0.0, lt=1.0, description="Share of rows held out; 0 tests on the training rows."
    )
    split_seed: int = Field(0, ge=0, description="Seed of the split.")
    rows: int | None = Field(None, ge=10, description="Use the first so many rows only; None is all.")


class _StatsmodelsTable(_LinearProblem):
    """A table that ships with statsmodels, scaled by its own training rows."""

    name: ClassVar[str]

    class Config(SplitConfig):
        """Which rows are held out."""

    def load(self, ctx: RunContext) -> Tabular:
        c = self.config
        table = getattr(importlib.import_module("statsmodels.datasets"), self.name).load_pandas()
        X, y = table.exog.to_numpy(dtype=np.float64)[: c.rows], table.endog.to_numpy(dtype=np.float64)[: c.rows]
        split = split_rows(X, self.target(y), c.test_fraction, np.random.default_rng(c.split_seed))
        names = tuple(str(name) for name in table.exog.columns)
        return as_problem(scale_by_data(split), names, {"bounds_from_data": True})

    def target(self, y: Array) -> Array:
        """The label to predict, from the table's own."""
        return y


class Randhie(_StatsmodelsTable):
    """Doctor visits in the RAND health insurance experiment: log(1 + visits) from nine columns."""

    name = "randhie"

    def target(self, y: Array) -> Array:
        return np.log1p(y)


class Fair(_StatsmodelsTable):
    """Fair's survey of extramarital affairs: eight columns with hardly any linear signal, where every private method loses."""

    name = "fair"


class Ball(NamedTuple):
    """Public column and label intervals, from which rows reach the unit ball without a look at the data."""

    columns: Array
    """(low, high) of each column, shape (d, 2)."""
    label: tuple[float, float]

    def scale(self, split: Split) -> Split:
        """Each column to [-1, 1] / sqrt(d) and the label to [-1, 1], clipped."""

        def rows(X: Array) -> Array:
            low, high = self.columns.T
            return np.clip((2.0 * X - low - high) / (high - low), -1.0, 1.0) / np.sqrt(X.shape[1])

        def labels(y: Array) -> Array:
            low, high = self.label
            return np.clip((2.0 * y - low - high) / (high - low), -1.0, 1.0)

        return Split(rows(split.X_train), labels(split.y_train), rows(split.X_test), labels(split.y_test))


Interval = tuple[float, float]


class ScaledConfig(DatasetConfig):
    """How a file of the user is brought into the unit ball."""

    bounds: Literal["public", "data"] = Field(
        "public",
        description="'public': by column_bounds and label_bounds; 'data': by the rows, as the paper does; not private.",
    )
    column_bounds: dict[str, Interval] = Field(
        default_factory=dict, description="Public (low, high) of each column, by name."
    )
    label_bounds: Interval | None = Field(None, description="Public (low, high) of the label.")
    standardise: bool = Field(True, description="With bounds='data': standardise columns before scaling rows.")

    @model_validator(mode="after")
    def _intervals(self) -> ScaledConfig:
        if self.bounds == "public" and (not self.column_bounds or self.label_bounds is None):
            raise ValueError(
                "bounds='public' needs column_bounds and label_bounds; bounds='data' reads them off the rows"
            )
        intervals = {**self.column_bounds, **({"label_bounds": self.label_bounds} if self.label_bounds else {})}
        for name, (low, high) in intervals.items():
            if not (np.isfinite(low) and np.isfinite(high) and low < high):
                raise ValueError(f"bounds of {name!r} need finite low < high, got ({low}, {high})")
        return self

    def scaled(self, split: Split, names: tuple[str, ...]) -> tuple[Split, dict[str, Any]]:
        """The split in the unit ball, and what to tell about it."""
        if self.bounds == "data":
            warnings.warn(
                "the file was scaled by its own rows; the privacy of a method that runs on it does not cover that. "
                "Give column_bounds and label_bounds.",
                PrivacyLeakWarning,
                stacklevel=2,
            )
            return scale_by_data(split, standardise=self.standardise), {"bounds_from_data": True}
        missing, unknown = set(names) - set(self.column_bounds), set(self.column_bounds) - set(names)
        if missing or unknown:
            raise InputError(
                f"column_bounds must name every column once: missing {sorted(missing)}, unknown {sorted(unknown)}"
            )
        assert self.label_bounds is not None
        ball = Ball(np.array([self.column_bounds[name] for name in names]), self.label_bounds)
        return ball.scale(split), {"bounds_from_data": False}


class BoundedTable(Dataset[Inputs, Truth]):
    """The user's table, brought into the unit ball by public column bounds."""

    class Config(ScaledConfig, TableFileConfig):
        """A table, its public bounds, and how it is split; `split_column` wins over `test_fraction`."""

        test_fraction: float = Field(
            0.2, ge=0.0, lt=1.0, description="Share of rows held out; 0 tests on the training rows."
        )
        split_seed: int = Field(0, ge=0, description="Seed of the split.")
        train_label: str = Field("train", description="What the split column says in training rows.")
        test_label: str = Field("test", description="What the split column says in test rows.")

        @model_validator(mode="after")
        def _numbers_only(self) -> BoundedTable.Config:
            if self.categorical:
                raise ValueError("categorical columns have no public bounds here: encode them as 0/1 columns first")
            if self.weight is not None:
                raise ValueError("sample weights are not covered by the privacy of any method here; drop the column")
            return self

    def load(self, ctx: RunContext) -> Tabular:
        c = self.config
        table = c.read()
        if c.split_column is not None:
            train, test = table.labelled_split(c.train_label, c.test_label)
            split = Split(table.X[train], table.y[train], table.X[test], table.y[test])
        else:
            split = split_rows(table.X, table.y, c.test_fraction, np.random.default_rng(c.split_seed))
        scaled, info = c.scaled(split, table.feature_names)
        return as_problem(scaled, table.feature_names, {"file": table.path.name, "target": table.target, **info})


class Uci(Dataset[Inputs, Truth]):
    """A set of the UCI collection that the paper uses (github.com/treforevans/uci_datasets), from a local folder."""

    class Config(ScaledConfig):
        """Where the files are and which of the ten splits is used."""

        path: str = Field(description="Folder of one set, with data.csv.gz (label last) and test_mask.csv.gz.")
        split: int = Field(0, ge=0, le=9, description="Column of test_mask.csv.gz.")
        bounds: Literal["public", "data"] = Field(
            "data",
            description="'data' scales by the training rows as the paper does; 'public' by column_bounds (x0, x1, …).",
        )

    def load(self, ctx: RunContext) -> Tabular:
        c = self.config
        folder = Path(c.path)
        parts = sorted(part for part in folder.glob("data*.csv.gz") if part.is_file())
        mask_file = folder / "test_mask.csv.gz"
        if not parts or not mask_file.is_file():
            raise InputError(
                f"{folder} holds no data.csv.gz and test_mask.csv.gz; get the folder of one set, such as 'airfoil', from "
                "https://github.com/treforevans/uci_datasets and give its path"
            )
        tables = [_csv(part) for part in parts]
        widths = {part.name: table.shape[1] for part, table in zip(parts, tables, strict=True)}
        if len(set(widths.values())) > 1:
            raise InputError(f"{folder}: the parts of the data differ in their number of columns: {widths}")
        data = np.concatenate(tables)
        mask = _csv(mask_file)
        if mask.shape[0] != len(data) or c.split >= mask.shape[1] or data.shape[1] < 2:
            raise InputError(
                f"{mask_file} is {mask.shape}, the data {data.shape}: split {c.split} of these does not exist"
            )
        odd = np.flatnonzero(~np.isin(mask[:, c.split], (0.0, 1.0)))
        if len(odd):
            raise InputError(
                f"{mask_file} holds {mask[odd[0], c.split]:g} in row {odd[0]}; 0 (train) or 1 (test) is expected"
            )
        test = mask[:, c.split] == 1.0
        if np.count_nonzero(~test) < 2 or not test.any():
            raise InputError(
                f"{mask_file}: split {c.split} has {np.count_nonzero(~test)} training and {np.count_nonzero(test)} test rows; "
                "at least 2 and 1 are needed"
            )
        X, y = data[:, :-1], data[:, -1]
        names = tuple(f"x{j}" for j in range(X.shape[1]))
        split, info = c.scaled(Split(X[~test], y[~test], X[test], y[test]), names)
        return as_problem(split, names, info)


def _csv(path: Path) -> Array:
    """A gzipped CSV of numbers without header, 2-D; InputError with the file's name."""
    try:
        values = np.loadtxt(path, delimiter=",", dtype=np.float64, ndmin=2)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"{path} cannot be read as a gzipped CSV of numbers: {error}") from error
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise InputError(f"{path} holds {values[tuple(bad[0])]} in row {bad[0][0]}, column {bad[0][1]}")
    return values
