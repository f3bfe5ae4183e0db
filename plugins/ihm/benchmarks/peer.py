"""Iterative Hessian mixing beside diffprivlib's LinearRegression on the same rows, in one process.

Not like for like: the peer is purely epsilon-private (functional mechanism) and knows bounds a coordinate, not a norm
ball. It gets the tightest per-coordinate bounds of the data, which is generous. Needs diffprivlib 0.6.6 with scikit-learn
below 1.8 (its import fails on newer ones):

    pip install 'icml26-plugin-ihm' diffprivlib==0.6.6 'scikit-learn<1.8'
    python benchmarks/peer.py
"""

import sys
import time
import warnings

import numpy as np
from diffprivlib.models import LinearRegression
from icml26_plugin_ihm import IterativeHessianMixing
from icml26_plugin_ihm.datasets import draw_aniso

FITS = 50
TUNED = {"iterations": "auto", "k_factor": "auto", "accounting": "joint"}


def _peer(X: np.ndarray, y: np.ndarray, epsilon: float, seed: int) -> LinearRegression:
    return LinearRegression(
        epsilon=epsilon,
        bounds_X=(X.min(axis=0), X.max(axis=0)),
        bounds_y=(y.min(), y.max()),
        fit_intercept=False,
        random_state=seed,
    )


def _timed(model: LinearRegression | IterativeHessianMixing, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Fitted coefficients and the seconds that the fit took."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        model.fit(X, y)
        taken = time.perf_counter() - start
    return np.ravel(model.coef_), taken


def main() -> int:
    """Bars: no slower, and at most a tenth of the median excess risk, over 50 fits."""
    X, y = draw_aniso(20_000, 10, 1.0, np.random.default_rng(0))
    n = len(y)
    gram, optimum = X.T @ X, np.linalg.lstsq(X, y, rcond=None)[0]

    def excess(coef: np.ndarray) -> float:
        return float((coef - optimum) @ gram @ (coef - optimum) / n)

    met = True
    for epsilon in (1.0, 10.0):
        peers = [_timed(_peer(X, y, epsilon, seed), X, y) for seed in range(FITS)]
        for name, options in (("paper defaults", {}), ("auto, joint ledger", TUNED)):
            IterativeHessianMixing(epsilon, **options).fit(X, y)  # calibrations are cached, as in any second fit
            fits = [_timed(IterativeHessianMixing(epsilon, random_state=seed, **options), X, y) for seed in range(FITS)]
            times = [1e3 * np.median([taken for _, taken in runs]) for runs in (fits, peers)]
            risks = [np.median([excess(coef) for coef, _ in runs]) for runs in (fits, peers)]
            fine = times[0] <= times[1] and risks[0] <= 0.1 * risks[1]
            print(
                f"epsilon {epsilon:>2g}, {name:<18}: fit {times[0]:.1f} ms against {times[1]:.1f} ms; median excess risk "
                f"{risks[0]:.3g} against {risks[1]:.3g} (ratio {risks[0] / risks[1]:.2g}): {'met' if fine else 'MISSED'}"
            )
            met &= fine
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
