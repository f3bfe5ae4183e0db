"""``icml26 report``: the records as a static site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder of the site; an older report is replaced.")
    ] = Path("icml26-report"),
    task: Annotated[list[str] | None, typer.Option("--task", metavar="TASK", help="Only these tasks.")] = None,
    method: Annotated[list[str] | None, typer.Option("--method", metavar="NAME", help="Only these methods.")] = None,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", "-d", metavar="NAME", help="Only these datasets.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help="Only runs started since, e.g. 2026-08-01.")
    ] = None,
    title: Annotated[str, typer.Option("--title", help="The site's title.")] = "icml26 results",
    bundle: Annotated[
        bool, typer.Option("--bundle", help="Copy logs and artifacts into the site, so that it can be moved.")
    ] = False,
    store: Annotated[Path | None, typer.Option("--store", metavar="FILE", help="The file of records.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Write leaderboards, curves, trade-offs, claims and a page for every run.

    Open index.html in a browser; no network is needed.
    """
    from icml26.cli.output import console
    from icml26.errors import EnvironmentError_
    from icml26.reproduction import kept_reproductions
    from icml26.result_set import results

    try:
        from icml26.report import build_report
    except ImportError as error:
        raise EnvironmentError_(f"{error.name} is missing; the report needs: pip install 'icml26[report]'") from error
    found = results(task=task, method=method, dataset=dataset, since=since, store=store)
    if not found.runs:
        console().error("the store has no such runs; `icml26 run` and `icml26 bench` make some")
        raise typer.Exit(5)
    ids = {run.id for run in found.runs}
    kept = [item for item in kept_reproductions() if ids & {cell.get("record") for cell in item.get("cells") or ()}]
    summary = build_report(
        zip(found, found.folders(), strict=True), output, reproductions=kept, title=title, bundle=bundle
    )
    for identity, fault in summary.skipped.items():
        console().warn(f"record {identity} is left out: {fault}")
    if as_json:
        body = {
            "index": str(summary.index),
            "runs": summary.runs,
            "tasks": summary.tasks,
            "plots": summary.plots,
            "plots_left_out": summary.plots_left_out,
            "recipes": summary.recipes,
            "skipped": summary.skipped,
        }
        console().json("report", body)
    else:
        console().write(str(summary.index))
