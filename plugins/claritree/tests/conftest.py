"""Data with known answers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def golden_data() -> tuple[FloatArray, FloatArray]:
    """The data on which the authors' program gave the golden objectives: three continuous columns and a binary one."""
    g = np.random.default_rng(42)
    X = g.uniform(-1, 1, (200, 3))
    B = g.uniform(size=(200, 1)) > 0.5
    sign = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    y = sign * X[:, 2] + 0.5 * B[:, 0] * X[:, 0] + 0.1 * g.standard_normal(200)
    return np.column_stack([X, B]).astype(float), y


def plxor(n: int, seed: int, step: float = 0.5) -> tuple[FloatArray, FloatArray]:
    """A target that no single cut helps with: two signs decide between two slopes."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 6))
    s = np.sign(X[:, 0]) * np.sign(X[:, 1])
    t = np.sign(X[:, 2] - 0.3)
    return X, s * (2 * X[:, 3] + X[:, 4]) + step * t * X[:, 5] + 0.1 * rng.standard_normal(n)


def mixed_data(seed: int, n: int = 150) -> tuple[FloatArray, FloatArray]:
    """Ties, a constant column, a binary column, a coarse column, two continuous ones."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [
            rng.normal(size=n),
            np.round(rng.normal(size=n), 1),
            rng.integers(0, 4, n),
            rng.integers(0, 2, n),
            np.full(n, 7.0),
        ]
    )
    y = np.where(X[:, 0] * X[:, 1] > 0, X[:, 1], -X[:, 2]) + X[:, 3] * X[:, 0] + 0.2 * rng.normal(size=n)
    return X, y


@pytest.fixture(scope="session")
def golden() -> tuple[FloatArray, FloatArray]:
    return golden_data()
