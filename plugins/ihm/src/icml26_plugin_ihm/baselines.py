"""What iterative Hessian mixing is compared with: AdaSSP and noisy gradient descent.

(Linear mixing stands in `mixing.py`, since it shares the sketch.) Same conventions: bounded rows, `repeats` releases.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icml26_plugin_ihm.calibration import AdaSSPPlan, GradientDescentPlan
from icml26_plugin_ihm.noise import NoiseSource
from icml26_plugin_ihm.rows import BoundedRows, Moments

Array = NDArray[np.float64]


def adassp(
    rows: BoundedRows, plan: AdaSSPPlan, noise: NoiseSource, *, repeats: int = 1, moments: Moments | None = None
) -> Array:
    """Adaptive sufficient-statistics perturbation (Wang 2018), coefficients of shape (repeats, d).

    theta = (G + s E + ridge I)^{-1} (X^T y + s_y N), ridge = max(0, s sqrt(d ln(2 d^2 / varrho)) - lower) with lower the
    noisy least eigenvalue minus `plan.shift`, at least 0.
    """
    moments = rows.moments() if moments is None else moments
    d = rows.d
    least = max(0.0, float(np.linalg.eigvalsh(moments.gram)[0]))
    noisy_least = noise.release(np.full((repeats, 1), least), plan.s)[:, 0]
    ridge = np.maximum(0.0, plan.ridge_target - np.maximum(0.0, noisy_least - plan.shift))
    upper = np.triu_indices(d)
    released = noise.release(np.broadcast_to(moments.gram[upper], (repeats, len(upper[0]))), plan.s)
    gram = np.empty((repeats, d, d))
    gram[:, upper[0], upper[1]] = released
    gram[:, upper[1], upper[0]] = released
    gram[:, np.arange(d), np.arange(d)] += ridge[:, None]
    correlation = noise.release(np.broadcast_to(moments.correlation, (repeats, d)), plan.s_y)
    return np.asarray(np.linalg.solve(gram, correlation[..., None])[..., 0], dtype=np.float64)


def gradient_descent(
    rows: BoundedRows, plan: GradientDescentPlan, noise: NoiseSource, n: int, *, repeats: int = 1
) -> Array:
    """Full-batch descent on the clipped residuals from theta = 0, coefficients of shape (repeats, d).

    theta += learning_rate / n (X^T clip(y - X theta, -1, 1) + sigma N). `n` is public.
    """
    theta = np.zeros((repeats, rows.d))
    for _ in range(plan.steps):
        theta = theta + (plan.learning_rate / n) * noise.release(rows.score(theta), plan.sigma)
    return theta
