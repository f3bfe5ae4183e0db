"""The typed causal graph over steps, and slices of it. Edges go forward in time only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias

from icml26.errors import InputError

EdgeType: TypeAlias = Literal["data", "trust", "state"]
# The authors' code ranks data above trust; here an instruction edge is only drawn on evidence of an instruction, so it says more.
_PRIORITY = {"trust": 3, "data": 2, "state": 1}


@dataclass(frozen=True, slots=True)
class Edge:
    """Step ``source`` influences step ``target``; ``weight`` in (0, 1], ``evidence`` the text or value that shows it."""

    source: int
    target: int
    type: EdgeType
    weight: float = 1.0
    evidence: str = ""


@dataclass
class CausalGraph:
    """Steps ``0 … size-1``, at most one edge per ordered pair; an instruction outranks a copied value, that outranks state."""

    size: int = 0
    _out: dict[int, dict[int, Edge]] = field(default_factory=dict)
    _in: dict[int, dict[int, Edge]] = field(default_factory=dict)

    @classmethod
    def of(cls, size: int, edges: Iterable[Edge]) -> CausalGraph:
        """A graph with these edges."""
        graph = cls(size)
        for edge in edges:
            graph.add(edge)
        return graph

    def add(self, edge: Edge) -> None:
        """Add an edge; of two for one pair the higher type stays, then the heavier."""
        if not 0 <= edge.source < edge.target < self.size:
            raise InputError(f"edge {edge.source} -> {edge.target} must go forward among {self.size} steps (no cycles)")
        old = self._out.get(edge.source, {}).get(edge.target)
        rank = (_PRIORITY[edge.type], edge.weight)
        if old is not None and (_PRIORITY[old.type], old.weight) >= rank:
            return
        self._out.setdefault(edge.source, {})[edge.target] = edge
        self._in.setdefault(edge.target, {})[edge.source] = edge

    @property
    def edges(self) -> list[Edge]:
        """All edges, by source and target."""
        return [self._out[i][j] for i in sorted(self._out) for j in sorted(self._out[i])]

    def edge(self, source: int, target: int) -> Edge | None:
        """The edge of a pair."""
        return self._out.get(source, {}).get(target)

    def children(self, node: int) -> list[int]:
        """Targets of the node's edges, ascending."""
        return sorted(self._out.get(node, ()))

    def parents(self, node: int) -> list[int]:
        """Sources of edges into the node, ascending."""
        return sorted(self._in.get(node, ()))

    def descendants(self, node: int) -> set[int]:
        """Everything reachable from ``node``, without it."""
        return _reach(node, self._out)

    def ancestors(self, node: int) -> set[int]:
        """Everything from which ``node`` is reachable, without it."""
        return _reach(node, self._in)


def _reach(start: int, neighbours: dict[int, dict[int, Edge]]) -> set[int]:
    seen: set[int] = set()
    stack = [start]
    while stack:
        for node in neighbours.get(stack.pop(), ()):
            if node not in seen:
                seen.add(node)
                stack.append(node)
    return seen


@dataclass(frozen=True, slots=True)
class Slice:
    """``backward``: what the sink depends on; ``forward``: what the sources reach; ``chop``: both, the attack's own nodes.

    ``chain``: the most probable path from a source to the sink. ``fallback`` is "temporal" when the graph has no edges.
    """

    backward: frozenset[int]
    forward: frozenset[int]
    chop: frozenset[int]
    chain: tuple[int, ...]
    bottlenecks: tuple[tuple[int, int], ...]
    fallback: str | None = None
    confidence: float = 1.0

    @property
    def union(self) -> frozenset[int]:
        """Backward or forward slice, as the authors' code returns it."""
        return self.backward | self.forward


def bidirectional_slice(graph: CausalGraph, sources: Iterable[int], sink: int) -> Slice:
    """Slices of an attack from ``sources`` to ``sink``."""
    given = sorted(set(sources))
    if not graph.edges:
        nodes = tuple(range(min(given, default=sink), sink + 1))
        return Slice(frozenset(nodes), frozenset(nodes), frozenset(nodes), nodes, (), "temporal", 0.7)
    backward = graph.ancestors(sink) | {sink}
    inside = [s for s in given if s in backward]
    forward: set[int] = set()
    for source in inside:
        forward |= graph.descendants(source) | {source}
    chop = backward & forward
    paths = [p for s in inside if (p := most_probable_path(graph, s, sink))]
    chain = min(paths, key=lambda p: (path_cost(graph, p), len(p), p)) if paths else ()
    counts = _descendants_within(graph, backward | forward)
    bottlenecks = sorted(((n, c) for n, c in counts.items() if c >= 2), key=lambda item: (-item[1], item[0]))
    return Slice(frozenset(backward), frozenset(forward), frozenset(chop), chain, tuple(bottlenecks))


def path_cost(graph: CausalGraph, path: Sequence[int]) -> float:
    """-log of the product of weights along a path."""
    return sum(-math.log(max(edge.weight, 1e-12)) for a, b in pairwise(path) if (edge := graph.edge(a, b)))


def most_probable_path(graph: CausalGraph, source: int, sink: int) -> tuple[int, ...]:
    """The path of largest weight product (fewest hops on ties), empty when there is none; one sweep in order of steps."""
    best: dict[int, tuple[float, int, int]] = {source: (0.0, 0, -1)}
    for node in range(source, sink):
        if node not in best:
            continue
        cost, hops, _ = best[node]
        for child in graph.children(node):
            if child > sink:
                break
            edge = graph.edge(node, child)
            assert edge is not None
            reached = (cost - math.log(max(edge.weight, 1e-12)), hops + 1, node)
            if child not in best or reached < best[child]:
                best[child] = reached
    if sink not in best:
        return ()
    path = [sink]
    while path[-1] != source:
        path.append(best[path[-1]][2])
    return tuple(reversed(path))


def _descendants_within(graph: CausalGraph, nodes: set[int]) -> dict[int, int]:
    """How many descendants each node has inside ``nodes``; bit sets, one sweep backwards."""
    order = sorted(nodes)
    position = {node: k for k, node in enumerate(order)}
    reach: dict[int, int] = {}
    for node in reversed(order):
        bits = 0
        for child in graph.children(node):
            if child in position:
                bits |= reach[child] | 1 << position[child]
        reach[node] = bits
    return {node: bits.bit_count() for node, bits in reach.items()}


def descendant_counts(graph: CausalGraph) -> list[int]:
    """Number of descendants of every step."""
    counts = _descendants_within(graph, set(range(graph.size)))
    return [counts[node] for node in range(graph.size)]


def log_path_counts(graph: CausalGraph, starts: Iterable[int], avoid: Iterable[int] = ()) -> list[float]:
    """Natural logarithm of the number of directed paths from ``starts`` to each step (-inf for none), by dynamic programming.

    A start counts one path to itself; paths through ``avoid`` do not count. Logarithms, since the counts grow like 2^n.
    """
    banned = set(avoid)
    count = [-math.inf] * graph.size
    for start in starts:
        if start not in banned:
            count[start] = _log_add(count[start], 0.0)
    for node in range(graph.size):
        if node in banned:
            count[node] = -math.inf
        elif count[node] > -math.inf:
            for child in graph.children(node):
                count[child] = _log_add(count[child], count[node])
    return count


def _log_add(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
