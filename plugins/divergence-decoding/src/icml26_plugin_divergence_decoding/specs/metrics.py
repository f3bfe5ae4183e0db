"""What is forgotten, what is kept, whether membership shows, and what steering costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from icml26 import MetricSpec, Value

from icml26_plugin_divergence_decoding.specs import PACKAGE, TASK

LOWER, HIGHER = Value(direction="lower"), Value(direction="higher")
JUDGED = ("retrain", "holdout", "perturbed")


def _lower(*names: str) -> tuple[Value, ...]:
    return tuple(Value(name, direction="lower") for name in names)


def _higher(*names: str) -> tuple[Value, ...]:
    return tuple(Value(name, direction="higher") for name in names)


def _neither(*names: str, unit: str | None = None) -> tuple[Value, ...]:
    return tuple(Value(name, unit=unit) for name in names)


def _metric(name: str, target: str, summary: str, *values: Value, **options: Any) -> MetricSpec:
    return MetricSpec(name=name, task=TASK, target=f"{PACKAGE}.{target}", summary=summary, values=values, **options)


def metrics() -> Iterator[MetricSpec]:
    """All metrics."""
    yield _metric(
        "token-loss",
        "metrics:token_loss",
        "Negative log-likelihood a token, of what was to be forgotten, kept, and never seen.",
        *_neither("forget", "retain", "holdout", unit="nats"),
    )
    yield _metric(
        "agg",
        "metrics:agg",
        "Aggregate of the paper: harmonic mean of Mem, Priv and Utility.",
        HIGHER,
        *_higher("mem", "priv", "utility"),
        requires=JUDGED,
    )
    yield _metric(
        "keyword-forget",
        "metrics:keyword_forget",
        "Share of answers to forgotten questions that hold the right value.",
        LOWER,
        requires=("keywords",),
    )
    yield _metric(
        "keyword-retain",
        "metrics:keyword_retain",
        "Share of answers to retained questions that hold the right value.",
        HIGHER,
        requires=("keywords",),
    )
    yield _metric(
        "keyword-tokens",
        "metrics:keyword_tokens",
        "Exact memorisation of the values' tokens only, without the guessable words around them.",
        *_lower("forget"),
        *_higher("retain"),
        requires=("keywords",),
    )
    yield _metric(
        "mia-gap",
        "metrics:mia_gap",
        "Distance of the loss attack's AUC from the retrained model's.",
        LOWER,
        requires=("retrain", "holdout"),
    )
    yield _metric(
        "mia",
        "metrics:mia",
        "AUC of four membership attacks, 1: what was to be forgotten looks like training data; far below 0.5 it is "
        "over-unlearned.",
        *_neither("loss", "zlib", "min-k", "min-k-plus-plus", "over-unlearned"),
        requires=("holdout",),
    )
    yield _metric(
        "privleak",
        "metrics:privleak",
        "PrivLeak: 0 like the retrained model, -100 fully leaked, positive over-unlearned.",
        Value(unit="%"),
        requires=("holdout",),
    )
    yield _metric(
        "forgetting",
        "metrics:forgetting",
        "What is left of forgotten answers: probability, exact memorisation, extraction strength, ROUGE-L.",
        *_neither("prob", "em", "es", "es-floor", "rouge", "paraphrase-prob"),
        requires=("qa",),
    )
    yield _metric(
        "retaining",
        "metrics:retaining",
        "What is kept: probability and ROUGE-L of retained answers, and of world facts.",
        *_higher("prob", "rouge", "world-prob"),
        requires=("qa",),
    )
    yield _metric(
        "truth-ratio",
        "metrics:truth_ratio",
        "Truth ratios of forgotten (1: indifferent) and of retained questions (1: truthful).",
        *_higher("forget", "retain"),
        requires=("perturbed",),
    )
    yield _metric(
        "forget-quality",
        "metrics:forget_quality",
        "p-value of the KS test between truth ratios of this and of the retrained model.",
        HIGHER,
        requires=("perturbed", "retrain"),
    )
    yield _metric(
        "model-utility",
        "metrics:model_utility",
        "Harmonic mean of probability, ROUGE-L and truth ratio on retained and world questions.",
        HIGHER,
        requires=("qa",),
    )
    yield _metric(
        "repetition",
        "metrics:repetition",
        "Share of repeated trigrams in greedy answers to forgotten and to retained questions.",
        *_lower("", "retain"),
        requires=("qa",),
    )
    yield _metric(
        "verbmem",
        "metrics:verbmem",
        "MUSE's VerbMem: ROUGE-L F1 of continuations of forgotten texts.",
        LOWER,
        requires=("verbatim",),
    )
    yield _metric(
        "knowmem",
        "metrics:knowmem",
        "MUSE's KnowMem: ROUGE-L recall of answers about forgotten and about kept texts.",
        *_lower("forget"),
        *_higher("retain"),
        requires=("knowledge",),
    )
    yield _metric(
        "muse-distance",
        "metrics:muse_distance",
        "Distance to the retrained model in what is forgotten and what is kept, times 100.",
        *_lower("verbatim", "knowledge"),
        requires=("knowledge", "verbatim", "retrain"),
    )
    yield _metric(
        "image-loss",
        "image_metrics:image_loss",
        "Loss on unseen images of the forgotten class and of kept ones, and how far it rose.",
        *_neither("forget", "retain", unit="nats"),
        *_higher("gap-share"),
        *_lower("retain-excess"),
        requires=("images",),
    )
    yield _metric(
        "class-share",
        "image_metrics:class_share",
        "Share of sampled images that a classifier takes for the forgotten class.",
        *_lower("", "relative"),
        requires=("images",),
        cost="expensive",
    )
    yield _metric(
        "auxiliary-share",
        "steering_metrics:auxiliary_share",
        "Parameters of the larger auxiliary over those of the target.",
        LOWER,
        requires=("auxiliaries",),
    )
