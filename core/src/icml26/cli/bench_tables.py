"""The tables of benches, claims and stored runs, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from icml26.claims import Verdict
from icml26.cli.output import Output
from icml26.digits import bounded, plus_minus
from icml26.leaderboard import Outcome, Row
from icml26.measurement import BenchResult
from icml26.statistics import Comparison, Estimate

_MARKS = {"reference": " (reference)", "baseline": "", "oracle": " (oracle)", "paper": ""}
_STATES = {"holds": "holds", "fails": "does not hold", "void": "void", "not-measured": "not measured"}
_COLORS = {"holds": "green", "fails": "red", "void": "yellow", "not-measured": "yellow"}


def show_bench(result: BenchResult, output: Output, baseline: str | None = None) -> None:
    """The table of a bench: a block a dataset, a line a method; then what did not apply, differences, failures."""
    facts = result.metrics
    shown = [row for row in result.rows if row.not_applicable is None]
    if output.terminal:
        for dataset in dict.fromkeys(row.dataset for row in shown):
            here = [row for row in shown if row.dataset == dataset]
            columns = [key for key in facts if any(isinstance(row.cells.get(key), Estimate) for row in here)]
            header = ["method", *(_column(key, facts[key].direction) for key in columns), "runs", ""]
            output.write(output.style(dataset, "bold"))
            output.table(header, [_line(row, columns) for row in here])
            output.write("")
        if (versus := result.versus(baseline)) is not None:
            _show_versus(versus, output)
    elif shown:
        header = ["dataset", "method", *facts, "runs", "without scores"]
        output.table(header, [header, *([row.dataset, *_line(row, list(facts))] for row in shown)])
    for method, dataset, reason in result.experiment.not_applicable:
        output.note(f"– {method} on {dataset}: {reason}")
    show_failures(result.failures, output)


def _line(row: Row, columns: Sequence[str]) -> list[str]:
    mark = _MARKS.get(row.role, "")
    label = row.method if row.method.endswith(mark) else row.method + mark
    ends = ", ".join(f"{count} {status}" for status, count in row.statuses.items() if status != "succeeded")
    return [label, *(plus_minus(row.cells[key]) for key in columns), str(row.statuses.get("succeeded", 0)), ends]


def _show_versus(versus: tuple[str, dict[str, dict[str, Comparison]]], output: Output) -> None:
    baseline, found = versus
    lines = [
        [method, key, comparison_text(comparison), p_text(comparison)]
        for key, by_method in found.items()
        for method, comparison in by_method.items()
    ]
    if lines:
        output.write(output.style(f"minus {baseline}, same dataset and seed", "bold"))
        output.table(["method", "metric", "difference", ""], lines)
        output.write("")


def show_failures(failures: Sequence[Outcome], output: Output) -> None:
    """Runs without scores, counted and named."""
    if not failures:
        return
    ends = Counter(item.record.status if item.record is not None else "not run" for item in failures)
    output.warn(f"{len(failures)} runs have no scores: {', '.join(f'{count} {end}' for end, count in ends.items())}")
    for item in failures[:20]:
        output.note(f"  {item.method} on {item.dataset}, seed {item.seed}: {item.reason or 'not run'}")
    if len(failures) > 20:
        output.note(f"  and {len(failures) - 20} more; icml26 results --status failed lists them")


def show_claims(title: str, verdicts: Sequence[Verdict], output: Output) -> None:
    """A line a claim: verdict, measured value with interval and n, what was wanted, the paper's number."""
    if not verdicts:
        return
    if output.terminal:
        output.write(output.style(title, "bold"))
    lines = []
    for verdict in verdicts:
        claim, measured = verdict.claim, verdict.measured
        wanted = [f"≥ {claim.at_least:g}"] if claim.at_least is not None else []
        wanted += [f"≤ {claim.at_most:g}"] if claim.at_most is not None else []
        value = "–" if measured is None else f"{bounded(measured)} (n = {measured.n})"
        notes = dict.fromkeys(note for note in (verdict.reason, measured.note if measured else None) if note)
        versus = f" over {verdict.over}" if verdict.over and len(claim.measure.over) >= 1 else ""
        text = f"{claim.text}{' [must]' if claim.must else ''}; {claim.measure.metric} of {claim.measure.of}{versus}"
        text += f"; paper: {claim.paper}" if claim.paper else ""
        text += f"; {'; '.join(notes)}" if notes else ""
        lines.append([claim.id, _STATES[verdict.state], value, " and ".join(wanted), text])
    output.table(["claim", "verdict", "measured", "wanted", "what"], lines)
    if output.terminal:
        output.write("")


def comparison_text(comparison: Comparison) -> str:
    """``-1.2 [-1.9, -0.4]`` with its sign."""
    text = bounded(comparison.difference)
    return text if text.startswith("-") else f"+{text}"


def p_text(comparison: Comparison) -> str:
    """``10 pairs, p = 0.002``, or why there is no p."""
    n = f"{comparison.difference.n} pairs"
    if comparison.p_value is not None:
        return f"{n}, p = {comparison.p_value:.3g}"
    notes = dict.fromkeys(note for note in (comparison.difference.note, comparison.p_note) if note)
    return ", ".join([n, *notes])


def _column(key: str, direction: str | None) -> str:
    return key + {"lower": " ↓", "higher": " ↑"}.get(direction or "", "")
