"""What this plugin declares: specs only, nothing is imported but icml26's spec types."""

from __future__ import annotations

from typing import Any, Literal

from icml26 import DatasetSpec, MethodSpec, MetricSpec, Paper, TaskSpec, hookimpl

from icml26_plugin_subspace_sae import specs_data

TASK = "dictionaries.activations"
PACKAGE = "icml26_plugin_subspace_sae"

PAPER = Paper(
    title="Dimensional Collapse in Transformer Attention Outputs: A Challenge for Sparse Dictionary Learning",
    arxiv="2508.16929",
    authors=("Junxuan Wang", "Xuyang Ge", "Wentao Shu", "Zhengfu He", "Xipeng Qiu"),
)

# 200 steps of 256 rows in 64 dimensions: the paper's schedule in shares of the run, its dead threshold (10M of 300M to 800M
# tokens) as about a fifth of it, and a larger step.
SMALL: dict[str, Any] = {
    "n_features": 2048,
    "k": 4,
    "batch_size": 256,
    "steps": 200,
    "lr": 1e-3,
    "warmup": 0.05,
    "final_lr": 0.0,
    "dead_threshold": 10_000,
}
SMOLLM2: dict[str, Any] = {
    "n_features": 9216,
    "k": 32,
    "batch_size": 512,
    "epochs": 4.0,
    "lr": 1e-3,
    "warmup": 0.05,
    "final_lr": 0.0,
    "dead_threshold": 30_000,
}
SMOKE: dict[str, Any] = {
    "n_features": 64,
    "k": 4,
    "batch_size": 128,
    "steps": 12,
    "lr": 1e-3,
    "warmup": 0.1,
    "dead_threshold": 256,
    "init_rows": 1024,
}


@hookimpl
def icml26_tasks() -> list[TaskSpec]:
    """The task."""
    return [
        TaskSpec(
            name=TASK,
            summary="Learn a sparse dictionary of a model's activations.",
            inputs=f"{PACKAGE}.task:Inputs",
            truth=f"{PACKAGE}.task:Truth",
            output=f"{PACKAGE}.task:Output",
            metrics=("dead-fraction", "fvu", "l0"),
            words={
                "true-features": "the truth holds the directions that the data were made of",
                "model": "the truth can put reconstructions back into the model",
                "initial-decoder": "the method keeps the decoder that training began with",
            },
        )
    ]


def _trained(
    name: str,
    target: str,
    summary: str,
    *,
    role: Literal["paper", "baseline", "reference"] = "baseline",
    paper: Paper | None = None,
    small: dict[str, Any] | None = None,
    smollm2: dict[str, Any] | None = None,
) -> MethodSpec:
    return MethodSpec(
        name=name,
        task=TASK,
        target=f"{PACKAGE}.methods:{target}",
        summary=summary,
        role=role,
        paper=paper,
        provides=("initial-decoder",),
        metrics=("subspace-share", "feature-recall", "mechanism"),
        default_dataset="lowrank-sparse",
        reference=None if role == "reference" else "topk-sae",
        profiles={"small": SMALL | (small or {}), "smollm2": SMOLLM2 | (smollm2 or {})},
        smoke=SMOKE,
    )


@hookimpl
def icml26_methods() -> list[MethodSpec]:
    """The paper's method, its ablations, and what it is compared with."""
    return [
        _trained(
            "subspace-sae",
            "SubspaceSae",
            "A top-k SAE whose features start inside the active subspace, trained with a sparse-aware Adam.",
            role="paper",
            paper=PAPER,
        ),
        _trained(
            "topk-sae", "TopKSae", "A top-k SAE with the same start, but for the subspace, and Adam.", role="reference"
        ),
        _trained("topk-auxk", "TopKAuxK", "A top-k SAE whose dead features are trained on the residual (AuxK)."),
        _trained("batchtopk", "BatchTopKSae", "An SAE that keeps the k·B strongest codes of a batch of B rows."),
        _trained("relu-l1", "ReluL1", "A ReLU SAE with an L1 penalty, optionally with resampling of dead features."),
        _trained("jumprelu", "JumpReluSae", "A JumpReLU SAE with thresholds that are learnt."),
        _trained("asi-only", "AsiOnly", "Ablation: the active subspace at the start, plain Adam."),
        _trained("sparseadam-only", "SparseAdamOnly", "Ablation: the sparse-aware Adam from a random start."),
        *specs_data.baselines(),
    ]


@hookimpl
def icml26_datasets() -> list[DatasetSpec]:
    """Where activations come from."""
    return specs_data.datasets()


@hookimpl
def icml26_metrics() -> list[MetricSpec]:
    """What is measured of a dictionary."""
    return specs_data.metrics()
