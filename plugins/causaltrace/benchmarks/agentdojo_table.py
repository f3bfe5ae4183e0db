"""The table of all methods on a folder of labelled traces, each trace judged once, by the fold that left its user task out.

``python -m icml26_plugin_causaltrace.agentdojo_runs runs/`` writes AgentDojo's own run files with scripted agents; then
``python benchmarks/agentdojo_table.py runs/``. Replays (``python -m icml26_plugin_causaltrace.agentdojo_replay x.jsonl``)
can be judged as well.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from icml26 import RunContext
from icml26_plugin_causaltrace import methods
from icml26_plugin_causaltrace.datasets import Traces
from icml26_plugin_causaltrace.metrics import auprc, auroc, detection, llm_calls
from icml26_plugin_causaltrace.task import Output, Truth, Verdict
from icml26_plugin_causaltrace.trace import Trace

ROWS = {
    "causaltrace": (methods.CausalMethod, {}),
    "causaltrace, tau 0.4": (methods.CausalMethod, {"tau": 0.4}),
    "causaltrace, deterministic": (methods.CausalMethod, {"mode": "det"}),
    "causaltrace-supervised": (methods.SupervisedMethod, {}),
    "supervised without causal features": (methods.SupervisedMethod, {"causal": False}),
    "keyword": (methods.KeywordMethod, {}),
    "tfidf-lr": (methods.TfidfMethod, {}),
    "reachability": (methods.ReachabilityMethod, {}),
    "threshold": (methods.ThresholdMethod, {}),
}


class Collected:
    """Verdicts that were made already, by trace."""

    def __init__(self, verdicts: dict[int, Verdict]) -> None:
        self.verdicts = verdicts

    def judge(self, trace: Trace) -> Verdict:
        return self.verdicts[id(trace)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    config = Traces.Config(path=options.path, labelled=True, n_folds=options.folds)
    problems = [Traces(config).load(RunContext(seed=fold, stream=0)) for fold in range(options.folds)]
    traces = tuple(t for p in problems for t in p.truth.traces)
    labels = tuple(y for p in problems for y in p.truth.labels or ())
    whole = Truth(traces, labels)
    kinds = sorted({y.kind for y in labels})
    print(f"{len(traces)} traces, {sum(y.attack for y in labels)} attacks, {len({y.group for y in labels})} user tasks")
    for name, (method, options_) in ROWS.items():
        verdicts: dict[int, Verdict] = {}
        for fold, problem in enumerate(problems):
            output = method(method.Config(**options_)).run(problem.inputs, RunContext(seed=fold))
            verdicts.update(
                {id(t): v for t, v in zip(problem.truth.traces, output.verdicts(problem.truth.traces), strict=True)}
            )
        pooled = Output(Collected(verdicts))
        found = detection(pooled, whole)
        rates = {
            k: float(np.mean([verdicts[id(t)].is_attack for t, y in zip(traces, labels, strict=True) if y.kind == k]))
            for k in kinds
        }
        row = {
            "f1": found[""],
            **{k: found[k] for k in ("precision", "recall", "fpr")},
            "auroc": auroc(pooled, whole),
            "auprc": auprc(pooled, whole),
            "llm": llm_calls(pooled, whole),
            **rates,
        }
        if options.json:
            print(json.dumps({"method": name, **row}))
        else:
            print(f"{name:36s}" + "  ".join(f"{k} {v:.3f}" for k, v in row.items()))


if __name__ == "__main__":
    main()
