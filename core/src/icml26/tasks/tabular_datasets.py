"""The datasets that core brings for ``regression.tabular``: the user's table, and two to try methods on."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from icml26.context import RunContext
from icml26.dataset import Dataset, DatasetConfig
from icml26.errors import InputError
from icml26.task import Problem
from icml26.tasks.table_file import TableFileConfig, Unseen, random_split
from icml26.tasks.tabular import Inputs, Truth

TestFraction = Field(default=0.25, gt=0, lt=1, description="The share of the rows that is held out for testing")
SplitSeed = Field(
    default=None, ge=0, description="A seed of its own, so that every run has the same rows; default: the run's seed"
)


def _generator(seed: int | None, ctx: RunContext) -> np.random.Generator:
    return ctx.rng if seed is None else np.random.default_rng(seed)


class TableDataset(Dataset[Inputs, Truth]):
    """The user's table, split at random or by a column."""

    class Config(TableFileConfig):
        """A table and how it is split; ``split_column`` wins over ``test_fraction``."""

        test_fraction: float = TestFraction
        train_label: str = Field(default="train", description="What the split column says in training rows")
        test_label: str = Field(default="test", description="What the split column says in test rows")
        unseen: Unseen = Field(
            "refuse", description="Test rows with a category that no training row has: refuse or drop them"
        )
        seed: int | None = SplitSeed

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Read and split the table. Raises InputError for everything in it that cannot be used."""
        config = self.config
        table = config.read()
        if config.split_column is not None:
            train, test = table.labelled_split(config.train_label, config.test_label)
        else:
            train, test = random_split(len(table.y), config.test_fraction, _generator(config.seed, ctx))
        return table.problem(train, test, unseen=config.unseen)


class Diabetes(Dataset[Inputs, Truth]):
    """Progression of diabetes in a year from 10 measurements of 442 patients (Efron et al., 2004)."""

    class Config(DatasetConfig):
        """How the patients are split and scaled."""

        test_fraction: float = TestFraction
        scaled: bool = Field(
            True, description="Features with mean 0 and sum of squares 1 over all patients, as published"
        )
        seed: int | None = SplitSeed

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Take the patients from scikit-learn, which carries them. Raises InputError when it is not installed."""
        try:
            from sklearn.datasets import load_diabetes
        except ImportError:
            raise InputError("the dataset diabetes comes with scikit-learn: pip install 'icml26[sklearn]'") from None
        found = load_diabetes(scaled=self.config.scaled)
        X, y = np.asarray(found.data, dtype=np.float64), np.asarray(found.target, dtype=np.float64)
        return _split(X, y, tuple(found.feature_names), self.config.test_fraction, _generator(self.config.seed, ctx))


class Friedman(Dataset[Inputs, Truth]):
    """Friedman's first function (1991): 10 sin(pi x0 x1) + 20 (x2 - 1/2)² + 10 x3 + 5 x4 + noise, x uniform on [0, 1]^d."""

    class Config(DatasetConfig):
        """Its size and noise."""

        n_rows: int = Field(default=400, ge=2, le=10_000_000, description="Rows, for training and test together")
        n_features: int = Field(
            10, ge=5, le=10_000, description="Features; those from the sixth on say nothing of the target"
        )
        noise: float = Field(default=1.0, ge=0, description="Standard deviation of the noise", allow_inf_nan=False)
        test_fraction: float = TestFraction
        seed: int | None = SplitSeed

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Draw the rows, the noise and the split, in this order, from one generator."""
        config = self.config
        rng = _generator(config.seed, ctx)
        X = rng.random((config.n_rows, config.n_features))
        y = friedman1(X) + config.noise * rng.standard_normal(config.n_rows)
        return _split(X, y, tuple(f"x{index}" for index in range(config.n_features)), config.test_fraction, rng)


def friedman1(X: np.ndarray) -> np.ndarray:
    """Friedman's first function without noise: (n, d >= 5) to (n,)."""
    return 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]


def _split(
    X: np.ndarray, y: np.ndarray, names: tuple[str, ...], test_fraction: float, rng: np.random.Generator
) -> Problem[Inputs, Truth]:
    train, test = random_split(len(y), test_fraction, rng)
    inputs = Inputs(X[train], y[train], names)
    truth = Truth(X_test=X[test], y_test=y[test], X_train=X[train], y_train=y[train])
    return Problem(inputs, truth, {"n_train": len(train), "n_test": len(test), "n_features": len(names)})
