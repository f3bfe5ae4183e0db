"""The README's tables: each row of a recipe with mean and interval, then its preconditions and claims, as Markdown.

    python benchmarks/tables.py [--seeds 1 2] [--jobs 2] [--columns agg agg.priv]

What the store has is not run again.
"""

from __future__ import annotations

import argparse

import icml26
from icml26.claims import Verdict
from icml26.statistics import Estimate

COLUMNS = ("keyword-forget", "keyword-retain", "agg", "agg.utility", "mia.loss", "mia-gap")


def number(estimate: Estimate | str) -> str:
    """Mean and half the width of its 95 % t interval."""
    if isinstance(estimate, str):
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} ± {(estimate.high - estimate.low) / 2:.3f}"


def verdict_row(verdict: Verdict) -> str:
    """A claim with its figure, the bootstrap interval, its bar, and what became of it."""
    claim, measured = verdict.claim, verdict.measured
    figure = "–" if measured is None else f"{measured.value:.3f}"
    if measured is not None and measured.low is not None:
        figure += f" [{measured.low:.3f}, {measured.high:.3f}]"
    bar = f"≥ {claim.at_least}" if claim.at_least is not None else f"≤ {claim.at_most}"
    return f"| {claim.text} | {claim.paper or ''} | {figure} | {bar} | {verdict.state} |"


def main() -> None:
    """Measure or read, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="divergence-decoding/mini-tofu")
    parser.add_argument("--seeds", type=int, nargs="*")
    parser.add_argument("--columns", nargs="+", default=COLUMNS, help="metrics that the first table shows")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    chosen = {} if options.seeds is None else {"seeds": options.seeds}
    done = icml26.reproduce(options.recipe, jobs=options.jobs, threads=1, figures="none", **chosen)
    keys = options.columns
    print("| method | " + " | ".join(keys) + " | seconds |")
    print("| --- " * (len(keys) + 2) + "|")
    for row in done.bench.rows:
        cells = [number(row.cells.get(key, "–")) for key in keys]
        spent = [o.record.seconds["run"] for o in row.outcomes if o.record is not None]  # type: ignore[attr-defined]
        print(f"| {row.method} | " + " | ".join(cells) + f" | {sum(spent) / max(1, len(spent)):.0f} |")
    for title, verdicts in (("precondition", done.preconditions), ("claim", done.claims)):
        print(f"\n| {title} | paper | measured | bar | |\n| --- | --- | --- | --- | --- |")
        for verdict in verdicts:
            print(verdict_row(verdict))


if __name__ == "__main__":
    main()
