"""Choose (T, k_factor) for `iterations="auto"` and `k_factor="auto"` on synthetic validation data.

The sets differ from those of the recipes in rows, columns, spectrum and seed. For each epsilon and ledger: geometric mean,
over sets, of a cell's excess risk over that of the paper's cell (T = 3, factor 6). Run: python benchmarks/tune_mixing.py
"""

import itertools

import numpy as np
from icml26_plugin_ihm.calibration import plan_hessian_mixing
from icml26_plugin_ihm.datasets import draw_aniso
from icml26_plugin_ihm.mixing import iterative_hessian_mixing
from icml26_plugin_ihm.noise import NumpyNoise
from icml26_plugin_ihm.rows import BoundedRows

SETS = [(10_000, 20, 0.5, 101), (10_000, 6, 1.0, 102), (30_000, 25, 0.0, 103)]
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
ITERATIONS = (3, 4, 5, 7)
FACTORS = (3.0, 6.0, 12.0, 24.0, 48.0)
REPEATS = 40


def main() -> None:
    cells = list(itertools.product(ITERATIONS, FACTORS))
    for accounting, epsilon in itertools.product(("paper", "joint"), EPSILONS):
        logs = np.zeros(len(cells))
        for n, d, s, seed in SETS:
            X, y = draw_aniso(n, d, s, np.random.default_rng(seed))
            rows = BoundedRows.from_arrays(X, y)
            moments = rows.moments()
            optimum = np.linalg.solve(moments.gram, moments.correlation)
            for i, (iterations, factor) in enumerate(cells):
                plan = plan_hessian_mixing(
                    d, epsilon, 1.0 / n**2, iterations=iterations, k_factor=factor, accounting=accounting
                )
                noise = NumpyNoise(np.random.default_rng(0))
                gap = iterative_hessian_mixing(rows, plan, noise, repeats=REPEATS, moments=moments).theta - optimum
                logs[i] += np.log(np.einsum("ri,ij,rj->r", gap, moments.gram, gap).mean() / n) / len(SETS)
        logs -= logs[cells.index((3, 6.0))]
        best = np.argsort(logs)[:4]
        text = ", ".join(f"T {cells[i][0]} k {cells[i][1]:g}: {np.exp(logs[i]):.2f}" for i in best)
        print(f"{accounting:<6} epsilon {epsilon:>4g}   {text}", flush=True)


if __name__ == "__main__":
    main()
