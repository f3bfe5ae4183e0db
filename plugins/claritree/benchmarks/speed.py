"""Speed beside the authors' program, STreeD and linear-tree, in one run: paired repetitions, medians of ratios.

    python benchmarks/speed.py [--pairs 7] [--json FILE] [--only official,streed,large,predict,compile,linear-tree]

`claritree` (the authors' package; building it needs the Eigen headers), `pystreed` and `linear-tree` (with
scikit-learn < 1.6, so in an environment of its own) are measured where they import; else the table says "not measured".
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from icml26_plugin_claritree import CLARITreeRegressor
from icml26_plugin_claritree.datasets import plxor

LAMBDA, KAPPA = 1e-3, 1e-4


def smooth(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of three of p normal columns, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2]) + 0.3 * rng.normal(size=n)


def crossed(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Slopes that depend on the signs of two columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    y = np.where(X[:, 0] * X[:, 1] > 0, X[:, 2], -X[:, 3]) + np.abs(X[:, 4]) + 0.3 * rng.normal(size=n)
    return X, y


CASES: dict[str, tuple[tuple[np.ndarray, np.ndarray], int, int]] = {
    "airfoil-like, n=1200, p=5": (smooth(1200, 5), 4, 20),
    "plxor, n=2000, p=6": (plxor(2000, np.random.default_rng(0)), 3, 19),
    "n=5000, p=5": (smooth(5000, 5), 4, 20),
}


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what was returned."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def ours(X: np.ndarray, y: np.ndarray, depth: int, n_thresholds: int, **options: Any) -> CLARITreeRegressor:
    """A full fit."""
    return CLARITreeRegressor(depth, LAMBDA, KAPPA, n_thresholds, **options).fit(X, y)


def against_official(pairs: int) -> list[dict[str, Any]]:
    """Full fits beside the authors' C++ program, one and two threads of ours to its one."""
    if importlib.util.find_spec("clari_tree") is None:
        return [{"case": "authors' program", "result": "not measured: pip install claritree (needs the Eigen headers)"}]
    import clari_tree

    rows = []
    for name, ((X, y), depth, n_thresholds) in CASES.items():
        for engine, threads in (("binned", 1), ("binned", 2), ("rank1", 1)):
            ours(X, y, depth, n_thresholds, engine=engine, n_jobs=threads)  # warm
            ratios, mine, theirs, difference = [], [], [], 0.0
            for _ in range(pairs if engine == "binned" else 3):
                a, model = timed(lambda: ours(X, y, depth, n_thresholds, engine=engine, n_jobs=threads))  # noqa: B023
                official = clari_tree.CLARITree(KAPPA, depth, LAMBDA, n_thresholds, "quantile", False, 0)
                b, objective = timed(lambda: official.fit(X, y))  # noqa: B023
                ratios.append(b / a)
                mine.append(a)
                theirs.append(b)
                difference = model.objective_ / objective - 1
            rows.append(
                {
                    "case": name,
                    "engine": f"{engine}, {threads} thread{'s' * (threads > 1)}",
                    "ours_s": statistics.median(mine),
                    "theirs_s": statistics.median(theirs),
                    "ratio": statistics.median(ratios),
                    "least_ratio": min(ratios),
                    "pairs": len(ratios),
                    "objective_difference": difference,
                }
            )
            print(rows[-1], flush=True)
    return rows


def against_streed(pairs: int, limit: float) -> list[dict[str, Any]]:
    """Fit seconds and test R2 beside pystreed, stopped at the limit."""
    if importlib.util.find_spec("pystreed") is None:
        return [{"case": "STreeD", "result": "not measured: pip install pystreed"}]
    from pystreed import STreeDPiecewiseLinearRegressor

    X, y = plxor(2000, np.random.default_rng(0))
    X_test, y_test = plxor(2000, np.random.default_rng(1))
    ours(X, y, 3, 19)
    rows = []
    for simple in (False, True):
        ratios, mine, theirs, scores = [], [], [], []
        for _ in range(pairs):
            a, model = timed(lambda: ours(X, y, 3, 19))
            rival = STreeDPiecewiseLinearRegressor(
                simple=simple,
                max_depth=3,
                cost_complexity=LAMBDA,
                ridge_penalty=KAPPA,
                lasso_penalty=0.0 if simple else 1e-3,
                n_thresholds=19,
                min_leaf_node_size=5 if simple else 30,
                time_limit=limit,
            )
            b, _ = timed(lambda: rival.fit(X, y))  # noqa: B023
            ratios.append(b / a)
            mine.append(a)
            theirs.append(b)
            scores.append(rival.score(X_test, y_test))
        rows.append(
            {
                "case": f"STreeD{'-S' if simple else ''}, plxor, depth 3, limit {limit:g} s",
                "ours_s": statistics.median(mine),
                "theirs_s": statistics.median(theirs),
                "ratio": statistics.median(ratios),
                "pairs": pairs,
                "our_test_r2": model.score(X_test, y_test),
                "their_test_r2": statistics.median(scores),
                "their_optimum_proved": bool(rival.fit_result.is_optimal()),
            }
        )
        print(rows[-1], flush=True)
    return rows


def against_linear_tree(pairs: int) -> list[dict[str, Any]]:
    """Greedy fits beside linear-tree, which works below scikit-learn 1.6 only."""
    import sklearn

    if importlib.util.find_spec("lineartree") is None or tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 6):
        return [{"case": "linear-tree", "result": "not measured: needs linear-tree and scikit-learn<1.6"}]
    from lineartree import LinearTreeRegressor
    from sklearn.linear_model import Ridge

    rows = []
    for name, ((X, y), depth, n_thresholds) in CASES.items():
        ours(X, y, depth, n_thresholds, search="greedy")
        ratios = []
        for _ in range(pairs):
            a, _ = timed(lambda: ours(X, y, depth, n_thresholds, search="greedy"))  # noqa: B023
            rival = LinearTreeRegressor(
                Ridge(KAPPA * len(y)), max_depth=depth, max_bins=n_thresholds, min_samples_leaf=5 * X.shape[1]
            )
            b, _ = timed(lambda: rival.fit(X, y))  # noqa: B023
            ratios.append(b / a)
        rows.append(
            {
                "case": f"linear-tree, greedy, {name}",
                "ratio": statistics.median(ratios),
                "ours_s": a,
                "theirs_s": b,
                "pairs": pairs,
            }
        )
        print(rows[-1], flush=True)
    return rows


CHILD = """
import json, time
import numpy as np
from icml26_plugin_claritree import CLARITreeRegressor
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 4))
import numba
wall, cpu = time.perf_counter(), time.process_time()
CLARITreeRegressor(3).fit(X, X[:, 0] * X[:, 1])
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))
"""


def first_call() -> list[dict[str, Any]]:
    """The first fit of a fresh process: with an empty cache of compiled code, then with a full one."""
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for state in ("compiles", "from cache"):
            done = subprocess.run(
                [sys.executable, "-c", CHILD],
                env={**os.environ, "NUMBA_CACHE_DIR": cache},
                capture_output=True,
                text=True,
                check=True,
            )
            wall, cpu = json.loads(done.stdout)
            rows.append({"case": f"first fit of a process, {state}", "ours_s": wall, "cpu_s": cpu})
            print(rows[-1], flush=True)
    return rows


def large() -> list[dict[str, Any]]:
    """100,000 rows, 20 columns, depth 4, in a fresh process so that the peak of memory is its own."""
    code = (
        "import json, resource, sys; sys.path.insert(0, sys.argv[1]); import speed\n"
        "import numpy as np\n"
        "speed.ours(*speed.crossed(2000, 20), 2, 20)\n"
        "s, m = speed.timed(lambda: speed.ours(*speed.crossed(100_000, 20), 4, 20, n_jobs=int(sys.argv[2])))\n"
        "print(json.dumps([s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, m.n_leaves_]))"
    )
    rows = []
    for threads in (1, 2):
        here = str(Path(__file__).parent)
        done = subprocess.run(
            [sys.executable, "-c", code, here, str(threads)], capture_output=True, text=True, check=True
        )
        seconds, gib, leaves = json.loads(done.stdout.splitlines()[-1])
        rows.append(
            {
                "case": f"100,000 x 20, depth 4, T 20, {threads} thread{'s' * (threads > 1)}",
                "ours_s": seconds,
                "peak_gib": gib,
                "leaves": leaves,
            }
        )
        print(rows[-1], flush=True)
    return rows


def prediction(pairs: int) -> list[dict[str, Any]]:
    """A million rows of six columns."""
    model = ours(*plxor(2000, np.random.default_rng(0)), 3, 19)
    X, _ = plxor(1_000_000, np.random.default_rng(2))
    seconds = [timed(lambda: model.predict(X))[0] for _ in range(pairs)]
    rows = [{"case": "predict 1,000,000 x 6, 8 leaves", "ours_s": statistics.median(seconds), "pairs": pairs}]
    print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--limit", type=float, default=40.0, help="seconds that STreeD gets")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="compile,official,linear-tree,predict,large,streed")
    options = parser.parse_args()
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "compile": first_call,
        "official": lambda: against_official(options.pairs),
        "linear-tree": lambda: against_linear_tree(options.pairs),
        "predict": lambda: prediction(options.pairs),
        "large": large,
        "streed": lambda: against_streed(options.pairs, options.limit),
    }
    rows: list[dict[str, Any]] = []
    for part in options.only.split(","):
        rows += parts[part]()
    report = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "rows": rows,
    }
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
