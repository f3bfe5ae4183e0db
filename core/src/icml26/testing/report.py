"""What the conformance kit finds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning"]
Outcome: TypeAlias = Literal["passed", "failed", "expected", "skipped"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that a check found wrong: ``where`` names the spec, ``fix`` says what to do."""

    where: str
    message: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one check. ``note`` is the reason of an expected failure or of a skip."""

    id: str
    reason: str
    severity: Severity
    outcome: Outcome
    problems: tuple[Problem, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all checks of one plugin."""

    plugin: str
    results: tuple[CheckResult, ...] = ()
    smoke: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """Checks of severity ``error`` that failed and were not expected to."""
        return tuple(result for result in self.results if result.outcome == "failed" and result.severity == "error")

    @property
    def clean(self) -> bool:
        """Whether nothing of severity ``error`` failed."""
        return not self.failures

    def to_json(self) -> dict[str, Any]:
        """The body of ``check-plugin --json``."""
        checks = []
        for result in self.results:
            message = "; ".join(f"{problem.where}: {problem.message}" for problem in result.problems) or result.note
            fix = "; ".join(dict.fromkeys(problem.fix for problem in result.problems if problem.fix))
            checks.append(
                {
                    "id": result.id,
                    "severity": result.severity,
                    "outcome": result.outcome,
                    "reason": result.reason,
                    "message": message,
                    "fix": fix,
                    "problems": [asdict(problem) for problem in result.problems],
                }
            )
        return {"schema": "icml26.check-plugin/1", "plugin": self.plugin, "checks": checks}


def problems_text(problems: Iterable[Problem]) -> str:
    """One line a problem, for assertion messages."""
    return "\n".join(f"{p.where}: {p.message}" + (f" -> {p.fix}" if p.fix else "") for p in problems)
