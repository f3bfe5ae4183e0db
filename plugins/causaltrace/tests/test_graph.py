"""Graph, slices and path counts against networkx and brute force."""

from __future__ import annotations

import math
import time

import networkx as nx
import numpy as np
import pytest
from icml26.errors import InputError
from icml26_plugin_causaltrace.features import CAUSAL_FEATURES, GRAPH_FEATURES, graph_features
from icml26_plugin_causaltrace.graph import (
    CausalGraph,
    Edge,
    bidirectional_slice,
    descendant_counts,
    log_path_counts,
    path_cost,
)
from icml26_plugin_causaltrace.mechanism import NO_TASK_PATH, mechanism_deviation, path_share
from icml26_plugin_causaltrace.trace import Step


def random_graph(seed: int, n: int = 9, p: float = 0.4) -> CausalGraph:
    rng = np.random.default_rng(seed)
    edges = [
        Edge(i, j, str(rng.choice(["data", "trust", "state"])), float(rng.uniform(0.1, 1)))  # type: ignore[arg-type]
        for i in range(n)
        for j in range(i + 1, n)
        if rng.random() < p
    ]
    return CausalGraph.of(n, edges)


def as_networkx(graph: CausalGraph) -> nx.DiGraph:
    other = nx.DiGraph([(e.source, e.target, {"cost": -math.log(e.weight)}) for e in graph.edges])
    other.add_nodes_from(range(graph.size))
    return other


@pytest.mark.parametrize("seed", range(8))
def test_slices_equal_networkx_and_the_chain_is_the_cheapest_path(seed):
    graph = random_graph(seed)
    other = as_networkx(graph)
    sources, sink = [0, 2], 8
    cut = bidirectional_slice(graph, sources, sink)
    assert cut.backward == nx.ancestors(other, sink) | {sink}
    inside = [s for s in sources if s in cut.backward]
    assert cut.forward == {n for s in inside for n in nx.descendants(other, s) | {s}}
    assert cut.chop == cut.backward & cut.forward and cut.union == cut.backward | cut.forward
    if inside:
        assert all(graph.edge(a, b) and a < b for a, b in zip(cut.chain, cut.chain[1:], strict=False))
        best = min(nx.shortest_path_length(other, s, sink, weight="cost") for s in inside)
        assert path_cost(graph, cut.chain) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(8))
def test_path_counts_equal_the_enumerated_simple_paths(seed):
    graph = random_graph(seed)
    other = as_networkx(graph)
    paths = list(nx.all_simple_paths(other, 0, 8))
    counted = log_path_counts(graph, [0])[8]
    assert math.exp(counted) == pytest.approx(len(paths)) if paths else counted == -math.inf
    through = [p for p in paths if 4 in p]
    expected = len(through) / len(paths) if paths else NO_TASK_PATH
    assert path_share(graph, [0], {4}, 8) == pytest.approx(expected)


def test_path_counts_of_complete_graphs_are_fast_and_do_not_overflow():
    complete = CausalGraph.of(40, [Edge(i, j, "data") for i in range(40) for j in range(i + 1, 40)])
    start = time.process_time()
    counted = log_path_counts(complete, [0])[39]
    assert time.process_time() - start < 0.05
    assert counted == pytest.approx(38 * math.log(2))
    long = CausalGraph.of(1500, [Edge(i, j, "data") for i in range(1500) for j in range(i + 1, min(i + 4, 1500))])
    assert 0.0 <= path_share(long, [0], {700}, 1499) < 1.0


def test_descendant_counts_equal_networkx():
    graph = random_graph(3)
    other = as_networkx(graph)
    assert descendant_counts(graph) == [len(nx.descendants(other, n)) for n in range(graph.size)]


def test_edges_go_forward_and_the_higher_type_stays():
    graph = CausalGraph(3)
    for bad in (Edge(1, 1, "data"), Edge(2, 0, "trust"), Edge(0, 3, "data")):
        with pytest.raises(InputError, match="forward"):
            graph.add(bad)
    graph.add(Edge(0, 1, "trust", 0.4))
    graph.add(Edge(0, 1, "data", 1.0))
    assert graph.edge(0, 1) == Edge(0, 1, "trust", 0.4)


def test_a_graph_without_edges_falls_back_to_time_and_says_so():
    cut = bidirectional_slice(CausalGraph(4), [1], 3)
    assert (cut.chain, cut.fallback, cut.confidence) == ((1, 2, 3), "temporal", 0.7)


def test_features_have_their_known_values():
    assert not graph_features(CausalGraph(0), [], set()).any()
    chain = CausalGraph.of(3, [Edge(0, 1, "data"), Edge(1, 2, "data")])
    found = dict(zip(GRAPH_FEATURES, graph_features(chain, ["a", "a", "b"], {2}), strict=True))
    assert (found["chain_depth"], found["num_chains"], found["max_bottleneck"]) == (2, 1, 2)
    assert found["density"] == pytest.approx(1 / 3)
    pair = CausalGraph.of(2, [Edge(0, 1, "trust")])
    two = dict(zip(GRAPH_FEATURES, graph_features(pair, ["a", "b"], {1}), strict=True))
    assert two["domain_entropy"] == pytest.approx(1.0)
    assert (two["taint_violation_count"], two["cross_domain_trust"]) == (1, 1)
    assert len(set(GRAPH_FEATURES + CAUSAL_FEATURES)) == 28 + 14


def test_mechanism_deviates_when_all_of_the_tasks_influence_passes_the_injection():
    steps = [Step("read", {"f": "a"}), Step("read", {"f": "b"}), Step("send", {"to": "x"})]
    taken = CausalGraph.of(3, [Edge(0, 1, "data"), Edge(1, 2, "trust")])
    deviation = mechanism_deviation(taken, steps, {1}, 2, {0: 1.0})
    assert deviation is not None and deviation.path_share == 1.0 and deviation.flagged and deviation.confidence == 0.95
    assert mechanism_deviation(taken, steps, set(), 2, {0: 1.0}) is None
    orphan = mechanism_deviation(taken, steps, {1}, 2, {})
    assert orphan is not None and orphan.path_share == NO_TASK_PATH
