"""The list commands and ``show`` for the full command line: their options and help; ``icml26.cli.fast`` runs the same code."""

from __future__ import annotations

from typing import Annotated

import typer

from icml26.catalog import Kind
from icml26.cli.lists import Filter, list_kind
from icml26.cli.output import console

_Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
_Task = Annotated[str | None, typer.Option("--task", metavar="TASK", help="Only of this task.")]
_Plugin = Annotated[str | None, typer.Option("--plugin", metavar="PLUGIN", help="Only of this plugin or distribution.")]


def list_methods(
    task: _Task = None,
    plugin: _Plugin = None,
    role: Annotated[
        str | None, typer.Option("--role", metavar="ROLE", help="paper, baseline, reference or oracle.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """List the methods that are installed: the papers', their baselines, references and oracles."""
    _list("method", Filter(task, plugin, role), as_json)


def list_datasets(task: _Task = None, plugin: _Plugin = None, as_json: _Json = False) -> None:
    """List the datasets that are installed."""
    _list("dataset", Filter(task, plugin), as_json)


def list_metrics(task: _Task = None, plugin: _Plugin = None, as_json: _Json = False) -> None:
    """List the metrics that are installed."""
    _list("metric", Filter(task, plugin), as_json)


def list_tasks(plugin: _Plugin = None, as_json: _Json = False) -> None:
    """List the tasks, and how many methods and datasets each has."""
    _list("task", Filter(None, plugin), as_json)


def list_plugins(as_json: _Json = False) -> None:
    """List the plugins that are installed; one that cannot be used is there with the reason."""
    from icml26.cli import lists

    raise typer.Exit(lists.list_plugins(console(), as_json=as_json))


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Bare or plugin/name; a task is field.noun.")],
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="method, dataset, metric or task; all without it.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Show a method, dataset, metric or task with all its options, their defaults and bounds."""
    from icml26.cli import show as shown

    raise typer.Exit(shown.show(name, kind, console(), as_json=as_json))


def _list(kind: Kind, chosen: Filter, as_json: bool) -> None:
    raise typer.Exit(list_kind(kind, chosen, console(), as_json=as_json))
