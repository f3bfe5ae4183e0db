"""Choose the defaults of the noisy-gradient-descent baseline on synthetic validation data.

The sets differ from those of the recipe in rows, columns, spectrum and seed. Score of a cell of the grid: geometric mean,
over sets and epsilons, of its excess risk over the best cell's. Run: python benchmarks/tune_gradient_descent.py
"""

import itertools

import numpy as np
from icml26_plugin_ihm.baselines import gradient_descent
from icml26_plugin_ihm.calibration import plan_gradient_descent
from icml26_plugin_ihm.datasets import draw_aniso
from icml26_plugin_ihm.noise import NumpyNoise
from icml26_plugin_ihm.rows import BoundedRows

SETS = [(10_000, 20, 0.5, 101), (10_000, 6, 1.0, 102), (30_000, 25, 0.0, 103)]
EPSILONS = (0.1, 0.3, 1.0, 3.0)
STEPS = (3, 5, 10, 20, 40, 80)
RATES = ("1", "d/2", "d", "2d")
REPEATS = 20


def excess_risk(theta: np.ndarray, gram: np.ndarray, optimum: np.ndarray, n: int) -> float:
    gap = theta - optimum
    return float(np.einsum("ri,ij,rj->r", gap, gram, gap).mean() / n)


def main() -> None:
    cells = list(itertools.product(STEPS, RATES))
    log_ratios = np.zeros(len(cells))
    for (n, d, s, seed), epsilon in itertools.product(SETS, EPSILONS):
        X, y = draw_aniso(n, d, s, np.random.default_rng(seed))
        rows = BoundedRows.from_arrays(X, y)
        moments = rows.moments()
        optimum = np.linalg.solve(moments.gram, moments.correlation)
        risks = []
        for steps, rate in cells:
            value = {"1": 1.0, "d/2": d / 2, "d": float(d), "2d": 2.0 * d}[rate]
            plan = plan_gradient_descent(epsilon, 1.0 / n**2, steps=steps, learning_rate=value)
            theta = gradient_descent(rows, plan, NumpyNoise(np.random.default_rng(0)), n, repeats=REPEATS)
            risks.append(excess_risk(theta, moments.gram, optimum, n))
        log_ratios += np.log(np.array(risks) / min(risks))
    for i in np.argsort(log_ratios):
        steps, rate = cells[i]
        score = np.exp(log_ratios[i] / (len(SETS) * len(EPSILONS)))
        print(f"steps {steps:>3}  rate {rate:>4}  {score:6.2f} times the best cell")


if __name__ == "__main__":
    main()
