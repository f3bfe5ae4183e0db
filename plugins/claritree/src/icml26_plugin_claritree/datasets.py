"""Datasets of `regression.tabular`: one on which the lookahead is needed, real ones of packages, the paper's splits."""

from __future__ import annotations

import csv
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from icml26 import Dataset, DatasetConfig, EnvironmentError_, InputError, Problem, RunContext
from icml26.tasks.tabular import Inputs, Output, Table, Truth, read_table
from numpy.typing import NDArray
from pydantic import Field

FloatArray = NDArray[np.float64]


class PlXor(Dataset[Inputs, Truth]):
    """Two signs decide between two slopes, so that no single first cut lowers the loss."""

    class Config(DatasetConfig):
        """Sizes, noise, and how many signs decide."""

        n_train: int = Field(2000, ge=1, description="Training rows.")
        n_test: int = Field(2000, ge=1, description="Test rows.")
        signs: Literal[1, 2] = Field(
            2,
            description="Signs that decide the slope: 2 hides the first cut, 1 (a control) lets any greedy search find it.",
        )
        step: float = Field(
            0.5, ge=0, le=100, description="Slope of the last column, whose sign changes at x2 = 0.3; 0 leaves it out."
        )
        noise: float = Field(0.1, ge=0, description="Standard deviation of the normal noise.")
        seed: int | None = Field(
            None, ge=0, description="Seed of the training rows (the test rows take the next one); none: the run's seed."
        )

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Draw training and test rows."""
        config = self.config
        train, test = ctx.rng, ctx.rng
        if config.seed is not None:
            train, test = np.random.default_rng(config.seed), np.random.default_rng(config.seed + 1)
        X, y = plxor(config.n_train, train, signs=config.signs, step=config.step, noise=config.noise)
        X_test, y_test = plxor(config.n_test, test, signs=config.signs, step=config.step, noise=config.noise)
        return _problem(X, y, X_test, y_test, tuple(f"x{j}" for j in range(6)))

    def perfect(self, problem: Problem[Inputs, Truth]) -> Output:
        """The true values, looked up row by row, as if by a tree with one leaf."""
        truth = problem.truth
        rows = np.concatenate([truth.X_test, truth.X_train])
        known = {row.tobytes(): y for row, y in zip(rows, np.concatenate([truth.y_test, truth.y_train]), strict=True)}
        info = {"n_parameters": 7, "n_leaves": 1, "train_objective": 0.0, "timed_out": False}
        return Output(predict=lambda X: np.array([known[row.tobytes()] for row in X]), info=info)

    def broken(self, problem: Problem[Inputs, Truth]) -> Output:
        """Far from every target, by a large tree whose search ran out of time."""
        far = float(problem.truth.y_train.max()) + 10.0
        info = {"n_parameters": 10_000, "n_leaves": 1000, "train_objective": 2.0, "timed_out": True}
        return Output(predict=lambda X: np.full(len(X), far), info=info)


def plxor(
    n: int, rng: np.random.Generator, *, signs: int = 2, step: float = 0.5, noise: float = 0.1
) -> tuple[FloatArray, FloatArray]:
    """X (n, 6) uniform on (-1, 1), y = s (2 x3 + x4) + step t x5 + noise: s = sign(x0) sign(x1), t = sign(x2 - 0.3).

    With one sign, s = sign(x0).
    """
    X = rng.uniform(-1, 1, (n, 6))
    s = np.sign(X[:, 0])
    if signs == 2:
        s = s * np.sign(X[:, 1])
    t = np.sign(X[:, 2] - 0.3)
    return X, s * (2 * X[:, 3] + X[:, 4]) + step * t * X[:, 5] + noise * rng.standard_normal(n)


class BundledTables(Dataset[Inputs, Truth]):
    """Real tables that Python packages ship, in five outer folds."""

    class Config(DatasetConfig):
        """Which table."""

        name: Literal["diabetes", "auto-mpg", "star98", "fair", "randhie"] = Field(
            "diabetes",
            description="diabetes (scikit-learn, 442 x 10), auto-mpg (mlxtend, 392 x 7), and of statsmodels: star98 (303 x 12), "
            "fair (6366 x 8), randhie (20190 x 9).",
        )
        most_rows: Annotated[int, Field(ge=20)] | None = Field(
            None, description="Keep a random sample of this many rows; none: all."
        )

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Fold seed % 5 of a shuffle by seed // 5: seeds 0 to 4 are one cross-validation."""
        X, y, names = READERS[self.config.name]()
        order = np.random.default_rng(ctx.seed // 5).permutation(y.size)
        if self.config.most_rows is not None:
            order = order[: self.config.most_rows]
        test = np.zeros(order.size, dtype=bool)
        test[ctx.seed % 5 :: 5] = True
        rows, held_out = order[~test], order[test]
        return _problem(X[rows], y[rows], X[held_out], y[held_out], names)


def _need(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise EnvironmentError_(f"this table is part of {package}: pip install 'icml26-plugin-claritree[real-data]'")


def _diabetes() -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    return np.asarray(data.data, dtype=np.float64), np.asarray(data.target, dtype=np.float64), tuple(data.feature_names)


def _auto_mpg() -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
    _need("mlxtend")
    from mlxtend.data import autompg_data

    X, y = autompg_data()  # the last column is the car's name
    names = ("cylinders", "displacement", "horsepower", "weight", "acceleration", "model_year", "origin")
    return np.asarray(X[:, :7], dtype=np.float64), np.asarray(y, dtype=np.float64), names


def _statsmodels(module: str, target: Callable[[Any], Any], columns: Callable[[Any], Any]) -> Any:
    _need("statsmodels")

    def read() -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
        table = importlib.import_module(f"statsmodels.datasets.{module}").load_pandas().data
        X = columns(table)
        return X.to_numpy(dtype=np.float64), target(table).to_numpy(dtype=np.float64), tuple(map(str, X.columns))

    return read()


#: Readers of the bundled tables: (X, y, names).
READERS: dict[str, Callable[[], tuple[FloatArray, FloatArray, tuple[str, ...]]]] = {
    "diabetes": _diabetes,
    "auto-mpg": _auto_mpg,
    "star98": lambda: _statsmodels(
        "star98", lambda t: t["NABOVE"] / (t["NABOVE"] + t["NBELOW"]), lambda t: t.loc[:, "LOWINC":"PCTYRRND"]
    ),
    "fair": lambda: _statsmodels("fair", lambda t: t["affairs"], lambda t: t.drop(columns="affairs")),
    "randhie": lambda: _statsmodels("randhie", lambda t: t["mdvis"], lambda t: t.drop(columns="mdvis")),
}


class PaperSplits(Dataset[Inputs, Truth]):
    """The paper's outer splits, from the folder that its repository ships: ``NAME/splits/outer_K/{train,test}.csv``."""

    class Config(DatasetConfig):
        """Where the data set lies."""

        path: Path = Field(
            description="Folder of one data set, which holds splits/outer_0 to outer_4 with train.csv and test.csv."
        )
        fold: Annotated[int, Field(ge=0)] | None = Field(
            None, description="Outer split; none: the run's seed modulo 5."
        )
        categorical: tuple[str, ...] = Field((), description="Names of columns that hold categories, as text or codes.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Read one split; the target is the last column."""
        config = self.config
        folder = config.path / "splits" / f"outer_{ctx.seed % 5 if config.fold is None else config.fold}"
        if not folder.is_dir():
            raise InputError(
                f"{folder} is not a folder: `path` must be a data set of the authors' repository "
                "(https://github.com/Yixiao-Wang-Stats/CLARITree), as in .../airfoil with splits/outer_0/train.csv"
            )
        train, test = (_read_split(folder / name, config.categorical) for name in ("train.csv", "test.csv"))
        if (train.feature_names, train.target) != (test.feature_names, test.target):
            raise InputError(f"{folder}: train.csv and test.csv have different columns")
        X_test = test.X.copy()
        for column, known, labels in zip(train.categorical, train.categories, test.categories, strict=True):
            unseen = sorted(set(labels) - set(known))
            if unseen:
                name = train.feature_names[column]
                raise InputError(
                    f"{test.path}: the category {unseen[0]!r} of column {name!r} is in no row of {train.path}"
                )
            X_test[:, column] = np.array([known.index(label) for label in labels], dtype=float)[
                X_test[:, column].astype(int)
            ]
        return _problem(train.X, train.y, X_test, test.y, train.feature_names, train.categorical)


def _read_split(path: Path, categorical: tuple[str, ...]) -> Table:
    if not path.is_file():
        raise InputError(f"{path} is missing: a split is a folder with train.csv and test.csv")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            names = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if len(names) < 2:
        raise InputError(f"{path} must begin with the names of at least one column and the target")
    return read_table(path, target=names[-1].strip(), categorical=categorical)


def _problem(
    X: FloatArray,
    y: FloatArray,
    X_test: FloatArray,
    y_test: FloatArray,
    names: tuple[str, ...],
    categorical: tuple[int, ...] = (),
) -> Problem[Inputs, Truth]:
    """A problem whose truth shares no memory with its inputs."""
    X, y = np.ascontiguousarray(X), np.ascontiguousarray(y)
    inputs = Inputs(X=X, y=y, feature_names=names, categorical=categorical)
    truth = Truth(np.ascontiguousarray(X_test), np.ascontiguousarray(y_test), X.copy(), y.copy())
    return Problem(inputs, truth, {"n_train": len(y), "n_test": len(y_test), "columns": len(names)})
