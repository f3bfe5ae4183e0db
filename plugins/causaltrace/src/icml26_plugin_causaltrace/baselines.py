"""What CausalTrace is compared with: content-based and rule-based detectors. None of them is a vendor's product."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from icml26.errors import InputError

from icml26_plugin_causaltrace.detector import CausalTrace
from icml26_plugin_causaltrace.features import GRAPH_FEATURES, graph_features
from icml26_plugin_causaltrace.supervised import best_threshold
from icml26_plugin_causaltrace.task import Verdict
from icml26_plugin_causaltrace.trace import Trace

PHRASES = re.compile(
    r"ignore (?:all |any |the |your )*(?:previous|prior|above|instructions)|\bimportant(?: message|!)|\burgent\b|"
    r"new instructions?\b|\bsystem\s*:|please do the following|before you (?:can )?(?:solve|do)|<information>|"
    r"do not tell the user|note to the (?:assistant|agent|ai)|\bas an ai\b|you must (?:now|first)|\bTODO\s*:",
    re.IGNORECASE,
)


def results_of(trace: Trace) -> list[str]:
    """Texts that tools brought."""
    return [s.result or "" for s in trace.steps if not s.trusted]


@dataclass(frozen=True)
class Keyword:
    """Alarm when a result holds a phrase that injections are known for; the score is 1 - 2^-hits."""

    def judge(self, trace: Trace) -> Verdict:
        """The verdict on one trace."""
        hits = [len(PHRASES.findall(text)) for text in results_of(trace)]
        total = sum(hits)
        return Verdict(1 - 0.5**total, total > 0, int(np.argmax(hits)) if total else None)


@dataclass
class TfidfLogistic:
    """TF-IDF of all results (1- and 2-grams) and logistic regression; threshold by F1 on the training traces' folds."""

    max_features: int = 5000
    folds: int = 5
    seed: int = 0
    vocabulary: dict[str, int] = field(default_factory=dict)
    idf: np.ndarray = field(default_factory=lambda: np.zeros(0))
    coef: np.ndarray = field(default_factory=lambda: np.zeros(0))
    intercept: float = 0.0
    tau: float = 0.5

    def fit(self, traces: Sequence[Trace], labels: Sequence[bool], groups: Sequence[str]) -> TfidfLogistic:
        """Fit weights and threshold; groups stay together in the folds."""
        from sklearn.model_selection import GroupKFold

        texts = ["\n".join(results_of(t)) for t in traces]
        y = np.asarray(labels, dtype=bool)
        if not y.any() or y.all():
            raise InputError("tfidf-lr needs labelled traces of both classes to learn from")
        out = np.zeros(len(y))
        kinds = len(set(groups))
        if kinds >= 2:
            for train, test in GroupKFold(min(self.folds, kinds)).split(texts, y, list(groups)):
                if y[train].any() and not y[train].all():
                    vectors, model = self._fit([texts[i] for i in train], y[train])
                    out[test] = model.predict_proba(vectors.transform([texts[i] for i in test]))[:, 1]
            self.tau = best_threshold(out, y)
        vectors, model = self._fit(texts, y)
        self.vocabulary = {str(k): int(v) for k, v in vectors.vocabulary_.items()}
        self.idf, self.coef, self.intercept = vectors.idf_, model.coef_[0], float(model.intercept_[0])
        return self

    def _fit(self, texts: list[str], y: np.ndarray) -> tuple[Any, Any]:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression

        vectors = TfidfVectorizer(ngram_range=(1, 2), max_features=self.max_features, lowercase=True)
        rows = vectors.fit_transform(texts)
        return vectors, LogisticRegression(class_weight="balanced", max_iter=1000).fit(rows, y)

    def judge(self, trace: Trace) -> Verdict:
        """The verdict on one trace."""
        words = re.findall(r"\b\w\w+\b", "\n".join(results_of(trace)).lower())
        counts: dict[int, int] = {}
        for gram in (*words, *(f"{a} {b}" for a, b in pairwise(words))):
            if (column := self.vocabulary.get(gram)) is not None:
                counts[column] = counts.get(column, 0) + 1
        columns = np.fromiter(counts, dtype=int)
        weights = np.fromiter(counts.values(), dtype=float) * self.idf[columns] if counts else np.zeros(0)
        norm = float(np.sqrt((weights**2).sum()))
        score = self.intercept + (float(weights @ self.coef[columns]) / norm if norm else 0.0)
        p = float(1 / (1 + np.exp(-score)))
        return Verdict(p, p >= self.tau)


@dataclass(frozen=True)
class Reachability:
    """Alarm when a result that nobody vouches for flows into a call that can do harm, by a trigger edge of any length.

    It shares the graph with CausalTrace and asks no counterfactual question: what the user wanted does not count.
    """

    detector: CausalTrace = field(default_factory=CausalTrace)

    def judge(self, trace: Trace) -> Verdict:
        """The verdict on one trace."""
        analysis = self.detector.analyze(trace)
        best: tuple[float, int | None, int | None] = (0.0, None, None)
        for finding in analysis.findings:
            flows = [e for e in analysis.graph.edges if e.target == finding.step and e.type != "state"]
            strongest = max(flows, key=lambda e: e.weight, default=None)
            if strongest is not None and strongest.weight > best[0]:
                best = (strongest.weight, strongest.source, finding.step)
        return Verdict(best[0], best[0] > 0, best[1], best[2], edges=edge_triples(analysis.graph.edges))


@dataclass(frozen=True)
class Threshold:
    """The authors' rules on the graph: depth > 10, cross-domain share > 0.3, bottleneck > 8 or unused state > 0.5."""

    detector: CausalTrace = field(default_factory=CausalTrace)

    def judge(self, trace: Trace) -> Verdict:
        """The verdict on one trace; the score is the share of rules that fire."""
        analysis = self.detector.analyze(trace)
        sensitive = {f.step for f in analysis.findings}
        found = dict(
            zip(GRAPH_FEATURES, graph_features(analysis.graph, [s.domain for s in trace.steps], sensitive), strict=True)
        )
        rules = (
            found["chain_depth"] > 10,
            found["cross_domain_ratio"] > 0.3,
            found["max_bottleneck"] > 8,
            found["state_accumulation_score"] > 0.5,
        )
        return Verdict(sum(rules) / len(rules), any(rules), edges=edge_triples(analysis.graph.edges))


def edge_triples(edges: Sequence[Any]) -> tuple[tuple[int, int, str], ...]:
    """Edges as plain triples."""
    return tuple((e.source, e.target, e.type) for e in edges)
