"""The README's tables: every row of a recipe with mean and interval, then its preconditions and claims.

Usage: ``python benchmarks/tables.py [timeguard/real-weather] [--jobs 2] [--store FILE --output DIR]``; runs what is missing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import icml26
from icml26.claims import Verdict
from icml26.statistics import Estimate


def number(estimate: Estimate | str, digits: int = 2) -> str:
    """Mean and half the width of its 95 % t interval."""
    if isinstance(estimate, str):
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} ± {(estimate.high - estimate.low) / 2:.{digits}f}"


def verdict_row(verdict: Verdict) -> str:
    """A claim, its figure with the bootstrap interval, its bar and what became of it."""
    claim, measured = verdict.claim, verdict.measured
    figure = "–" if measured is None else f"{measured.value:.3f}"
    if measured is not None and measured.low is not None:
        figure += f" [{measured.low:.3f}, {measured.high:.3f}]"
    bar = f"≥ {claim.at_least}" if claim.at_least is not None else f"≤ {claim.at_most}"
    return f"| {claim.id}: {claim.text} | {figure} | {bar} | {verdict.state} |"


def main() -> None:
    """Measure or read, and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", nargs="?", default="timeguard/against-random")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    done = icml26.reproduce(
        options.recipe, jobs=options.jobs, threads=1, figures="none", store=options.store, output=options.output
    )
    keys = list(done.bench.metrics)
    print("| method | " + " | ".join(keys) + " | seconds |")
    print("| --- " * (len(keys) + 2) + "|")
    for row in done.bench.rows:
        cells = [number(row.cells.get(key, "–"), 3 if key == "fder" or key.startswith("pool") else 2) for key in keys]
        spent = [o.record.seconds["run"] for o in row.outcomes if o.record is not None]  # type: ignore[attr-defined]
        print(f"| {row.method} | " + " | ".join(cells) + f" | {sum(spent) / max(1, len(spent)):.0f} |")
    for title, verdicts in (("preconditions", done.preconditions), ("claims", done.claims)):
        print(f"\n| {title} | measured | bar | |\n| --- | --- | --- | --- |")
        for verdict in verdicts:
            print(verdict_row(verdict))


if __name__ == "__main__":
    main()
