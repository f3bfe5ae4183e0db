"""Noisy-OR structural causal models over a small directed acyclic graph, with the do-operator and its counterfactuals.

Each node is on when its gate nodes are all on and one of its triggers fires: a parent c that is on fires with probability
p_c, a leak with probability lam. In the live-edge view every edge and leak is drawn once, and a world is read off by
reachability; the same draws serve the factual and the counterfactual world, so that abduction is a filter on draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from icml26.errors import InputError

#: At most this many uncertain edges and leaks are enumerated; beyond, common random draws are used.
EXACT_LIMIT = 16
DRAWS = 4096


@dataclass(frozen=True, slots=True)
class Effect:
    """What an intervention changes: ``q_all`` = P(Y), ``q_do`` = P(Y | do), ATE, necessity (PN) and sufficiency (PS)."""

    q_all: float
    q_do: float
    ate: float
    pn: float
    ps: float

    @classmethod
    def of(cls, q_all: float, q_do: float) -> Effect:
        """From the two probabilities; under a monotone model Pearl's bounds on PN and PS collapse to these."""
        ate = q_all - q_do
        return cls(q_all, q_do, ate, ate / q_all if q_all > 0 else 0.0, ate / (1 - q_do) if q_do < 1 else 0.0)


def noisy_or(probabilities: Iterable[float], leak: float = 0.0) -> float:
    """P(on) of a node whose parents are all on."""
    off = 1.0 - leak
    for p in probabilities:
        off *= 1.0 - p
    return 1.0 - off


@dataclass(frozen=True)
class NoisyOr:
    """A model over nodes ``0 … size-1`` in topological order (every edge goes from a smaller to a larger node).

    ``triggers`` maps (parent, child) to p in [0, 1]; ``gates`` holds necessary (parent, child) pairs; ``roots`` are on by
    themselves; ``leaks`` maps a node to its leak; ``blocked`` are held off.
    """

    size: int
    triggers: Mapping[tuple[int, int], float]
    roots: frozenset[int]
    leaks: Mapping[int, float] = field(default_factory=dict)
    gates: frozenset[tuple[int, int]] = frozenset()
    blocked: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for parent, child in (*self.triggers, *self.gates):
            if not 0 <= parent < child < self.size:
                raise InputError(
                    f"edge {parent} -> {child} does not go forward in order: the graph would not be acyclic"
                )
        for key, p in (*self.triggers.items(), *self.leaks.items()):
            if not 0.0 <= p <= 1.0:
                raise InputError(f"probability {p} of {key} is not in [0, 1]")

    def do(self, nodes: Iterable[int]) -> NoisyOr:
        """The model in which ``nodes`` are held off: their incoming edges and leaks are gone. This model stays as it is."""
        held = frozenset(nodes)
        return replace(
            self,
            triggers={edge: p for edge, p in self.triggers.items() if edge[1] not in held},
            gates=frozenset(edge for edge in self.gates if edge[1] not in held),
            leaks={node: p for node, p in self.leaks.items() if node not in held},
            roots=self.roots - held,
            blocked=self.blocked | held,
        )

    def uncertain(self) -> list[tuple[int, int]]:
        """Edges and leaks (as ``(-1, node)``) that may or may not be live."""
        edges = [e for e, p in self.triggers.items() if 0.0 < p < 1.0]
        return sorted(edges) + [(-1, n) for n, p in sorted(self.leaks.items()) if 0.0 < p < 1.0]

    def worlds(self, live: np.ndarray, keys: list[tuple[int, int]]) -> np.ndarray:
        """States (draws, size) bool for draws of the uncertain ``keys``: live (draws, len(keys)) bool."""
        column = {key: live[:, position] for position, key in enumerate(keys)}
        draws = len(live)
        on = np.zeros((draws, self.size), dtype=bool)
        parents: dict[int, list[int]] = {}
        for parent, child in self.triggers:
            parents.setdefault(child, []).append(parent)
        gated: dict[int, list[int]] = {}
        for parent, child in self.gates:
            gated.setdefault(child, []).append(parent)
        for node in range(self.size):
            if node in self.blocked:
                continue
            state = np.full(draws, node in self.roots)
            if leak := self.leaks.get(node, 0.0):
                state |= column.get((-1, node), np.full(draws, leak == 1.0))
            for parent in parents.get(node, ()):
                p = self.triggers[parent, node]
                if p > 0.0:
                    state |= on[:, parent] & column.get((parent, node), np.full(draws, True))
            for parent in gated.get(node, ()):
                state &= on[:, parent]
            on[:, node] = state
        return on

    def effect(
        self, block: Iterable[int], outcome: int, *, rng: np.random.Generator | None = None, draws: int = DRAWS
    ) -> Effect:
        """Abduction, action, prediction for ``do(block = off)`` on ``outcome``: exact when small, else common random draws."""
        keys = self.uncertain()
        counterfactual = self.do(block)
        if len(keys) <= EXACT_LIMIT:
            codes = np.arange(1 << len(keys), dtype=np.int64)[:, None]
            live = (codes >> np.arange(len(keys))) & 1 == 1
            p = np.array([self.leaks[k[1]] if k[0] < 0 else self.triggers[k] for k in keys])
            weight = np.prod(np.where(live, p, 1.0 - p), axis=1) if keys else np.ones(1)
        else:
            generator = rng if rng is not None else np.random.default_rng(0)
            p = np.array([self.leaks[k[1]] if k[0] < 0 else self.triggers[k] for k in keys])
            live = generator.random((draws, len(keys))) < p
            weight = np.full(draws, 1.0 / draws)
        factual = self.worlds(live, keys)[:, outcome]
        # Keys of edges that do() removed are never looked up.
        counter = counterfactual.worlds(live, keys)[:, outcome]
        return Effect.of(float(weight @ factual), float(weight @ (factual & counter)))


def deterministic_effect(model: NoisyOr, block: Iterable[int], outcome: int) -> float:
    """0 when no trigger path leads from ``block`` to ``outcome``; 0.5 when another root reaches it too; else 1.

    The other path is looked for by reachability in the graph without ``block``; gates never count as a path.
    """
    held = set(block)
    children: dict[int, list[int]] = {}
    for (parent, child), p in model.triggers.items():
        if p > 0.0:
            children.setdefault(parent, []).append(child)

    def reaches(starts: Iterable[int], avoid: set[int]) -> bool:
        stack, seen = [s for s in starts if s not in avoid], set()
        while stack:
            node = stack.pop()
            if node == outcome:
                return True
            for child in children.get(node, ()):
                if child not in seen and child not in avoid:
                    seen.add(child)
                    stack.append(child)
        return False

    if not reaches(held, set()):
        return 0.0
    return 0.5 if reaches(model.roots - held, held) else 1.0
