"""The commands by name: where each is implemented, and what it does in one line. Adding a command is one line here."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """``target`` is ``"module:name"`` of a function with typer annotations, or of a ``typer.Typer`` with sub-commands."""

    target: str
    summary: str


SECTIONS: dict[str, dict[str, Command]] = {
    "Look": {
        "list-methods": Command("icml26.cli.look:list_methods", "Methods that are installed"),
        "list-datasets": Command("icml26.cli.look:list_datasets", "Datasets that are installed"),
        "list-metrics": Command("icml26.cli.look:list_metrics", "Metrics that are installed"),
        "list-tasks": Command("icml26.cli.look:list_tasks", "Tasks, and how many methods and datasets each has"),
        "list-plugins": Command("icml26.cli.look:list_plugins", "Plugins, and what is wrong with those that fail"),
        "show": Command("icml26.cli.look:show", "A method, dataset, metric or task with all its options"),
    },
    "Run": {
        "run": Command("icml26.cli.run:run", "Run a method on a dataset, beside its reference"),
        "bench": Command("icml26.cli.bench:bench", "Run methods on datasets for several seeds, and compare them"),
        "reproduce": Command("icml26.cli.reproduce:reproduce", "Measure the claims of a paper: does it hold here?"),
        "results": Command("icml26.cli.results:app", "Query, export, merge and rescore what was recorded"),
        "report": Command("icml26.cli.report:report", "Write a site of tables, plots and runs that opens offline"),
    },
    "Look after plugins": {
        "check-plugin": Command("icml26.cli.check_plugin:check_plugin", "Check that a plugin keeps the contracts"),
        "new-plugin": Command("icml26.cli.new_plugin:new_plugin", "Begin a plugin from the template"),
        "search": Command("icml26.cli.search:search", "Plugins that can be installed, from the registries"),
        "info": Command("icml26.cli.search:info", "What the registries say about a plugin"),
        "install": Command("icml26.cli.install:install", "Install plugins that a registry lists"),
        "uninstall": Command("icml26.cli.install:uninstall", "Uninstall plugins, broken ones too"),
        "registry": Command("icml26.cli.registry:registry", "Add, remove, list, check registries of plugins"),
        "env": Command("icml26.cli.env:env", "Environments of their own, for methods that cannot live together"),
        "doctor": Command("icml26.cli.doctor:doctor", "What is wrong with this installation, and how to mend it"),
    },
}

COMMANDS: dict[str, Command] = {name: command for section in SECTIONS.values() for name, command in section.items()}
