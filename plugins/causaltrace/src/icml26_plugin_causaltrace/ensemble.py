"""The authors' weighted vote of detectors: counterfactual, mechanism, probabilistic and, where one is fitted, the forest."""

from __future__ import annotations

from dataclasses import dataclass, field

from icml26_plugin_causaltrace.detector import Analysis, CausalTrace
from icml26_plugin_causaltrace.supervised import SupervisedDetector
from icml26_plugin_causaltrace.trace import Trace

WEIGHTS = {"counterfactual": 0.25, "mechanism": 0.25, "probabilistic": 0.35, "forest": 0.15}
MAJORITY = 0.5
PN_VOTE, ATE_VOTE = 0.5, 0.3


@dataclass(frozen=True, slots=True)
class Ballot:
    """Who raises an alarm; ``score`` is the weight of those who do among those who were asked, ``confidence`` the authors'."""

    votes: dict[str, bool]
    score: float
    confidence: float

    @property
    def is_attack(self) -> bool:
        """A weighted majority, strictly."""
        return self.score > MAJORITY


@dataclass
class Ensemble:
    """Vote on a trace; ``forest`` is asked when it is given. The authors' code does not renormalise without it; this does."""

    detector: CausalTrace = field(default_factory=CausalTrace)
    forest: SupervisedDetector | None = None

    def vote(self, trace: Trace, analysis: Analysis | None = None) -> Ballot:
        """The votes on one trace."""
        found = analysis or self.detector.analyze(trace)
        effects = [f.effect for f in found.findings]
        pn = max((e.pn for e in effects), default=0.0)
        ate = max((e.ate for e in effects), default=0.0)
        votes = {
            # An alternative path to the call (0.5) is no attack.
            "counterfactual": any(f.deterministic > MAJORITY for f in found.findings),
            "mechanism": found.mechanism is not None and found.mechanism.flagged,
            "probabilistic": any(e.pn > PN_VOTE or e.ate > ATE_VOTE for e in effects),
        }
        if self.forest is not None:
            votes["forest"] = self.forest.predict(trace, found) >= self.forest.tau_
        asked = sum(WEIGHTS[name] for name in votes)
        score = sum(WEIGHTS[name] for name, alarm in votes.items() if alarm) / asked
        return Ballot(votes, score, min(0.5 + 0.4 * pn + 0.1 * ate, 0.95))
