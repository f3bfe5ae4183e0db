"""Divergence Decoding in its forms, the reference points, the baselines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from icml26 import MethodSpec, Paper

from icml26_plugin_divergence_decoding.specs import PACKAGE, TASK

PAPER = Paper(
    title="Divergence Decoding: Inference-Time Unlearning via Auxiliary Models",
    arxiv="2605.31293",
    authors=("Humzah Merchant", "Bradford Levy"),
)

# The paper's learning rates are for models of a billion weights; these are for the 1e4 to 1e5 of the offline data sets.
TINY: dict[str, Any] = {"lr": 8e-3, "epochs": 56, "batch_size": 64, "warmup": 0.1}
PIXELS: dict[str, Any] = {"lr": 5e-3, "epochs": 16, "batch_size": 32, "warmup": 0.1}
# The profiles `small` are what one rule chose on seeds 11 to 13 of mini-tofu from twelve points a method: benchmarks/tune.py.
# Only the distillation was not tuned: its options come from a trial on seed 7.
LINEAR = {**TINY, "alpha": 0.5}
RANK = {**TINY, "rank_k": 20}
TEXTS: dict[str, Any] = {"lr": 5e-3, "epochs": 14, "batch_size": 32, "warmup": 0.1}
DISTILLATION: dict[str, Any] = {
    "distill_lr": 2e-3,
    "distill_epochs": 60,
    "distill_batch_size": 16,
    "distill_accumulation": 1,
    "distill_retain_weight": 1.0,
}
DISTILLED = {**LINEAR, **DISTILLATION}
BRIEF = {"epochs": 2}


def _ours(name: str, target: str, summary: str, *, needs_base: bool = True, **options: Any) -> MethodSpec:
    files = ("forget_auxiliary", "retain_auxiliary") if needs_base else ()
    return MethodSpec(
        name=name,
        task=TASK,
        target=f"{PACKAGE}.methods:{target}",
        summary=summary,
        paper=PAPER,
        provides=("auxiliaries",),
        metrics=("auxiliary-share",),
        default_dataset="mini-tofu",
        reference="target",
        files=files,
        **options,
    )


def _other(
    name: str,
    target: str,
    summary: str,
    *,
    role: Literal["baseline", "reference", "oracle"] = "baseline",
    small: dict[str, Any] | None = None,
    **options: Any,
) -> MethodSpec:
    return MethodSpec(
        name=name,
        task=TASK,
        target=f"{PACKAGE}.baseline_methods:{target}",
        summary=summary,
        role=role,
        default_dataset="mini-tofu",
        reference="target" if role == "baseline" else None,
        profiles={} if small is None else {"small": small},
        smoke={} if small is None else small | {"epochs": 1},
        **options,
    )


def methods() -> Iterator[MethodSpec]:
    """All methods."""
    yield _ours(
        "divergence-decoding",
        "DivergenceDecoding",
        "Linear form: add alpha times what a retain auxiliary says beyond a forget auxiliary.",
        profiles={"small": LINEAR, "digits": {**PIXELS, "alpha": 1.0}, "texts": {**TEXTS, "alpha": 1.0}},
        smoke=LINEAR | BRIEF,
    )
    yield _ours(
        "divergence-rank",
        "DivergenceRank",
        "Rank form: suppress the k tokens on which the auxiliaries diverge most.",
        profiles={"small": RANK, "digits": {**PIXELS, "rank_k": 3}, "texts": {**TEXTS, "rank_k": 10}},
        smoke=RANK | BRIEF,
    )
    yield _ours(
        "divergence-ngram",
        "DivergenceNgram",
        "Trigram counts in place of trained auxiliaries.",
        needs_base=False,
    )
    yield _ours(
        "divergence-distilled",
        "DivergenceDistilled",
        "The steered distribution distilled into the target's own weights.",
        profiles={
            "small": DISTILLED,
            "digits": DISTILLATION | PIXELS | {"alpha": 0.65},
            "texts": DISTILLATION | TEXTS | {"alpha": 0.65},
        },
        smoke=DISTILLED | BRIEF | {"distill_epochs": 1},
    )
    yield _other("target", "Target", "The target as it is: nothing is forgotten.", role="reference")
    yield _other(
        "retrain",
        "Retrain",
        "The target's base trained without what is to be forgotten.",
        role="oracle",
        requires=("retrain",),
    )
    yield _other(
        "grad-ascent",
        "GradientAscent",
        "Gradient ascent on what is to be forgotten.",
        small={"epochs": 18, "lr": 0.0005},
    )
    yield _other(
        "grad-diff",
        "GradientDifference",
        "Ascent on what is to be forgotten, descent on what is to be kept.",
        small={"epochs": 30, "lr": 0.001, "retain_weight": 4.0},
    )
    yield _other(
        "npo",
        "Npo",
        "Negative preference optimisation with a loss on what is to be kept.",
        small={"epochs": 30, "lr": 0.003, "retain_weight": 4.0},
    )
    yield _other(
        "uld",
        "Uld",
        "Logit difference: subtract an assistant made of the target's first layers that knows only the forgotten.",
        small={"epochs": 20, "layers": 1, "lr": 0.01, "rank": 32, "strength": 0.9},
    )
    yield _other(
        "whp",
        "Whp",
        "Who's Harry Potter: away from what a model reinforced on the forgotten likes better.",
        small={"epochs": 30, "lr": 0.001, "strength": 24.0},
    )
