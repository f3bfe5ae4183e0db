"""What this plugin declares: specs only, nothing is imported but icml26's spec types."""

from __future__ import annotations

from typing import Any

from icml26 import DatasetSpec, MethodSpec, MetricSpec, Paper, Provides, TaskSpec, Value, hookimpl

TASK = "attribution.tokens"
PACKAGE = "icml26_plugin_flashtrace"

PAPER = Paper(
    title="Towards Long-Horizon Interpretability: Efficient and Faithful Multi-Token Attribution for Reasoning LLMs",
    arxiv="2602.01914",
    authors=("Wenbo Pan", "Zhichao Liu", "Xianlong Wang", "Haining Yu", "Xiaohua Jia"),
)


@hookimpl
def icml26_tasks() -> list[TaskSpec]:
    """The task."""
    return [
        TaskSpec(
            name=TASK,
            summary="Say how much each token of the prompt had to do with the answer of a language model that reasons first.",
            inputs=f"{PACKAGE}.task:Inputs",
            truth=f"{PACKAGE}.task:Truth",
            output=f"{PACKAGE}.task:Output",
            metrics=("recovery", "mass", "residual-ratio"),
            words={
                "model": "there is a causal language model and its tokenizer, for explainers that run it and for deletion curves",
                "captures": "each example carries the attention and residual streams of its forward pass",
                "gold": "the truth knows which prompt tokens the answer came from",
            },
        )
    ]


def _method(name: str, target: str, summary: str, role: str = "baseline", **options: Any) -> MethodSpec:
    return MethodSpec(
        name=name,
        task=TASK,
        target=f"{PACKAGE}.{target}",
        summary=summary,
        role=role,  # type: ignore[arg-type]
        default_dataset=options.pop("default_dataset", "dag-oracle"),
        **options,
    )


def _on_models(name: str, target: str, summary: str, **options: Any) -> MethodSpec:
    return _method(
        name, target, summary, requires=("model",), default_dataset="tiny-vartrack", reference="ifr", **options
    )


@hookimpl
def icml26_methods() -> list[MethodSpec]:
    """FlashTrace, the token-wise baselines on its kernel, and those that run the model."""
    return [
        _method(
            "flashtrace",
            "methods:FlashTraceMethod",
            "Attribute the whole answer at once, and follow it back through the reasoning in K hops.",
            role="paper",
            paper=PAPER,
            reference="ifr",
        ),
        _method(
            "ifr",
            "methods:IfrMethod",
            "Information flow routes, token by token: one normalised row for each token of the answer.",
            role="reference",
        ),
        _method(
            "ifr-cage",
            "methods:CageMethod",
            "Exhaustive rollout of token-wise scores through every generated token, O(M N).",
            reference="ifr",
        ),
        _method(
            "mean-attention",
            "baseline_methods:MeanAttention",
            "Attention of the answer's tokens, averaged over layers and heads.",
            reference="ifr",
        ),
        _method("random", "baseline_methods:Random", "Uniform random scores: the floor.", reference="ifr"),
        _method(
            "position", "baseline_methods:Position", "The later a prompt token, the higher its score.", reference="ifr"
        ),
        _on_models(
            "integrated-gradients",
            "baseline_methods:IntegratedGradients",
            "Integrated gradients of the answer's log-probability, from end-of-sequence tokens to the input.",
            smoke={"steps": 4},
            extra="captum",
        ),
        _on_models("attnlrp", "baseline_methods:AttnLrp", "AttnLRP: gradient × input with relevance-preserving rules."),
        _on_models(
            "gradient-x-input",
            "baseline_methods:GradientTimesInput",
            "Gradient × input of the answer's log-probability at the embeddings.",
        ),
        _on_models(
            "perturbation",
            "baseline_methods:Perturbation",
            "How much the answer's log-probability falls when a sentence is replaced.",
        ),
        _on_models(
            "clp",
            "baseline_methods:Clp",
            "How much the model's distribution over the answer changes (KL) when a sentence is replaced.",
        ),
    ]


def _with_model(name: str, target: str, summary: str, **options: Any) -> DatasetSpec:
    options = {"provides": ("model",), "files": ("model_path",), **options}
    return DatasetSpec(name=name, task=TASK, target=f"{PACKAGE}.{target}", summary=summary, **options)


@hookimpl
def icml26_datasets() -> list[DatasetSpec]:
    """Made-up forward passes, made-up prompts for real models, and the user's own texts."""
    return [
        DatasetSpec(
            name="dag-oracle",
            task=TASK,
            target=f"{PACKAGE}.dag_oracle:DagOracle",
            summary="Made-up forward passes whose answer reads the reasoning, which reads ten gold prompt tokens; no model.",
            provides=("captures", "gold"),
            smoke={"n_examples": 2},
        ),
        _with_model(
            "tiny-vartrack",
            "datasets:TinyVariableTracking",
            "Variable tracking in symbols, read by a tiny Llama that is trained on it first (about a minute, then cached).",
            provides=("model", "gold"),
            files=(),
            smoke={"n_examples": 2, "steps": 10, "only_correct": False},
        ),
        _with_model(
            "vartrack",
            "datasets:VariableTracking",
            "Generated prompts (after RULER): chains of variables among distractors; the reasoning walks one back.",
            provides=("model", "gold"),
            smoke={"n_examples": 2},
        ),
        _with_model(
            "niah",
            "datasets:Needles",
            "Generated prompts (after RULER): key-value sentences in a haystack, two of which are asked for.",
            provides=("model", "gold"),
            smoke={"n_examples": 2},
        ),
        _with_model(
            "absorb",
            "datasets:Absorb",
            "The prompts of vartrack answered without reasoning: compare, to see what reasoning absorbs.",
            provides=("model", "gold"),
            smoke={"n_examples": 2},
        ),
        _with_model(
            "jsonl",
            "file_datasets:JsonLines",
            "Your own prompts and generations with marked spans, or RULER's files, one JSON object a line.",
            provides=("model", Provides("gold", when={"gold": (True,)})),
            files=("path", "model_path"),
            seeded=False,
            smoke={"max_examples": 2},
        ),
        _with_model(
            "text-file",
            "file_datasets:TextFile",
            "Your own prompt in a text file, with its generation in another one or by the model.",
            files=("path", "generation_path", "model_path"),
            seeded=False,
            smoke={"max_new_tokens": 8},
        ),
    ]


@hookimpl
def icml26_metrics() -> list[MetricSpec]:
    """Recovery, deletion curves, where the mass lies, and what it cost."""
    return [
        MetricSpec(
            name="recovery",
            task=TASK,
            target=f"{PACKAGE}.metrics:recovery",
            values=(
                Value(direction="higher"),
                Value("ceiling"),
                Value("gold-share", direction="higher"),
                Value("without-first", direction="higher"),
            ),
            summary="Share of the gold prompt tokens among the top 10 % of the scores.",
            requires=("gold",),
        ),
        MetricSpec(
            name="mass",
            task=TASK,
            target=f"{PACKAGE}.metrics:mass",
            values=(
                Value("prompt"),
                Value("reasoning"),
                Value("output"),
                Value("later-hops"),
                Value("prompt-growth"),
            ),
            summary="Where the mass of hop 0 lies, and how much of the prompt's mass later hops brought.",
        ),
        MetricSpec(
            name="residual-ratio",
            task=TASK,
            target=f"{PACKAGE}.metrics:residual_ratio",
            values=tuple(Value(f"hop-{k}") for k in range(4)),
            summary="rho_k: the share of hop k's mass that lies on generated tokens.",
        ),
        MetricSpec(
            name="deletion",
            task=TASK,
            target=f"{PACKAGE}.deletion:deletion",
            values=(
                Value("rise", direction="lower"),
                Value("mas", direction="lower"),
                Value("rise-ap", direction="lower"),
                Value("flat"),
            ),
            summary="RISE and MAS: how fast the generation becomes unlikely when prompt tokens are replaced, top scores first.",
            requires=("model",),
            cost="expensive",
        ),
        MetricSpec(
            name="loo-spearman",
            task=TASK,
            target=f"{PACKAGE}.deletion:leave_one_out_correlation",
            values=(Value(direction="higher"),),
            summary="Rank correlation of the scores with leave-one-out effects on the generation's log-probability.",
            requires=("model",),
            cost="expensive",
        ),
        MetricSpec(
            name="cost",
            task=TASK,
            target=f"{PACKAGE}.metrics:cost",
            values=(
                Value(unit="s", direction="lower"),
                Value("forward", unit="s", direction="lower"),
                Value("attribution", unit="s", direction="lower"),
                Value("attribution-cpu", unit="s", direction="lower"),
                Value("peak-memory", unit="bytes", direction="lower"),
            ),
            summary="Wall time of an example by part, processor time of the attribution alone, and peak memory.",
            cost="expensive",
        ),
    ]
