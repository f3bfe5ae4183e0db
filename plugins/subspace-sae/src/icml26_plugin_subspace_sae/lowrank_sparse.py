"""Synthetic activations that are sparse combinations of true features inside a low-dimensional subspace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from icml26.errors import InputError

BLOCK = 2048


@dataclass(frozen=True)
class LowrankSparse:
    """What is drawn: ``d`` dimensions, an active subspace of ``r``, ``n_features`` true features.

    ``l0`` of them are active on average. ``decay`` bends the spectrum inside the subspace, exp(-decay·i/r); ``noise`` is the
    deviation of the isotropic noise.
    """

    d: int = 64
    r: int = 16
    n_features: int = 1024
    l0: float = 8.0
    decay: float = 0.0
    noise: float = 1e-2

    def check(self) -> None:
        """Raise InputError naming the option that cannot be met."""
        if not 1 <= self.r <= self.d:
            raise InputError(f"r={self.r} must be between 1 and d={self.d}: the subspace lies inside the space.")
        if self.n_features < 1:
            raise InputError(f"n_features={self.n_features} must be at least 1.")
        highest = float(self.probabilities().max())
        if highest > 1:
            raise InputError(
                f"l0={self.l0} of n_features={self.n_features}: the most frequent feature would be active with probability "
                f"{highest:.2f}. Lower l0 or raise n_features."
            )

    def probabilities(self) -> np.ndarray:
        """P(feature i is active) (n_features,), proportional to (i + 10)^-0.8, summing to ``l0``."""
        weight = (np.arange(self.n_features) + 10.0) ** -0.8
        chances: np.ndarray = weight * (self.l0 / weight.sum())
        return chances


PRESETS = {
    "collapsed": LowrankSparse(),
    "mild": LowrankSparse(r=38, decay=3.0),
    "full": LowrankSparse(r=64),
}


@dataclass(frozen=True)
class LowrankSample:
    """``train`` (n, d) and ``test`` (n_test, d) float32; ``features`` (n_features, d) unit rows and ``basis`` (d, r), float64."""

    train: np.ndarray
    test: np.ndarray
    features: np.ndarray
    basis: np.ndarray


def draw(rng: np.random.Generator, design: LowrankSparse, n_train: int = 16_384, n_test: int = 16_384) -> LowrankSample:
    """Draw basis, features and rows x = z F Qᵀ + noise; amplitudes of active features are U(0.5, 1.5)."""
    design.check()
    basis = np.linalg.qr(rng.standard_normal((design.d, design.d)))[0][:, : design.r]
    inside = rng.standard_normal((design.n_features, design.r))
    inside /= np.linalg.norm(inside, axis=1, keepdims=True)
    inside *= np.exp(-design.decay * np.arange(design.r) / design.r)
    features = inside @ basis.T
    rows = _rows(rng, design, features, n_train + n_test)
    directions = features / np.linalg.norm(features, axis=1, keepdims=True)
    return LowrankSample(rows[:n_train].copy(), rows[n_train:].copy(), directions, basis)


def _rows(rng: np.random.Generator, design: LowrankSparse, features: np.ndarray, count: int) -> np.ndarray:
    chances = design.probabilities()
    rows = np.empty((count, design.d), dtype=np.float32)
    for start in range(0, count, BLOCK):
        n = min(BLOCK, count - start)
        codes = rng.uniform(0.5, 1.5, (n, design.n_features))
        codes *= rng.random((n, design.n_features)) < chances
        rows[start : start + n] = codes @ features + design.noise * rng.standard_normal((n, design.d))
    return rows
