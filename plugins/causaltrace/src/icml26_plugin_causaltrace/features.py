"""Features of a typed graph and of its counterfactuals, for the supervised variant.

The authors' feature list has six watermark features whose module was never published; they are left out. The taint
features follow the plain reading: untrusted results taint what they flow into.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from icml26_plugin_causaltrace.detector import Analysis
from icml26_plugin_causaltrace.graph import CausalGraph, descendant_counts
from icml26_plugin_causaltrace.trace import Trace

GRAPH_FEATURES = (
    "chain_depth",
    "avg_chain_length",
    "num_chains",
    "num_cross_domain_edges",
    "cross_domain_ratio",
    "unique_domains",
    "domain_entropy",
    "state_accumulation_score",
    "unused_state_ratio",
    "num_state_producing",
    "max_bottleneck",
    "avg_bottleneck",
    "num_critical_bottlenecks",
    "data_ratio",
    "trust_ratio",
    "state_ratio",
    "cross_domain_data",
    "cross_domain_trust",
    "cross_domain_state",
    "num_nodes",
    "num_edges",
    "density",
    "taint_reaches_execution",
    "taint_violation_count",
    "max_taint_path_length",
    "tainted_node_count",
    "sensitive_sink_count",
    "untrusted_source_count",
)
CAUSAL_FEATURES = (
    "score",
    "max_pn",
    "max_ate",
    "max_ps",
    "p_instruction",
    "p_task",
    "joint_p_task",
    "second_score",
    "mean_score",
    "mechanism",
    "aff_task",
    "sink_unexplained",
    "min_p_task",
    "candidates",
)
CHAINS_CAP = 1000.0
CRITICAL = 5


def graph_features(graph: CausalGraph, domains: Sequence[str | None], sensitive: set[int]) -> np.ndarray:
    """The 28 features in the order of ``GRAPH_FEATURES``, float64; all zero for a graph without nodes."""
    n = graph.size
    if n == 0:
        return np.zeros(len(GRAPH_FEATURES))
    edges = graph.edges
    depth, reach = [0] * n, descendant_counts(graph)
    chains = [0.0] * n
    for node in range(n):
        parents = graph.parents(node)
        depth[node] = max((depth[p] + 1 for p in parents), default=0)
        chains[node] = min(CHAINS_CAP, sum(chains[p] for p in parents)) if parents else 1.0
    roots = [v for v in range(n) if not graph.parents(v)]
    leaves = [v for v in range(n) if not graph.children(v) and graph.parents(v)]
    crossing = [e for e in edges if domains[e.source] != domains[e.target]]
    kinds, crossed = Counter(e.type for e in edges), Counter(e.type for e in crossing)
    share = np.array(list(Counter(d or "" for d in domains).values())) / n
    producing = {e.source for e in edges if e.type == "data"}
    unused = n - len(producing)
    tainted, longest = _taint(graph)
    violations = sorted(tainted & sensitive)
    total = max(1, len(edges))
    return np.array(
        [
            max(depth),
            _mean_distance(graph, roots, leaves),
            min(CHAINS_CAP, sum(chains[v] for v in leaves)),
            len(crossing),
            len(crossing) / total,
            len(share),
            float(-(share * np.log2(share)).sum()) + 0.0,
            unused / n if edges else 0.0,
            unused / n if edges else 0.0,
            len(producing),
            max(reach),
            float(np.mean(reach)),
            sum(r >= CRITICAL for r in reach),
            kinds["data"] / total,
            kinds["trust"] / total,
            kinds["state"] / total,
            crossed["data"],
            crossed["trust"],
            crossed["state"],
            n,
            len(edges),
            len(edges) / (n * (n - 1)) if n > 1 else 0.0,
            float(bool(violations)),
            len(violations),
            longest,
            len(tainted),
            len(sensitive),
            len({e.source for e in edges if e.type == "trust"}),
        ],
        dtype=np.float64,
    )


def _mean_distance(graph: CausalGraph, roots: list[int], leaves: list[int]) -> float:
    """Mean over leaves of the fewest hops from any root."""
    hops = dict.fromkeys(roots, 0)
    for node in range(graph.size):
        if node not in hops:
            found = [hops[p] for p in graph.parents(node)]
            hops[node] = 1 + min(found)
    return float(np.mean([hops[v] for v in leaves])) if leaves else 0.0


def _taint(graph: CausalGraph) -> tuple[set[int], int]:
    """Steps that text from a trust edge's source flows into, and the longest such path."""
    length: dict[int, int] = {}
    for edge in graph.edges:
        if edge.type == "state":
            continue
        start = length.get(edge.source, 0 if edge.type == "trust" else -1)
        if start >= 0:
            length[edge.target] = max(length.get(edge.target, 0), start + 1)
    return set(length), max(length.values(), default=0)


def causal_features(analysis: Analysis) -> np.ndarray:
    """The counterfactual features in the order of ``CAUSAL_FEATURES``, float64."""
    ranked = sorted(analysis.findings, key=lambda f: -f.score)
    finding, pair = analysis.finding, analysis.pair
    if finding is None or pair is None:
        quiet = np.zeros(len(CAUSAL_FEATURES))
        quiet[CAUSAL_FEATURES.index("p_task")] = quiet[CAUSAL_FEATURES.index("joint_p_task")] = 1.0
        quiet[CAUSAL_FEATURES.index("min_p_task")] = min((f.p_task for f in analysis.findings), default=1.0)
        return quiet
    scores = [f.score for f in ranked]
    call = analysis.evidence[finding.step]
    return np.array(
        [
            analysis.score,
            max(f.effect.pn for f in ranked),
            max(f.effect.ate for f in ranked),
            max(f.effect.ps for f in ranked),
            pair.p_instruction,
            pair.p_task,
            finding.p_task,
            scores[1] if len(scores) > 1 else 0.0,
            float(np.mean(scores)),
            analysis.mechanism.deviation if analysis.mechanism else 0.0,
            call.aff_task,
            call.unexplained,
            min(f.p_task for f in ranked),
            len(finding.pairs),
        ],
        dtype=np.float64,
    )


def features(analysis: Analysis, trace: Trace, *, causal: bool = True) -> np.ndarray:
    """Graph features, with the counterfactual ones behind them."""
    sensitive = {n for n, e in enumerate(analysis.evidence) if e.sensitive}
    plain = graph_features(analysis.graph, [s.domain for s in trace.steps], sensitive)
    return np.concatenate([plain, causal_features(analysis)]) if causal else plain
