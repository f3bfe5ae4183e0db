"""Random Hessians with mean G + g I: the literal Gaussian sketch and its exact law, a Wishart matrix.

A Hessian sampler is a function of one signature (`HessianSampler`); iterative mixing does not know which one it got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from icml26_plugin_ihm.noise import NoiseSource
from icml26_plugin_ihm.rows import BoundedRows

Array = NDArray[np.float64]

Sketch = Literal["wishart", "gaussian"]

_SKETCH_CHUNK_BYTES = 1 << 26


class GramSpectrum(NamedTuple):
    """Eigendecomposition G = Q diag(values) Q^T of a Gram matrix."""

    values: Array
    """Eigenvalues in ascending order, clamped at 0, shape (d,)."""
    vectors: Array
    """Q, shape (d, d), eigenvectors in columns."""

    @classmethod
    def of(cls, gram: Array) -> GramSpectrum:
        values, vectors = np.linalg.eigh(gram)
        # Rounding may leave -1e-15 where the rank is short.
        return cls(np.maximum(values, 0.0), vectors)

    @property
    def least(self) -> float:
        return float(self.values[0])


class Hessian(Protocol):
    """R sampled Hessians."""

    def solve(self, score: Array) -> Array:
        """H_r^{-1} score_r for each repeat, shapes (R, d)."""
        ...

    def matrix(self) -> Array:
        """The matrices, shape (R, d, d)."""
        ...


HessianSampler = Callable[[BoundedRows, GramSpectrum, Array, int, NoiseSource], Hessian]
"""(rows, spectrum of G, ridges g (R,), sketch rows k, noise) -> R Hessians of mean G + g_r I."""


class WishartHessian(NamedTuple):
    """H = B A A^T B^T / k with B = Q diag(sqrt(values + g)) and A a Bartlett factor: k H ~ Wishart(k, G + g I)."""

    basis: Array
    """Q, shape (d, d)."""
    root: Array
    """sqrt(eigenvalue + g), shape (R, d)."""
    factor: Array
    """A, lower triangular, shape (R, d, d)."""
    k: int

    def solve(self, score: Array) -> Array:
        right = ((score @ self.basis) / self.root)[..., None]
        inner = np.linalg.solve(self.factor, right)
        outer = np.linalg.solve(np.swapaxes(self.factor, 1, 2), inner)[..., 0]
        return self.k * (outer / self.root) @ self.basis.T

    def matrix(self) -> Array:
        half = self.basis @ (self.root[..., None] * self.factor)
        return half @ np.swapaxes(half, 1, 2) / self.k


class DenseHessian(NamedTuple):
    """Hessians held as matrices."""

    matrices: Array
    """Shape (R, d, d)."""

    def solve(self, score: Array) -> Array:
        lower = np.linalg.cholesky(self.matrices)
        inner = np.linalg.solve(lower, score[..., None])
        return np.linalg.solve(np.swapaxes(lower, 1, 2), inner)[..., 0]

    def matrix(self) -> Array:
        return self.matrices


def bartlett_factor(d: int, k: int, repeats: int, noise: NoiseSource) -> Array:
    """Lower triangular A with A A^T ~ Wishart_d(k, I), shape (repeats, d, d); needs k >= d."""
    factor = np.zeros((repeats, d, d))
    rows, columns = np.tril_indices(d, -1)
    factor[:, rows, columns] = noise.normal((repeats, len(rows)))
    diagonal = np.arange(d)
    factor[:, diagonal, diagonal] = np.sqrt(noise.chi_square(k - diagonal.astype(np.float64), repeats))
    return factor


def wishart_hessian(
    rows: BoundedRows, spectrum: GramSpectrum, ridge: Array, k: int, noise: NoiseSource
) -> WishartHessian:
    """Sample Hessians from their law without a sketch: O(d^3) in place of O(k n d), the same distribution."""
    root = np.sqrt(spectrum.values + ridge[:, None])
    return WishartHessian(spectrum.vectors, root, bartlett_factor(len(spectrum.values), k, len(ridge), noise), k)


def gaussian_hessian(
    rows: BoundedRows, spectrum: GramSpectrum, ridge: Array, k: int, noise: NoiseSource
) -> DenseHessian:
    """The paper's sketch as it is written: H = X~^T X~ / k with X~ = S X + sqrt(g) N, S (k, n) and N (k, d) normal."""
    d = len(spectrum.values)
    matrices = np.empty((len(ridge), d, d))
    for r, g in enumerate(ridge):
        blocks = (X for X, _ in rows.chunks())
        sketched = np.sqrt(g) * noise.normal((k, d)) + gaussian_sketch(blocks, d, k, noise)
        matrices[r] = sketched.T @ sketched / k
    return DenseHessian(matrices)


def gaussian_sketch(blocks: Iterable[Array], d: int, k: int, noise: NoiseSource) -> Array:
    """S X for one fresh S of k rows and X given as row blocks (m, d); shape (k, d). S is never held whole."""
    sketched = np.zeros((k, d))
    block = max(1, _SKETCH_CHUNK_BYTES // (8 * k))
    for X in blocks:
        for start in range(0, len(X), block):
            piece = X[start : start + block]
            sketched += noise.normal((k, len(piece))) @ piece
    return sketched


SKETCHES: dict[Sketch, HessianSampler] = {"wishart": wishart_hessian, "gaussian": gaussian_hessian}
"""Hessian samplers by the name used in configurations."""
