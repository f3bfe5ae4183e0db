"""Types of the task ``agents.injection-detection``; standard library and numpy only.

A method sees labelled traces to learn or tune on, and returns a detector. The traces that it is judged on stand in the truth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from icml26_plugin_causaltrace.trace import Label, Trace


@dataclass(frozen=True)
class Verdict:
    """What a detector says of one trace: ``score`` in [0, 1], the alarm, and, where it can say so, the step whose result holds
    the injected text, the harmful call, the chain between them and the typed edges it saw."""

    score: float
    is_attack: bool
    source: int | None = None
    sink: int | None = None
    chain: tuple[int, ...] = ()
    edges: tuple[tuple[int, int, str], ...] | None = None
    llm_calls: int = 0


class Detector(Protocol):
    """What a method returns."""

    def judge(self, trace: Trace) -> Verdict:
        """The verdict on one finished trace."""


@dataclass(frozen=True)
class Inputs:
    """Labelled traces to learn from (both tuples may be empty); ``Label.group`` names what must not be split."""

    traces: tuple[Trace, ...]
    labels: tuple[Label, ...]


@dataclass(frozen=True)
class Truth:
    """The traces to judge and what is known of each; ``labels`` is None when nothing is known."""

    traces: tuple[Trace, ...]
    labels: tuple[Label, ...] | None


@dataclass
class Output:
    """A detector, and JSON values for people to read. ``verdicts`` keeps those of the last set of traces."""

    detector: Detector
    info: dict[str, Any] = field(default_factory=dict)
    _last: tuple[tuple[Trace, ...], tuple[Verdict, ...]] | None = field(default=None, repr=False)

    def verdicts(self, traces: tuple[Trace, ...]) -> tuple[Verdict, ...]:
        """Verdicts in the order of the traces; judged once per set, since every metric asks."""
        if self._last is None or self._last[0] is not traces:
            self._last = (traces, tuple(self.detector.judge(t) for t in traces))
        return self._last[1]

    def __fingerprint__(self) -> str:
        """What the detector is, not what it was asked so far."""
        from icml26 import fingerprint

        return fingerprint({"detector": self.detector, "info": self.info})
