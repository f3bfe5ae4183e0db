"""Ridge losses from packed moments, in NumPy.

A row's moments are the packed lower triangle of the outer product of its augmented design ``a+ = [1, z, y]``: entry
``i (i + 1) / 2 + j`` is ``a+_i a+_j``. The first entry counts rows, the last one is the squared target.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icml26_plugin_claritree.problem import INTERCEPT_JITTER, RELATIVE_PIVOT

FloatArray = NDArray[np.float64]


def packed_size(k: int) -> int:
    """Number of moments for k leaf coefficients."""
    return (k + 1) * (k + 2) // 2


def pack_moments(design: FloatArray, target: FloatArray) -> FloatArray:
    """Packed moments of every row: design (n, k), target (n,) -> (n, q)."""
    augmented = np.column_stack([design, target])
    rows, columns = np.tril_indices(augmented.shape[1])
    return np.ascontiguousarray(augmented[:, rows] * augmented[:, columns])


def ridge_losses(moments: FloatArray, k: int, ridge: float) -> FloatArray:
    """Ridge loss ``min_beta ||y - A beta||^2 + ridge ||beta_1:||^2`` of m boxes from their summed moments (m, q) ->
    (m,).

    Symmetric elimination of the augmented moment matrix: its Schur complement is ``y'y - b' A^-1 b`` (the paper's
    ``||y||^2 - ||C^-1 b||^2`` without the square roots). Pivots are clipped at the ridge, which bounds them in exact
    arithmetic; one that vanishes (only without a ridge) belongs to a linearly dependent column, which is left out.
    Never negative.
    """
    lanes = np.ascontiguousarray(moments.T)
    triangle = [i * (i + 1) // 2 for i in range(k + 1)]
    floors = [INTERCEPT_JITTER] + [ridge] * (k - 1)
    smallest = [RELATIVE_PIVOT * (lanes[triangle[j] + j] + floors[j]) for j in range(k)]
    for j in range(k):
        pivot = np.maximum(lanes[triangle[j] + j], 0.0) + floors[j]
        kept = pivot > smallest[j]
        inverse = np.where(kept, 1.0 / np.where(kept, pivot, 1.0), 0.0)
        column = np.stack([lanes[triangle[i] + j] for i in range(j + 1, k + 1)])
        for i in range(j + 1, k + 1):
            factor = lanes[triangle[i] + j] * inverse
            lanes[triangle[i] + j + 1 : triangle[i] + i + 1] -= factor * column[: i - j]
    return np.asarray(np.maximum(lanes[triangle[k] + k], 0.0))
