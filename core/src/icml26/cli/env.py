"""``icml26 env``: the environments in which ``--executor env`` runs methods."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

import typer

from icml26.cli.output import console

env = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Environments of their own for methods whose dependencies cannot live together; see `--executor env`.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


@env.command("list")
def list_environments(as_json: _Json = False) -> None:
    """List the environments, the one that was used last first."""
    from icml26.environments import Environments, environment_row

    rows = [environment_row(item) for item in Environments().ready()]
    output = console()
    if as_json:
        output.json("env-list", {"environments": rows})
        return
    output.table(
        ("environment", "size", "last used", "made for"),
        [
            (
                row["key"],
                f"{row['bytes'] / 2**20:.0f} MB",
                row["used"][:16],
                ", ".join(line.split(" @ ")[0] for line in row["needs"]),
            )
            for row in rows
        ],
    )


@env.command("create")
def create_environment(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="A method's name, bare or plugin/name.")],
    dataset: Annotated[
        str | None, typer.Option("--dataset", "-d", help="Dataset; the method's default without it.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Make the environment in which a method would run, ahead of a bench; nothing happens when it is there."""
    from icml26.environments import Environments, environment_row
    from icml26.needs import needs_of
    from icml26.plan import Choice, Planner, Settings, applicable
    from icml26.plugins import load_catalog

    catalog = load_catalog()
    plan = Planner(catalog, Settings()).plan(Choice(method), Choice(dataset) if dataset else None)
    output = console()
    with Environments(say=output.note) as environments:
        environment = environments.ensure(needs_of(catalog, applicable(plan)))
    if as_json:
        output.json("env-create", {"environment": environment_row(environment)})
    else:
        output.write(f"{environment.key}\t{environment.folder}")


@env.command("prune")
def prune_environments(
    unused: Annotated[
        str, typer.Option("--unused", metavar="AGE", help="Only those not used for this long: 12h, 30d.")
    ] = "30d",
    everything: Annotated[bool, typer.Option("--all", help="All that nobody uses now.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would be removed.")] = False,
    as_json: _Json = False,
) -> None:
    """Remove environments that were not used for a while, and what killed builds left; one in use is never removed."""
    from icml26.environments import Environments

    removed, busy = Environments().prune(unused_for=timedelta(0) if everything else _age(unused), dry_run=dry_run)
    output = console()
    if as_json:
        output.json("env-prune", {"removed": [] if dry_run else removed, "selected": removed, "in_use": busy})
        return
    for key in removed:
        output.write(("would remove " if dry_run else "removed ") + key)
    for key in busy:
        output.note(f"{key} is in use and stays")


def _age(text: str) -> timedelta:
    from icml26.errors import UsageError

    match = re.fullmatch(r"(\d{1,5})([mhd])", text)
    if match is None:
        raise UsageError(f"--unused {text!r}: a number and m, h or d is expected, such as 30d")
    unit = {"m": "minutes", "h": "hours", "d": "days"}[match[2]]
    return timedelta(**{unit: int(match[1])})
