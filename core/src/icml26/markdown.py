"""Results as Markdown, to stand in a README: the rows of a bench, the claims of a recipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from icml26.digits import MISSING, bounded, plus_minus
from icml26.leaderboard import MetricFacts, Row
from icml26.records import RunRecord

if TYPE_CHECKING:
    from icml26.claims import Verdict
    from icml26.measurement import BenchResult

_ARROWS = {"lower": " ↓", "higher": " ↑"}
_STATES = {"holds": "holds", "fails": "**does not hold**", "void": "void", "not-measured": "not measured"}


def bench_markdown(result: BenchResult) -> str:
    """One table: a method on a dataset a row, every metric as mean ± half its 95 % interval, the seconds of a run.

    Below it stand the runs without scores, the pairs that did not apply, and why there are no seconds if there are none.
    """
    facts = result.metrics
    shown = [row for row in result.rows if row.not_applicable is None]
    several = len({row.dataset for row in shown}) > 1
    header = ["method", *(["dataset"] if several else []), *(_column(facts[key]) for key in facts), "seconds ↓"]
    conditions = {_conditions(record) for row in shown for record in _scored(row)}
    comparable = len(conditions) <= 1
    lines = [
        [
            f"`{row.method}`" + (f" ({row.role})" if row.role in ("reference", "oracle") else ""),
            *([f"`{row.dataset}`"] if several else []),
            *(plus_minus(row.cells[key]) for key in facts),
            _seconds(row) if comparable else MISSING,
        ]
        for row in shown
    ]
    seeds = result.experiment.seeds
    caption = f"Mean ± half the 95 % interval over {len(seeds)} seeds ({', '.join(map(str, seeds))})."
    if len(seeds) == 1:
        caption = f"One seed ({seeds[0]}), so no intervals."
    notes = list(_notes(result, shown))
    if not comparable:
        notes.append("No seconds: the runs come from different machines, thread counts or numbers of workers.")
    listed = "\n".join(f"- {_text(note)}" for note in notes)
    return "\n\n".join(part for part in (caption, _table(header, lines), listed) if part)


def claims_markdown(title: str, verdicts: Sequence[Verdict]) -> str:
    """A table of claims: the paper's own figure, what was measured with its interval, the bar and the verdict."""
    lines = []
    for verdict in verdicts:
        claim, measured = verdict.claim, verdict.measured
        bars = [f"≥ {claim.at_least:g}"] if claim.at_least is not None else []
        bars += [f"≤ {claim.at_most:g}"] if claim.at_most is not None else []
        notes = dict.fromkeys(note for note in (verdict.reason, measured.note if measured else None) if note)
        state = _STATES[verdict.state] + (f" ({'; '.join(notes)})" if notes else "")
        lines.append(
            [
                f"`{claim.id}`: {claim.text}" + (" (must hold)" if claim.must else ""),
                claim.paper or MISSING,
                MISSING if measured is None else bounded(measured),
                " and ".join(bars),
                state,
            ]
        )
    return _table([title, "paper", "measured", "bar", "verdict"], lines)


def _scored(row: Row) -> list[RunRecord]:
    return [outcome.record for outcome in row.outcomes if outcome.succeeded and isinstance(outcome.record, RunRecord)]


def _conditions(record: RunRecord) -> tuple[str, ...]:
    """Under which times were measured; those of two conditions are not compared."""
    return tuple(str(record.provenance.get(name)) for name in ("host", "threads", "workers"))


def _seconds(row: Row) -> str:
    """The mean over the runs with scores, of the method alone: without loading and scoring."""
    spent = [record.seconds["run"] for record in _scored(row) if "run" in record.seconds]
    if not spent:
        return MISSING
    mean = sum(spent) / len(spent)
    return f"{mean:.0f}" if mean >= 10 else f"{mean:.2g}"


def _notes(result: BenchResult, shown: Iterable[Row]) -> Iterator[str]:
    for row in shown:
        if row.failed:
            ends = ", ".join(f"{count} {status}" for status, count in row.statuses.items() if status != "succeeded")
            yield f"`{row.method}` on `{row.dataset}`: {row.failed} of {len(row.outcomes)} runs have no scores ({ends})."
    for method, dataset, reason in result.experiment.not_applicable:
        yield f"`{method}` on `{dataset}` does not apply: {reason}"


def _column(facts: MetricFacts) -> str:
    return facts.key + _ARROWS.get(facts.direction or "", "")


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(_text(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)


def _text(text: str) -> str:
    """Text on one line, since a line break ends a table's row."""
    return " ".join(text.split())
