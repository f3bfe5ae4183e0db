"""Grids of the baselines on mini-tofu, on seeds that are not reported: every point is printed, the best by mean Agg named.

    python benchmarks/tune_baselines.py --seeds 11 12 --methods grad-diff npo

The small profiles of the plugin come from here. Training a data set's models is cached by core, as in a run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from typing import Any

import icml26
import numpy as np
import torch
from icml26 import Problem, RunContext
from icml26_plugin_divergence_decoding import baseline_methods
from icml26_plugin_divergence_decoding.evaluation import evaluate
from icml26_plugin_divergence_decoding.metrics import agg
from icml26_plugin_divergence_decoding.task import Output

Point = dict[str, Any]


def product(**options: list[Any]) -> list[Point]:
    """All combinations of options."""
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]


GRIDS: dict[str, tuple[str, list[Point]]] = {
    "grad-ascent": ("GradientAscent", product(lr=[3e-4, 1e-3, 3e-3], epochs=[3, 8])),
    "grad-diff": ("GradientDifference", product(lr=[1e-3, 3e-3], epochs=[5, 15, 30])),
    "npo": ("Npo", product(lr=[1e-3, 3e-3], epochs=[5, 15, 30])),
    "uld": ("Uld", product(lr=[1e-2, 2e-2], epochs=[20], layers=[1], rank=[32], strength=[0.75, 0.9, 1.2])),
    "whp": ("Whp", product(lr=[1e-3, 3e-3], epochs=[10], strength=[5.0, 10.0, 20.0])),
}


def score(output: Output, problem: Problem[Any, Any]) -> dict[str, float]:
    """Agg and its parts, fval, rval, the loss attack's AUC."""
    found = evaluate(output.model, problem.truth)
    values = agg(output, problem.truth)
    return {
        "agg": values[""],
        **{name: values[name] for name in ("mem", "priv", "utility")},
        "fval": found.forget.keyword_share,
        "rval": found.retain.keyword_share,
        "auc": found.aucs["loss"],
    }


def main() -> None:
    """Run the grids."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12])
    parser.add_argument("--methods", nargs="+", default=list(GRIDS), choices=list(GRIDS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[dict[str, float]]] = {}
    for seed in options.seeds:
        problem = icml26.load_dataset("divergence-decoding/mini-tofu", seed=seed)
        for name, model in (("target", problem.truth.target), ("retrain", problem.truth.retrain)):
            report(name, seed, {}, score(Output(model), problem), 0.0)
        for name in options.methods:
            target, grid = GRIDS[name]
            for point in grid:
                began = time.process_time()
                method = getattr(baseline_methods, target)
                output = method(method.Config(**point)).run(problem.inputs, RunContext(seed))
                values = score(output, problem)
                found.setdefault(f"{name} {json.dumps(point)}", []).append(values)
                report(name, seed, point, values, time.process_time() - began)
    for name in options.methods:
        means = {key: np.mean([v["agg"] for v in values]) for key, values in found.items() if key.split()[0] == name}
        best = max(means, key=lambda key: means[key])
        sys.stdout.write(f"best of {len(means)} by mean Agg {means[best]:.3f}: {best}\n")


def report(name: str, seed: int, point: Point, values: dict[str, float], seconds: float) -> None:
    """One line of the table."""
    shown = " ".join(f"{key} {value:.3f}" for key, value in values.items())
    sys.stdout.write(f"seed {seed} {name} {json.dumps(point)} {shown} cpu {seconds:.1f}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
