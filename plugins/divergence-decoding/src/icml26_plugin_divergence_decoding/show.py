"""What a run leaves to look at: answers before and after, the trade-off over alpha, sampled images."""

from __future__ import annotations

from typing import Any

from icml26 import Problem, RunContext

from icml26_plugin_divergence_decoding import figures, tables
from icml26_plugin_divergence_decoding.task import QA, Inputs, Output, Truth


def visualize(problem: Problem[Inputs, Truth], output: Output, ctx: RunContext) -> None:
    """Write the artifacts that fit the problem: ``generations.html``, ``tradeoff.svg``, ``samples.png``."""
    truth = problem.truth
    models = {"before": truth.target, "after": output.model}
    if truth.retrain is not None:
        models["retrained without"] = truth.retrain
    _write_generations(truth, models, ctx)
    if truth.images is not None:
        from icml26_plugin_divergence_decoding.image_metrics import sample

        drawn = {name: sample(model, 16, ctx.torch_seed()) for name, model in models.items()}
        figures.image_figure(ctx.artifact("samples.png"), drawn)
    _write_tradeoff(truth, output.model, models, ctx)


def _write_generations(truth: Truth, models: dict[str, Any], ctx: RunContext) -> None:
    parts = {
        "To be forgotten": [row for row in truth.forget if isinstance(row, QA)],
        "To be kept": [row for row in truth.retain if isinstance(row, QA)],
        "General knowledge": [row for row in truth.world if isinstance(row, QA)],
    }
    path = ctx.artifact("generations.html") if any(parts.values()) or truth.knowledge else None
    if path is not None and any(parts.values()):
        tables.generations_table(path, models, parts, truth.tokenizer, truth.format)
    elif path is not None and truth.knowledge is not None:
        asked = truth.knowledge
        continued = {"To be forgotten: beginnings and how they go on": asked.verbatim}
        tables.generations_table(path, models, continued, truth.tokenizer, asked.verbatim_format, continued=True)


def _write_tradeoff(truth: Truth, model: Any, models: dict[str, Any], ctx: RunContext) -> None:
    from icml26_plugin_divergence_decoding.model import DivergenceModel
    from icml26_plugin_divergence_decoding.ngram import NGramModel

    curves = {}
    if isinstance(model, DivergenceModel):
        # Scores of n-gram models are probabilities: the same effect needs a larger strength.
        scale = 10.0 if isinstance(model.forget, NGramModel) else 1.0
        points = figures.sweep(model, truth, [scale * alpha for alpha in figures.ALPHAS])
        curves["Divergence Decoding, linear"] = points
    marks = {name: figures.point(found, truth, "") for name, found in models.items()}
    keywords = all(isinstance(row, QA) and row.keyword is not None for row in truth.forget)
    judged = "share of right answers" if keywords else "mean token probability"
    figures.tradeoff_figure(ctx.artifact("tradeoff.svg"), curves, marks, judged)
