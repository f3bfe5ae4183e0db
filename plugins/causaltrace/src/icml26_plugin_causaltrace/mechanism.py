"""Mechanism integrity: is a call still produced the way calls of its kind are, or did an injected step take over?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from icml26_plugin_causaltrace.graph import CausalGraph, log_path_counts
from icml26_plugin_causaltrace.trace import Step, flatten

FLAG = 0.3
NO_TASK_PATH = 0.8
SHIFT = 0.5


@dataclass(frozen=True, slots=True)
class Deviation:
    """``path_share`` of the task's influence that passes an injected step, ``sufficiency`` of untrusted direct parents,
    ``invariance`` shift of the target against like calls; ``deviation`` is their maximum, flagged above 0.3."""

    path_share: float
    sufficiency: float
    invariance: float

    @property
    def deviation(self) -> float:
        """The largest of the three."""
        return max(self.path_share, self.sufficiency, self.invariance)

    @property
    def flagged(self) -> bool:
        """Whether the mechanism counts as broken."""
        return self.deviation > FLAG

    @property
    def confidence(self) -> float:
        """As in the authors' code."""
        return min(0.5 + 0.5 * self.deviation, 0.95)


def path_share(graph: CausalGraph, roots: Sequence[int], injected: set[int], sink: int) -> float:
    """Share of the paths from ``roots`` to ``sink`` that pass an injected step; 0.8 when no root leads there."""
    every = log_path_counts(graph, roots)[sink]
    if every == -math.inf:
        return NO_TASK_PATH
    around = log_path_counts(graph, roots, injected)[sink]
    return 1.0 if around == -math.inf else max(0.0, -math.expm1(around - every))


def mechanism_deviation(
    graph: CausalGraph, steps: Sequence[Step], injected: set[int], sink: int, support: Mapping[int, float]
) -> Deviation | None:
    """The deviation of the call ``sink``, None when no injected step is among its ancestors.

    ``support`` is the task's support of each step: those with at least 0.5 are where the task's influence enters.
    """
    ancestors = graph.ancestors(sink)
    if not injected & ancestors:
        return None
    roots = [n for n in sorted(ancestors | {sink}) if support.get(n, 0.0) >= 0.5]
    parents = graph.parents(sink)
    untrusted = sum(p in injected for p in parents)
    return Deviation(
        path_share=path_share(graph, roots, injected - {sink}, sink),
        sufficiency=untrusted / len(parents) if parents else 0.0,
        invariance=_invariance(graph, steps, injected, sink),
    )


def _invariance(graph: CausalGraph, steps: Sequence[Step], injected: set[int], sink: int) -> float:
    mine = steps[sink]
    alike = [
        n
        for n, step in enumerate(steps)
        if n != sink and step.tool == mine.tool and not injected.intersection(graph.parents(n))
    ]
    if not alike:
        return 0.0
    targets = {(steps[n].domain, *_target(steps[n])) for n in alike}
    return 0.0 if (mine.domain, *_target(mine)) in targets else SHIFT


def _target(step: Step) -> tuple[str, ...]:
    """Where a call goes: its short argument values."""
    return tuple(v for v in flatten(step.arguments) if len(v) <= 80 and " " not in v.strip())
