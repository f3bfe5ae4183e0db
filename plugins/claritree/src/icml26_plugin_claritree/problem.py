"""The numbers that a search works on, in the units in which it works."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

INTERCEPT_JITTER = 1e-12  # added to the intercept's diagonal entry
TIE = 1e-12  # losses closer than this share of the total sum of squares are equal: the first one wins
RELATIVE_PIVOT = 1e-13  # a pivot below this share of its diagonal entry is a linearly dependent column


@dataclass(frozen=True)
class SearchProblem:
    """One training set, prepared for any engine.

    The target is centred and scaled to total sum of squares 1, so that `lambda_` needs no scaling and losses are
    shares.
    """

    design: FloatArray  # (n, k): 1, then the standardised continuous columns
    target: FloatArray  # (n,)
    codes: NDArray[np.uint16]  # (n, p): bin of every split column
    n_bins: NDArray[np.int64]  # (p,): number of thresholds + 1
    ridge: float  # kappa' = n * kappa, the same in every leaf
    min_leaf: int

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.design.shape[0]

    @property
    def k(self) -> int:
        """Number of leaf coefficients, the intercept included."""
        return self.design.shape[1]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """First bin of every split column in one common numbering, and the total, (p + 1,)."""
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.n_bins)])


@dataclass(frozen=True)
class Cut:
    """A split of a box: rows whose bin of the split column `feature` is at most `code` go left."""

    feature: int
    code: int
    left_loss: float
    right_loss: float

    @property
    def loss(self) -> float:
        """Sum of the losses of the two sides."""
        return self.left_loss + self.right_loss


def legal_cuts(codes: NDArray[np.uint16], n_bins: NDArray[np.int64], min_leaf: int) -> NDArray[np.int64]:
    """Legal (feature, code) pairs of a box in scan order, (m, 2).

    Both sides have at least `min_leaf` rows; of thresholds that part the rows in the same way only the first is kept.
    """
    cuts: list[NDArray[np.int64]] = []
    n = codes.shape[0]
    for feature, bins in enumerate(n_bins):
        left = np.cumsum(np.bincount(codes[:, feature], minlength=int(bins)))[:-1]
        new = np.diff(left, prepend=0) > 0
        code = np.flatnonzero(new & (left >= min_leaf) & (n - left >= min_leaf))
        cuts.append(np.column_stack([np.full(code.size, feature), code]))
    return np.concatenate(cuts).astype(np.int64) if cuts else np.empty((0, 2), dtype=np.int64)
