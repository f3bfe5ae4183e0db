"""Small regression problems for the tests."""

import numpy as np


def bounded_problem(n=400, d=4, seed=0, noise=0.05):
    """Rows in the unit ball, labels in [-1, 1]."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1).max()
    theta = rng.standard_normal(d)
    y = X @ theta
    y = np.clip(y / (1.3 * np.abs(y).max()) + noise * rng.standard_normal(n), -1, 1)
    return X, y


def least_squares(X, y):
    return np.linalg.lstsq(X, y, rcond=None)[0]
