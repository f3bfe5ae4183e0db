"""``icml26 new-plugin``: begin a plugin from the template."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from icml26.cli.output import console


def new_plugin(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Short name in kebab-case; usually the method's name.")],
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Title of the paper.")] = None,
    author: Annotated[str | None, typer.Option("--author", metavar="TEXT", help="Who writes the plugin.")] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="The new task, field.noun; NAME.estimation without it.")
    ] = None,
    license_: Annotated[
        str, typer.Option("--license", metavar="SPDX", help="Apache-2.0, MIT or BSD-3-Clause.")
    ] = "Apache-2.0",
    arxiv: Annotated[str, typer.Option("--arxiv", metavar="ID", help="The paper's arXiv id.")] = "",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="The project's folder; icml26-plugin-NAME without it."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--template", metavar="GIT", help="A git repository of the template in place of the one that is carried."
        ),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option("--revision", metavar="REF", help="Tag or commit of --template; its newest tag without it."),
    ] = None,
) -> None:
    """Begin a plugin: a project with a new task, a method, a baseline, a dataset, a metric, and tests that pass."""
    from icml26.new_plugin import Answers
    from icml26.new_plugin import new_plugin as generate

    answers = Answers(
        name,
        title if title is not None else _ask("title", "Title of the paper"),
        author if author is not None else _ask("author", "Who writes the plugin"),
        task or "",
        license_,
        arxiv,
    )
    folder = generate(answers, output or Path(f"icml26-plugin-{name}"), template=template, revision=revision)
    console().write(str(folder))
    console().note(f"next: cd {folder}; pip install -e '.[test]'; pytest; icml26 run {name}")


def _ask(option: str, question: str) -> str:
    from icml26.errors import UsageError

    if not sys.stdin.isatty():
        raise UsageError(f"--{option} is missing, and nobody can be asked here")
    return str(typer.prompt(question, err=True))
