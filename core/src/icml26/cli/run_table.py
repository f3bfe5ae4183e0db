"""The table of one run beside its reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icml26.api import RunResult
    from icml26.records import RunRecord

_BETTER = {"lower": "lower is better", "higher": "higher is better"}


def run_table(result: RunResult) -> str:
    """Scores of a run and its reference, one line a metric, then where everything lies."""
    record, plan = result.record, result.plan
    lines = [f"{record.method['name']} on {record.dataset['name']}, seed {record.seed}"]
    if record.method["profile"]:
        lines[0] += f", profile {record.method['profile']}"
    if not record.succeeded:
        error = record.error or {}
        lines.append(f"{record.status}: {error.get('message')}")
    columns = [(plan.method.name, record)]
    if result.reference is not None and result.reference.record.succeeded:
        columns.append((f"{result.reference.plan.method.name} (reference)", result.reference.record))
    if record.succeeded:
        lines += ["", *aligned(_rows(columns))]
        lines += [f"{item.entry.name}: – {item.missing}" for item in plan.metrics if item.missing and not item.hidden]
        lines += [f"{name}: – {entry['missing']}" for name, entry in record.metrics.items() if "missing" in entry]
        if result.reference_missing:
            lines.append(f"reference: – {result.reference_missing}")
    lines += [f"warning: {text}" for text in record.info.get("warnings", [])]
    lines += ["", f"record   {result.folder / 'record.json'}"]
    lines += [f"artifact {result.folder / name}" for name in record.artifacts]
    if record.output:
        lines.append(f"output   {result.folder / record.output}")
    if not record.succeeded and record.log:
        lines.append(f"log      {result.folder / record.log}")
    return "\n".join(lines)


def _rows(columns: list[tuple[str, RunRecord]]) -> list[list[str]]:
    rows = [["metric", *(name for name, _ in columns), "unit", ""]]
    names = list(dict.fromkeys(name for _, record in columns for name, entry in record.metrics.items() if shown(entry)))
    for name in names:
        entries = [record.metrics.get(name, {}) for _, record in columns]
        facts = next(entry for entry in entries if entry)
        better = _BETTER.get(facts.get("direction") or "", "")
        rows.append([name, *map(number, entries), facts.get("unit") or "", better])
    rows.append(["seconds", *(f"{sum(record.seconds.values()):.1f}" for _, record in columns), "s", ""])
    return rows


def shown(entry: dict[str, Any]) -> bool:
    """Whether an entry is a column of tables: not hidden, not the error of another, not missing."""
    return not entry.get("hidden") and "error_of" not in entry and "missing" not in entry


def number(entry: dict[str, Any]) -> str:
    """A metric's value for people: four significant digits, ``–`` where there is none."""
    if "nonfinite" in entry:
        return str(entry["nonfinite"])
    value = entry.get("value")
    return "–" if value is None else f"{value:.4g}"


def aligned(rows: list[list[str]]) -> list[str]:
    """Columns padded to their widest cell; numbers of the value columns to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    last = len(widths) - 2
    return [
        "  ".join(
            cell.rjust(width) if 0 < i < last else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
