"""The ridge model of one leaf, fitted from its rows after the structure is fixed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

ILL_CONDITIONED = 1e12  # condition number of the regularised Gram matrix above which a leaf is reported


@dataclass(frozen=True)
class LeafModel:
    """Coefficients on the standardised design, and the loss that they reach."""

    coefficients: FloatArray  # (k,), intercept first
    loss: float  # squared error + ridge penalty
    squared_error: float
    condition: float  # of the regularised Gram matrix


def fit_leaf(design: FloatArray, target: FloatArray, ridge: float) -> LeafModel:
    """Minimise ``||y - A beta||^2 + ridge ||beta_1:||^2`` over beta: design A (n, k), target y (n,).

    By the singular values of the design with the penalty as extra rows; of the minimisers of a rank-deficient problem
    (ridge 0) the one of least norm.
    """
    k = design.shape[1]
    penalty = np.sqrt(ridge) * np.eye(k)[1:]
    augmented = np.vstack([design, penalty])
    coefficients, _, _, singular = np.linalg.lstsq(augmented, np.concatenate([target, np.zeros(k - 1)]), rcond=1e-10)
    residual = target - design @ coefficients
    squared_error = float(residual @ residual)
    smallest = singular[-1] if singular.size == k else 0.0
    condition = float((singular[0] / smallest) ** 2) if smallest > 0 else np.inf
    loss = squared_error + ridge * float(coefficients[1:] @ coefficients[1:])
    return LeafModel(coefficients, loss, squared_error, condition)
