"""``icml26 search`` and ``icml26 info``: what can be installed, from the registries of this user."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icml26.cli.output import console

if TYPE_CHECKING:
    from icml26.registry.federation import Federation, Listed

_Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
_Refresh = Annotated[bool, typer.Option("--refresh", help="Fetch remote registries anew.")]


def search(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD]...", help="Words that must all occur; everything without them."),
    ] = None,
    task: Annotated[str | None, typer.Option("--task", metavar="TASK", help="Only plugins of this task.")] = None,
    refresh: _Refresh = False,
    as_json: _Json = False,
) -> None:
    """Search the registries for plugins by name, method, task, paper, author."""
    from icml26.registry.federation import open_federation

    federation = open_federation(refresh=refresh)
    found = federation.search(words or (), task=task)
    output = console()
    warn(federation)
    if as_json:
        output.json("search", {"plugins": [as_row(item) for item in found], "warnings": list(federation.warnings)})
        return
    several = len(federation.registries) > 1
    output.table(
        ("plugin", "installed", "summary"),
        [
            (item.qualified if several else item.entry.name, as_row(item)["installed"] or "-", item.entry.summary)
            for item in found
        ],
    )
    if not found:
        output.note("nothing found; `icml26 search` without words lists everything")


def info(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A plugin's name, registry/plugin, or a distribution's.")],
    refresh: _Refresh = False,
    as_json: _Json = False,
) -> None:
    """Show what the registries say about a plugin, and whether it is installed."""
    from icml26.errors import UsageError
    from icml26.registry.federation import open_federation

    federation = open_federation(refresh=refresh)
    warn(federation)
    try:
        row = as_row(federation.find(name))
    except UsageError:
        installed = _installed_row(name)
        if installed is None:
            raise
        row = installed
    output = console()
    if as_json:
        output.json("info", {"plugin": row, "warnings": list(federation.warnings)})
        return
    paper = row["paper"]
    source = row["source"] or {}
    lines = {
        "plugin": f"{row['name']} ({row['distribution']})",
        "summary": row["summary"],
        "paper": paper and ", ".join(filter(None, (paper["title"], paper["venue"], paper.get("arxiv")))),
        "authors": paper and ", ".join(paper["authors"]),
        "tasks": ", ".join(row["tasks"]),
        "methods": ", ".join(row["methods"]),
        "datasets": ", ".join(row["datasets"]),
        "licence": row["license"],
        "maintainers": ", ".join(row["maintainers"]),
        "homepage": row["homepage"],
        "registry": row["registry"],
        "source": ", ".join(f"{key} {value}" for key, value in source.items() if value is not None),
        "releases": ", ".join(wheel["file"] for wheel in row["wheels"]),
        "installed": row["installed"] or f"no; icml26 install {row['name']}",
    }
    width = max(map(len, lines))
    output.write("\n".join(f"{key:<{width}}  {value}" for key, value in lines.items() if value))


def as_row(item: Listed) -> dict[str, Any]:
    """An entry as JSON, with its registry and the version that is installed (None when it is not)."""
    from icml26.registry.install import installed_version

    entry = item.entry.model_dump(mode="json", include=set(type(item.entry).model_fields))
    return {**entry, "registry": item.registry.name, "installed": installed_version(item.entry.distribution)}


def _installed_row(name: str) -> dict[str, Any] | None:
    """What an installed plugin that no registry lists says about itself; None when there is none of this name."""
    from icml26.plugins import load_catalog

    catalog = load_catalog()
    plugin = next((item for item in catalog.plugins if name in (item.name, item.distribution)), None)
    if plugin is None:
        return None
    own = [entry for entry in catalog.entries if entry.distribution == plugin.distribution]
    names = {kind: [entry.name for entry in own if entry.kind == kind] for kind in ("method", "dataset", "task")}
    papers = [entry.spec.paper for entry in own if entry.kind == "method" and entry.spec.paper]
    return {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "summary": "installed here, and listed by no registry",
        "source": None,
        "core_api": plugin.core_api,
        "license": None,
        "homepage": None,
        "maintainers": [],
        "paper": asdict(papers[0]) if papers else None,
        "tasks": list(dict.fromkeys([*names["task"], *(e.spec.task for e in own if e.kind in ("method", "dataset"))])),
        "methods": names["method"],
        "datasets": names["dataset"],
        "wheels": [],
        "registry": None,
        "installed": plugin.version,
    }


def warn(federation: Federation) -> None:
    """One line on standard error for everything that was skipped."""
    for text in federation.warnings:
        console().warn(text)
