"""What this plugin declares: specs only, nothing is imported but icml26's spec types."""

from __future__ import annotations

from typing import Any

from icml26 import DatasetSpec, MethodSpec, MetricSpec, Paper, Provides, TaskSpec, Value, hookimpl

TASK = "agents.injection-detection"
PACKAGE = "icml26_plugin_causaltrace"

PAPER = Paper(
    title="Causal Detection of Multi-Step LLM Agent Attacks",
    openreview="Kb2m543agS",
    authors=("Viraaji Mothukuri", "Reza M. Parizi"),
)
CHAIN_METRICS = ("source-accuracy", "sink-accuracy", "chain-recall", "edge-recovery")


@hookimpl
def icml26_tasks() -> list[TaskSpec]:
    """The task."""
    return [
        TaskSpec(
            name=TASK,
            summary="Say whether text that somebody planted made an agent do harm, and which text did.",
            inputs=f"{PACKAGE}.task:Inputs",
            truth=f"{PACKAGE}.task:Truth",
            output=f"{PACKAGE}.task:Output",
            metrics=("f1", "auroc", "alarm-rate"),
            words={
                "labels": "the traces to judge are labelled",
                "training": "labelled traces of both classes to learn from",
                "chains": "the truth knows the injected step, the harmful calls and the edges between them",
                "explains": "the method names source, call and chain",
                "edges": "the method returns a typed graph",
            },
        )
    ]


def _method(name: str, target: str, summary: str, role: str = "baseline", **options: Any) -> MethodSpec:
    return MethodSpec(
        name=name,
        task=TASK,
        target=f"{PACKAGE}.methods:{target}",
        summary=summary,
        role=role,  # type: ignore[arg-type]
        default_dataset="synthetic-office",
        **options,
    )


@hookimpl
def icml26_methods() -> list[MethodSpec]:
    """The detectors."""
    explains = {"provides": ("explains", "edges"), "metrics": (*CHAIN_METRICS, "llm-calls"), "files": ("policy",)}
    return [
        _method(
            "causaltrace",
            "CausalMethod",
            "Counterfactual effect of untrusted text on each harmful call; no training, no LLM.",
            role="paper",
            paper=PAPER,
            reference="keyword",
            **explains,
        ),
        _method(
            "causaltrace-supervised",
            "SupervisedMethod",
            "Random forest on graph and counterfactual features.",
            role="paper",
            paper=PAPER,
            reference="keyword",
            requires=("training",),
            extra=None,
            smoke={"n_estimators": 20},
            **explains,
        ),
        _method(
            "causaltrace-ensemble",
            "EnsembleMethod",
            "The authors' weighted vote: counterfactual, mechanism, probabilistic, and the forest when there is training.",
            role="paper",
            paper=PAPER,
            reference="keyword",
            smoke={"n_estimators": 20},
            **explains,
        ),
        _method(
            "keyword", "KeywordMethod", "Phrases that injections are known for, in tool results.", role="reference"
        ),
        _method(
            "tfidf-lr",
            "TfidfMethod",
            "TF-IDF of tool results and logistic regression.",
            requires=("training",),
            reference="keyword",
        ),
        _method(
            "reachability",
            "ReachabilityMethod",
            "Any flow from an untrusted result into a harmful call.",
            provides=("edges",),
            files=("policy",),
            reference="keyword",
        ),
        _method(
            "threshold",
            "ThresholdMethod",
            "The authors' rules on depth, domains, bottlenecks and unused state.",
            provides=("edges",),
            files=("policy",),
            reference="keyword",
        ),
    ]


@hookimpl
def icml26_datasets() -> list[DatasetSpec]:
    """Synthetic, AgentDojo, the user's own."""
    labelled = {"labelled": (True,)}
    return [
        DatasetSpec(
            name="synthetic-office",
            task=TASK,
            target=f"{PACKAGE}.datasets:Synthetic",
            summary="Made-up office agents: six kinds of traces, eleven attack templates, memory and hand-over chains.",
            provides=("labels", "training", "chains"),
            smoke={"n_tasks": 16},
        ),
        DatasetSpec(
            name="causaltrace-mini",
            task=TASK,
            target=f"{PACKAGE}.datasets:Mini",
            summary="Thirty hand-written sessions: OpenAI and Anthropic messages, OpenTelemetry spans, our lines; no training.",
            provides=("labels", "chains"),
            seeded=False,
        ),
        DatasetSpec(
            name="agentdojo-replay",
            task=TASK,
            target=f"{PACKAGE}.datasets:AgentDojoReplay",
            summary="AgentDojo v1.2.2's ground-truth calls replayed, attacked and benign: 1,261 traces; a fold per seed.",
            provides=("labels", "training", "chains"),
            smoke={"suites": ["banking"], "injections_per_task": 1},
            extra="agentdojo",
            license="MIT",
            source="https://github.com/ethz-spylab/agentdojo",
        ),
        DatasetSpec(
            name="traces",
            task=TASK,
            target=f"{PACKAGE}.datasets:Traces",
            summary="Your AgentDojo runs, chat messages, OpenTelemetry spans, Inspect logs or CausalBench sessions.",
            provides=(
                Provides("labels", when=labelled),
                Provides("chains", when={"labelled": (True,), "chains": (True,)}),
                Provides("training", when={"labelled": (True,), "n_folds": tuple(range(2, 101))}),
            ),
            seeded=False,
            files=("path",),
        ),
    ]


def _metric(name: str, target: str, *values: Value, **options: Any) -> MetricSpec:
    return MetricSpec(name=name, task=TASK, target=f"{PACKAGE}.metrics:{target}", values=values, **options)


@hookimpl
def icml26_metrics() -> list[MetricSpec]:
    """Detection, localisation, cost."""
    share = "share"
    chains = {"requires": ("chains", "explains")}
    return [
        _metric(
            "f1",
            "detection",
            Value("", share, "higher"),
            Value("precision", share, "higher"),
            Value("recall", share, "higher"),
            Value("fpr", share, "lower"),
            requires=("labels",),
            summary="F1 of the alarms; precision, recall, false positive rate.",
        ),
        _metric(
            "auroc", "auroc", Value("", share, "higher"), requires=("labels",), summary="Area under the ROC curve."
        ),
        _metric("auprc", "auprc", Value("", share, "higher"), requires=("labels",), summary="Average precision."),
        _metric(
            "alarm-rate",
            "alarm_rates",
            Value("a", share, "higher"),
            *(Value(k, share, "lower") for k in ("b0", "b1", "b2", "b3", "b4")),
            requires=("labels",),
            summary="Share of alarms by kind of trace: a attack, b0 clean, b1 ignored, b2/b3 asked for by the user, b4 quoted.",
        ),
        _metric(
            "source-accuracy",
            "source_accuracy",
            Value("", share, "higher"),
            **chains,
            summary="Detected attacks whose injected step is named exactly.",
        ),
        _metric(
            "sink-accuracy",
            "sink_accuracy",
            Value("", share, "higher"),
            **chains,
            summary="Detected attacks for which a harmful call is named.",
        ),
        _metric(
            "chain-recall",
            "chain_recall",
            Value("", share, "higher"),
            Value("ends-exact", share, "higher"),
            **chains,
            summary="True nodes on the named chain; how often both ends are right.",
        ),
        _metric(
            "edge-recovery",
            "edge_recovery",
            Value("", share, "higher"),
            Value("data-recall", share, "higher"),
            Value("untyped-recall", share, "higher"),
            *(Value(f"{k}-{s}", share, "higher") for k in ("trust", "data", "untyped") for s in ("precision", "f1")),
            requires=("chains", "edges"),
            summary="Recall of known trust edges, data edges, edges of any type; precision and F1 against the known ones.",
        ),
        _metric(
            "llm-calls", "llm_calls", Value("", "calls/trace", "lower"), summary="Calls to a language model per trace."
        ),
        _metric(
            "milliseconds",
            "milliseconds",
            Value("", "ms/trace", "lower"),
            cost="expensive",
            summary="Wall time of judging one trace, measured anew.",
        ),
    ]
