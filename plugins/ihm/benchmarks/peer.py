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


def main() -> int:
    X, y = draw_aniso(20_000, 10, 1.0, np.random.default_rng(0))
    n = len(y)
    gram, optimum = X.T @ X, np.linalg.lstsq(X, y, rcond=None)[0]

    def excess(coef: np.ndarray) -> float:
        return float((coef - optimum) @ gram @ (coef - optimum) / n)

    IterativeHessianMixing(1.0).fit(X, y)  # calibrations are cached, as in any second fit
    met = True
    for epsilon in (1.0, 10.0):
        IterativeHessianMixing(epsilon).fit(X, y)
        ours, theirs, our_times, their_times = [], [], [], []
        for seed in range(FITS):
            start = time.perf_counter()
            model = IterativeHessianMixing(epsilon, random_state=seed).fit(X, y)
            our_times.append(time.perf_counter() - start)
            ours.append(excess(model.coef_))
            peer = LinearRegression(
                epsilon=epsilon,
                bounds_X=(X.min(axis=0), X.max(axis=0)),
                bounds_y=(y.min(), y.max()),
                fit_intercept=False,
                random_state=seed,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                start = time.perf_counter()
                peer.fit(X, y)
                their_times.append(time.perf_counter() - start)
            theirs.append(excess(np.ravel(peer.coef_)))
        time_ratio = np.median(our_times) / np.median(their_times)
        risk_ratio = np.median(ours) / np.median(theirs)
        print(
            f"epsilon {epsilon:g}: fit {1e3 * np.median(our_times):.1f} ms against {1e3 * np.median(their_times):.1f} ms "
            f"(ratio {time_ratio:.2f}, bar 1); median excess risk {np.median(ours):.3g} against {np.median(theirs):.3g} "
            f"(ratio {risk_ratio:.2g}, bar 0.1), {FITS} fits"
        )
        met &= time_ratio <= 1.0 and risk_ratio <= 0.1
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
