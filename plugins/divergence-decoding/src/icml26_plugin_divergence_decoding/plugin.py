"""What this plugin declares: specs only, nothing is imported but icml26's spec types."""

from __future__ import annotations

from typing import Any

from icml26 import DatasetSpec, MethodSpec, MetricSpec, Paper, TaskSpec, Value, hookimpl

TASK = "unlearning.language"
PACKAGE = "icml26_plugin_divergence_decoding"

PAPER = Paper(
    title="Divergence Decoding: Inference-Time Unlearning via Auxiliary Models",
    arxiv="2605.31293",
    authors=("Humzah Merchant", "Bradford Levy"),
)

# The paper's learning rates are for models of a billion weights; these are for the tens of thousands of mini-tofu.
TINY: dict[str, Any] = {"lr": 6e-3, "epochs": 30, "warmup": 0.1, "weight_decay": 0.01}
SMALL = {**TINY, "alpha": 1.0}
SMALL_RANK = {**TINY, "rank_k": 10}
SMALL_DISTILLED = {
    **SMALL,
    "distill_lr": 2e-3,
    "distill_epochs": 40,
    "distill_batch_size": 16,
    "distill_accumulation": 1,
}
SMOKE = {"epochs": 2}
LINEAR = {"small": SMALL}


@hookimpl
def icml26_tasks() -> list[TaskSpec]:
    """The task."""
    return [
        TaskSpec(
            name=TASK,
            summary="Make a language model forget some rows of its training data and keep the rest.",
            inputs=f"{PACKAGE}.task:Inputs",
            truth=f"{PACKAGE}.task:Truth",
            output=f"{PACKAGE}.task:Output",
            metrics=("agg", "keyword-forget", "keyword-retain"),
            words={
                "qa": "rows are questions with answers",
                "keywords": "each answer has a known part that gives the fact away",
                "small-base": "the inputs carry a small model of the same vocabulary, to fine-tune auxiliaries from",
                "retrain": "the truth holds a model that was trained without what is to be forgotten",
                "holdout": "the truth holds rows like the forgotten ones that were never trained on",
                "perturbed": "questions have paraphrased answers and wrong ones in the same words",
                "world": "the truth holds questions of general knowledge",
                "knowledge": "the truth holds questions about the texts to be forgotten and to be kept",
                "texts": "rows are running texts",
                "images": "rows are images as sequences of pixel tokens",
                "auxiliaries": "the method steers by auxiliary models, and tells their size",
            },
        )
    ]


def _ours(name: str, target: str, summary: str, **options: Any) -> MethodSpec:
    return MethodSpec(
        name=name,
        task=TASK,
        target=f"{PACKAGE}.methods:{target}",
        summary=summary,
        paper=PAPER,
        default_dataset="mini-tofu",
        reference="target",
        **options,
    )


def _other(name: str, target: str, summary: str, role: Any = "baseline", **options: Any) -> MethodSpec:
    return MethodSpec(
        name=name,
        task=TASK,
        target=f"{PACKAGE}.baseline_methods:{target}",
        summary=summary,
        role=role,
        default_dataset="mini-tofu",
        **options,
    )


@hookimpl
def icml26_methods() -> list[MethodSpec]:
    """Divergence Decoding in its forms, the reference points, the baselines."""
    steering: dict[str, Any] = {"provides": ("auxiliaries",), "metrics": ("auxiliary-share",)}
    trained: dict[str, Any] = {
        "requires": ("small-base",),
        "files": ("forget_auxiliary", "retain_auxiliary"),
        **steering,
    }
    return [
        _ours(
            "divergence-decoding",
            "DivergenceDecoding",
            "Linear form: add alpha times what a retain auxiliary says beyond a forget auxiliary.",
            profiles=LINEAR,
            smoke=SMALL | SMOKE,
            **trained,
        ),
        _ours(
            "divergence-rank",
            "DivergenceRank",
            "Rank form: suppress the k tokens on which the auxiliaries diverge most.",
            profiles={"small": SMALL_RANK},
            smoke=SMALL_RANK | SMOKE,
            **trained,
        ),
        _ours(
            "divergence-ngram",
            "DivergenceNgram",
            "Trigram counts in place of trained auxiliaries.",
            **steering,
        ),
        _ours(
            "divergence-distilled",
            "DivergenceDistilled",
            "The steered distribution distilled into the target's own weights.",
            profiles={"small": SMALL_DISTILLED},
            smoke=SMALL_DISTILLED | SMOKE | {"distill_epochs": 1},
            **trained,
        ),
        _other("target", "Target", "The target as it is: nothing is forgotten.", "reference"),
        _other(
            "retrain",
            "Retrain",
            "The target's base trained without what is to be forgotten.",
            "oracle",
            requires=("retrain",),
        ),
    ]


@hookimpl
def icml26_datasets() -> list[DatasetSpec]:
    """The offline benches."""
    return [
        DatasetSpec(
            name="mini-tofu",
            task=TASK,
            target=f"{PACKAGE}.mini_tofu:MiniTofu",
            summary="Facts about invented persons, and small transformers trained to know them.",
            provides=("qa", "keywords", "small-base", "retrain", "holdout", "perturbed", "world"),
            profile="small",
            smoke={
                "forget": 2,
                "retain": 6,
                "holdout": 2,
                "pretraining": 4,
                "judged_retain": 3,
                "width": 16,
                "small_width": 8,
                "pretraining_epochs": 1,
                "epochs": 2,
            },
        ),
    ]


@hookimpl
def icml26_metrics() -> list[MetricSpec]:
    """What is forgotten, what is kept, and whether membership shows."""

    def metric(name: str, target: str, summary: str, *values: Value, **options: Any) -> MetricSpec:
        return MetricSpec(
            name=name, task=TASK, target=f"{PACKAGE}.metrics:{target}", summary=summary, values=values, **options
        )

    return [
        metric(
            "agg",
            "agg",
            "Agg of the paper: harmonic mean of Mem, Priv and Utility.",
            Value(direction="higher"),
            Value("mem", direction="higher"),
            Value("priv", direction="higher"),
            Value("utility", direction="higher"),
            requires=("retrain", "holdout", "perturbed"),
        ),
        metric(
            "keyword-forget",
            "keyword_forget",
            "Share of answers to forgotten questions that hold the right value.",
            Value(direction="lower"),
            requires=("keywords",),
        ),
        metric(
            "keyword-retain",
            "keyword_retain",
            "Share of answers to retained questions that hold the right value.",
            Value(direction="higher"),
            requires=("keywords",),
        ),
        metric(
            "mia-gap",
            "mia_gap",
            "Distance of the loss attack's AUC from the retrained model's.",
            Value(direction="lower"),
            requires=("retrain", "holdout"),
        ),
        metric(
            "auxiliary-share",
            "auxiliary_share",
            "Parameters of the larger auxiliary over those of the target.",
            Value(direction="lower"),
            requires=("auxiliaries",),
        ),
    ]
