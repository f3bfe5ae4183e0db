"""Bounded rows, streamed: the only place where mechanisms touch data.

Whatever the user's units, `BoundedRows` presents rows of the unit ball and labels in [-1, 1], chunk by chunk, and computes
the sums that mechanisms need. Memory beyond the data itself is a few chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icml26_plugin_ihm.bounds import Bounds

Array = NDArray[np.float64]
Batches = Callable[[], Iterable[tuple[ArrayLike, ArrayLike]]]
"""Called once a pass; yields (X (m, d), y (m,)) in any row order, the same rows at each call."""

_CHUNK_BYTES = 1 << 20
_REPEAT_CHUNK_BYTES = 1 << 25
_ROUNDING = 1e-6


class Moments(NamedTuple):
    """Sums over all bounded rows."""

    n: int
    gram: Array
    """X^T X, shape (d, d)."""
    correlation: Array
    """X^T y, shape (d,)."""
    label_square: float
    """y^T y."""
    outside: int
    """Rows or labels that were beyond their bound and got clipped (a private number)."""


def _numbers(values: ArrayLike, name: str) -> NDArray[np.floating]:
    """Values as real numbers in double precision or less; ValueError for anything that is not."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} must hold numbers ({error})") from error
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}")
    return array.astype(np.float64) if array.dtype.itemsize > 8 else array


class BoundedRows:
    """Rows of a data set, scaled (and, with `clip`, forced) into the unit ball, labels into [-1, 1].

    `d` counts the constant column when `intercept` is set. Raises `ValueError` naming the row when `clip` is off and a
    row or label is out of bounds, and for values that are not finite.
    """

    def __init__(
        self,
        batches: Batches,
        n_features: int,
        bounds: Bounds,
        *,
        intercept: bool = False,
        clip: bool = True,
        chunk_rows: int | None = None,
    ) -> None:
        self._batches = batches
        self._n_features = n_features
        self._bounds = bounds
        self._intercept = intercept
        self._clip = clip
        self._chunk_rows = chunk_rows
        self._n_rows: int | None = None
        self.d = n_features + int(intercept)

    @classmethod
    def from_arrays(
        cls,
        X: NDArray[np.floating],
        y: NDArray[np.floating],
        bounds: Bounds | None = None,
        *,
        intercept: bool = False,
        clip: bool = True,
        chunk_rows: int | None = None,
    ) -> BoundedRows:
        """Rows of two arrays, X (n, d) and y (n,), neither copied. Default bounds are the unit ones."""
        bounds = Bounds() if bounds is None else bounds
        return cls(lambda: [(X, y)], X.shape[1], bounds, intercept=intercept, clip=clip, chunk_rows=chunk_rows)

    def chunks(self, bytes_per_row: int = 0) -> Iterator[tuple[Array, Array]]:
        """Bounded (X (m, d), y (m,)) in order; m is small enough for `bytes_per_row` more of work space a row."""
        for X, y, _ in self._pieces(bytes_per_row):
            yield X, y

    def _pieces(self, bytes_per_row: int = 0) -> Iterator[tuple[Array, Array, int]]:
        step = self._chunk_rows or max(1, _CHUNK_BYTES // (8 * self.d))
        if bytes_per_row:
            step = max(1, min(step, _REPEAT_CHUNK_BYTES // bytes_per_row))
        first = 0
        for batch, labels in self._batches():
            X_batch, y_batch = _numbers(batch, "X"), _numbers(labels, "y")
            self._check_shapes(X_batch, y_batch, first)
            for start in range(0, len(X_batch), step):
                rows = slice(start, start + step)
                yield self._bounded(X_batch[rows], y_batch[rows], first + start)
            first += len(X_batch)
        if self._n_rows is None:
            self._n_rows = first
        elif first != self._n_rows:
            raise ValueError(
                f"batches() gave {self._n_rows} rows in the first pass and {first} in another; it is called once a pass "
                "and must yield the same rows each time (a generator that was made before is empty after one pass)"
            )

    def _check_shapes(self, X: NDArray[np.floating], y: NDArray[np.floating], first: int) -> None:
        if X.ndim != 2 or X.shape[1] != self._n_features or y.shape != (len(X),):
            raise ValueError(
                f"the batch from row {first} on has X of shape {X.shape} and y of shape {y.shape}; "
                f"expected (m, {self._n_features}) and (m,)"
            )

    def _bounded(self, X: NDArray[np.floating], y: NDArray[np.floating], first: int) -> tuple[Array, Array, int]:
        """One chunk in the units of the mechanisms, and how many of its rows or labels were out of bounds."""
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
        if not np.isfinite(norms).all():
            X, norms = self._finite_rows(X, norms, first)
        if not np.isfinite(y).all():
            raise ValueError(f"y[{first + int(np.argmin(np.isfinite(y)))}] is not finite")
        beyond = (norms > self._bounds.x) | (y < self._bounds.y_low) | (y > self._bounds.y_high)
        outside = int(np.count_nonzero(beyond))
        if outside and not self._clip:
            # Rows that were divided by the largest norm may exceed it by a rounding; those are scaled in all the same.
            beyond &= (norms > self._bounds.x * (1.0 + _ROUNDING)) | self._far_labels(y)
            if beyond.any():
                raise ValueError(self._complaint(first + int(np.argmax(beyond)), norms[beyond][0], float(y[beyond][0])))
        scale = 1.0 / np.maximum(norms, self._bounds.x)
        bounded = np.asarray(X, dtype=np.float64)
        if self._intercept:
            scale *= np.sqrt(0.5)
            bounded = np.column_stack([bounded * scale[:, None], np.full(len(X), np.sqrt(0.5))])
        elif not (scale == 1.0).all():  # rows of the unit ball already are spared a copy of every chunk
            bounded = bounded * scale[:, None]
        centre, half_width = self._bounds.label_frame(self._intercept)
        labels = (np.clip(y.astype(np.float64), self._bounds.y_low, self._bounds.y_high) - centre) / half_width
        return bounded, labels, outside

    def _finite_rows(self, X: NDArray[np.floating], norms: Array, first: int) -> tuple[NDArray[np.floating], Array]:
        """Rows whose squared norm overflows, rescaled; refuses rows with NaN or infinity."""
        bad = ~np.isfinite(X).all(axis=1)
        if bad.any():
            raise ValueError(f"row {first + int(np.argmax(bad))} of X holds a value that is not finite")
        huge = ~np.isfinite(norms)
        X, norms = X.astype(np.float64), norms.copy()
        largest = np.abs(X[huge]).max(axis=1, keepdims=True)
        # A direction is all that clipping keeps of such a row.
        X[huge] = X[huge] / largest
        norms[huge] = np.linalg.norm(X[huge], axis=1)
        X[huge] *= (2.0 * self._bounds.x / norms[huge])[:, None]
        norms[huge] = 2.0 * self._bounds.x
        return X, norms

    def _far_labels(self, y: NDArray[np.floating]) -> NDArray[np.bool_]:
        slack = _ROUNDING * max(abs(self._bounds.y_low), abs(self._bounds.y_high))
        return np.asarray((y < self._bounds.y_low - slack) | (y > self._bounds.y_high + slack))

    def _complaint(self, row: int, norm: float, label: float) -> str:
        return (
            f"row {row} is out of bounds: its norm is {norm:.6g} (x_bound={self._bounds.x:g}), its label {label:.6g} "
            f"(y in [{self._bounds.y_low:g}, {self._bounds.y_high:g}]); raise the bounds or set clip_inputs=True"
        )

    def moments(self) -> Moments:
        """One pass: n, X^T X, X^T y, y^T y, clipped rows."""
        gram, correlation = np.zeros((self.d, self.d)), np.zeros(self.d)
        label_square, n, outside = 0.0, 0, 0
        for X, y, beyond in self._pieces():
            gram += X.T @ X
            correlation += X.T @ y
            label_square += float(y @ y)
            n += len(X)
            outside += beyond
        return Moments(n, gram, correlation, label_square, outside)

    def score(self, theta: Array) -> Array:
        """X^T clip(y - X theta, -1, 1) for each row of `theta` (R, d): one pass, shape (R, d).

        A row of X in the unit ball moves it by at most 1 in L2, whatever theta.
        """
        total = np.zeros((self.d, len(theta)))
        for X, y in self.chunks(8 * len(theta)):
            residual = y[:, None] - X @ theta.T
            total += X.T @ np.clip(residual, -1.0, 1.0, out=residual)
        return total.T

    def clipped_fraction(self, theta: Array) -> Array:
        """Share of residuals beyond [-1, 1] for each row of `theta` (R, d), shape (R,). A private number."""
        count, n = np.zeros(len(theta)), 0
        for X, y in self.chunks(8 * len(theta)):
            count += np.count_nonzero(np.abs(y[:, None] - X @ theta.T) > 1.0, axis=0)
            n += len(X)
        return count / max(n, 1)
