"""Adapters between the task ``agents.injection-detection`` and the detectors."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from icml26 import InputError, Method, MethodConfig, Problem, RunContext
from pydantic import Field

from icml26_plugin_causaltrace.baselines import Keyword as KeywordDetector
from icml26_plugin_causaltrace.baselines import Reachability as ReachabilityDetector
from icml26_plugin_causaltrace.baselines import TfidfLogistic, edge_triples
from icml26_plugin_causaltrace.baselines import Threshold as ThresholdDetector
from icml26_plugin_causaltrace.detector import BETA_INJECTION, LEAK, Analysis, CausalTrace, as_dict, explain
from icml26_plugin_causaltrace.ensemble import Ensemble
from icml26_plugin_causaltrace.policy import Policy, policy_of, read_policy
from icml26_plugin_causaltrace.supervised import SupervisedDetector, best_threshold
from icml26_plugin_causaltrace.task import Inputs, Output, Truth, Verdict
from icml26_plugin_causaltrace.trace import Trace

PICTURES = 12


def verdict_of(analysis: Analysis) -> Verdict:
    """An analysis as the task's verdict."""
    pair, finding = analysis.pair, analysis.finding
    return Verdict(
        score=analysis.score,
        is_attack=analysis.is_attack,
        source=None if pair is None else pair.source,
        sink=None if finding is None else finding.step,
        chain=analysis.chain,
        edges=edge_triples(analysis.graph.edges),
        llm_calls=analysis.llm_calls,
    )


@dataclass(frozen=True)
class Causal:
    """The training-free detector."""

    detector: CausalTrace

    def judge(self, trace: Trace) -> Verdict:
        """The verdict on one trace."""
        return verdict_of(self.detector.analyze(trace))


@dataclass(frozen=True)
class Supervised:
    """The forest; where and how still come from the analysis."""

    model: SupervisedDetector

    def judge(self, trace: Trace) -> Verdict:
        """The verdict on one trace."""
        analysis = self.model.detector.analyze(trace)
        score = self.model.predict(trace, analysis)
        return replace(verdict_of(analysis), score=score, is_attack=score >= self.model.tau_)


@dataclass(frozen=True)
class Voting:
    """The weighted vote; where and how still come from the analysis."""

    model: Ensemble

    def judge(self, trace: Trace) -> Verdict:
        """The verdict on one trace."""
        analysis = self.model.detector.analyze(trace)
        ballot = self.model.vote(trace, analysis)
        return replace(verdict_of(analysis), score=ballot.score, is_attack=ballot.is_attack)


class DetectorConfig(MethodConfig):
    """Constants of the causal model and the user's policy."""

    mode: Literal["prob", "det"] = Field(
        "prob", description="'prob': noisy-OR effects; 'det': path existence, in {0, 0.5, 1}."
    )
    leak: float = Field(LEAK, ge=0, le=1, description="Probability of a call without any cause (the code's 0.025).")
    beta_injection: float = Field(
        BETA_INJECTION, ge=0, le=1, description="Largest strength of an injected instruction (the code's 0.80)."
    )
    policy: str | None = Field(
        None, description="JSON file: which tools can do harm, which tools and domains only trusted people write to."
    )

    def detector(self, tau: float = 0.4) -> CausalTrace:
        """The native detector."""
        policy = Policy() if self.policy is None else read_policy(Path(self.policy))
        return CausalTrace(tau=tau, mode=self.mode, policy=policy, leak=self.leak, beta_injection=self.beta_injection)


class CausalMethod(Method[Inputs, Output]):
    """Counterfactual effects without training; only the threshold may be chosen on the labelled traces."""

    class Config(DetectorConfig):
        """The threshold."""

        tau: float | Literal["train"] = Field(
            "train",
            description="Alarm from this score on; 'train': the best F1 on the labelled traces (0.4 without any).",
        )

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        c = self.config
        tau, chosen = (0.4, "default") if c.tau == "train" else (float(c.tau), "given")
        labels = [y.attack for y in inputs.labels]
        detector = c.detector(tau)
        if c.tau == "train" and c.mode == "prob" and any(labels) and not all(labels):
            scores = [detector.score(t) for t in ctx.progress(inputs.traces, "calibrate")]
            tau, chosen = best_threshold(np.array(scores), np.array(labels)), "train"
        return Output(Causal(replace(detector, tau=tau)), {"tau": tau, "tau_from": chosen})

    def visualize(self, problem: Problem[Inputs, Truth], output: Output, ctx: RunContext) -> None:
        """verdicts.csv, verdicts.jsonl with explanations, and the graphs of the highest scores."""
        assert isinstance(output.detector, Causal | Supervised)
        native = output.detector.detector if isinstance(output.detector, Causal) else output.detector.model.detector
        write_report(output, native, problem.truth, ctx)

    def save(self, output: Output, folder: Path) -> None:
        assert isinstance(output.detector, Causal)
        d = output.detector.detector
        body = {
            "tau": d.tau,
            "mode": d.mode,
            "leak": d.leak,
            "beta_injection": d.beta_injection,
            "info": output.info,
            "policy": {
                "sensitive": dict(d.policy.sensitive),
                "trusted_tools": sorted(d.policy.trusted_tools),
                "trusted_domains": sorted(d.policy.trusted_domains),
            },
        }
        (folder / "causaltrace.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Output:
        try:
            body = json.loads((folder / "causaltrace.json").read_text(encoding="utf-8"))
            info = body.pop("info")
            policy = policy_of(body.pop("policy"), str(folder))
            return Output(Causal(CausalTrace(policy=policy, **body)), info)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{folder} holds no saved detector: {error}") from None


class SupervisedMethod(CausalMethod):
    """A random forest on graph and counterfactual features."""

    class Config(DetectorConfig):
        """The forest; defaults are the authors'."""

        n_estimators: int = Field(100, ge=1, le=10_000, description="Trees of the forest.")
        max_depth: int = Field(20, ge=1, le=1000, description="Largest depth of a tree.")
        causal: bool = Field(True, description="Use the counterfactual and task features; false is the ablation.")

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        c = self.config
        model = SupervisedDetector(
            c.detector(),
            n_estimators=c.n_estimators,
            max_depth=c.max_depth,
            causal=c.causal,
            random_state=int(ctx.rng.integers(2**31)),
        )
        model.fit(inputs.traces, [y.attack for y in inputs.labels], [y.group for y in inputs.labels])
        return Output(Supervised(model), {"tau": model.tau_, "tau_from": "train folds"})

    def save(self, output: Output, folder: Path) -> None:
        assert isinstance(output.detector, Supervised)
        output.detector.model.save(folder)

    @classmethod
    def load(cls, folder: Path) -> Output:
        model = SupervisedDetector.load(folder)
        return Output(Supervised(model), {"tau": model.tau_, "tau_from": "train folds"})


class EnsembleMethod(Method[Inputs, Output]):
    """The vote; the forest takes part when there are labelled traces of both classes to learn from."""

    class Config(DetectorConfig):
        """The forest's size."""

        n_estimators: int = Field(100, ge=1, le=10_000, description="Trees of the forest.")

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        detector = self.config.detector()
        labels = [y.attack for y in inputs.labels]
        forest = None
        if any(labels) and not all(labels):
            seed = int(ctx.rng.integers(2**31))
            forest = SupervisedDetector(detector, n_estimators=self.config.n_estimators, random_state=seed)
            forest.fit(inputs.traces, labels, [y.group for y in inputs.labels])
        return Output(Voting(Ensemble(detector, forest)), {"forest": forest is not None})


class KeywordMethod(Method[Inputs, Output]):
    """Phrases."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        return Output(KeywordDetector())


class TfidfMethod(Method[Inputs, Output]):
    """TF-IDF and logistic regression."""

    class Config(MethodConfig):
        """The vocabulary."""

        max_features: int = Field(5000, ge=1, le=1_000_000, description="Largest number of 1- and 2-grams.")

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        model = TfidfLogistic(self.config.max_features)
        model.fit(inputs.traces, [y.attack for y in inputs.labels], [y.group for y in inputs.labels])
        return Output(model, {"tau": model.tau})


class ReachabilityMethod(Method[Inputs, Output]):
    """Flow without a counterfactual."""

    class Config(DetectorConfig):
        """The same graph."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        return Output(ReachabilityDetector(self.config.detector()))


class ThresholdMethod(Method[Inputs, Output]):
    """Rules on graph features."""

    class Config(DetectorConfig):
        """The same graph."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        return Output(ThresholdDetector(self.config.detector()))


def write_report(output: Output, native: CausalTrace, truth: Truth, ctx: RunContext) -> None:
    """Every verdict as a table, the highest ones with words and pictures."""
    from icml26_plugin_causaltrace.drawing import draw_html, draw_svg

    verdicts = output.verdicts(truth.traces)
    with ctx.artifact("verdicts.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["trace", "score", "is_attack", "source", "sink", "chain"])
        for trace, v in zip(truth.traces, verdicts, strict=True):
            rows.writerow(
                [_cell(trace.id), f"{v.score:.6f}", v.is_attack, v.source, v.sink, " ".join(map(str, v.chain))]
            )
    order = sorted(range(len(verdicts)), key=lambda k: (-verdicts[k].score, k))[:PICTURES]
    judged = [(native.analyze(truth.traces[k]), truth.traces[k]) for k in order]
    with ctx.artifact("verdicts.jsonl").open("w", encoding="utf-8") as file:
        for analysis, trace in judged:
            entry: dict[str, Any] = {"trace": trace.id, **as_dict(analysis), "explanation": explain(analysis, trace)}
            file.write(json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8") + "\n")
    if judged:
        ctx.artifact("attack-chain.svg").write_text(draw_svg(*judged[0]), encoding="utf-8")
        ctx.artifact("attack-chains.html").write_text(draw_html(judged), encoding="utf-8")


def _cell(text: str) -> str:
    """A cell that no spreadsheet takes for a formula, and any file can hold."""
    plain = text.encode("utf-8", "replace").decode("utf-8")
    return "'" + plain if plain[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") else plain
