"""``icml26 install`` and ``icml26 uninstall``."""

from __future__ import annotations

from typing import Annotated

import typer

from icml26.cli.output import console

_Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Check everything, change nothing.")]


def install(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Plugins: name, registry/name, or the distribution's name.")
    ],
    allow_build: Annotated[
        bool,
        typer.Option("--allow-build", help="Allow source builds; a build runs the plugin's code on this machine."),
    ] = False,
    upgrade: Annotated[bool, typer.Option("--upgrade", "-U", help="Also when it is installed already.")] = False,
    index_url: Annotated[
        str | None,
        typer.Option("--index-url", "-i", metavar="URL", help="Package index in place of the installer's own."),
    ] = None,
    extra_index_url: Annotated[
        list[str] | None, typer.Option("--extra-index-url", metavar="URL", help="A further index (repeatable).")
    ] = None,
    constraint: Annotated[
        list[str] | None,
        typer.Option("--constraint", "-c", metavar="FILE", help="Versions that dependencies must have (repeatable)."),
    ] = None,
    no_deps: Annotated[
        bool,
        typer.Option(
            "--no-deps", help="The plugin alone; `--executor env` gives it what it needs in an environment of its own."
        ),
    ] = False,
    dry_run: _DryRun = False,
    as_json: _Json = False,
) -> None:
    """Install plugins that a registry lists.

    A wheel is downloaded, compared with its sha256 and only then handed to pip or uv. Nothing is started for an entry that
    breaks the rules of registries.
    """
    from icml26.cli.search import warn
    from icml26.registry.federation import open_federation
    from icml26.registry.install import Options, outcome_rows
    from icml26.registry.install import install as install_plugins
    from icml26.registry.target import IndexOptions, forgetful_tool, this_environment

    output = console()
    federation = open_federation()
    warn(federation)
    indexes = IndexOptions(index_url, tuple(extra_index_url or ()), existing_files(constraint or ()))
    options = Options(indexes, allow_build=allow_build, upgrade=upgrade, alone=no_deps, dry_run=dry_run)
    outcomes = install_plugins(names, federation, this_environment, options, say=output.note)
    hint = forgetful_tool([item.distribution for item in outcomes])
    if hint:
        output.warn(hint)
    if as_json:
        output.json("install", {"plugins": outcome_rows(outcomes)})
        return
    output.table(
        ("plugin", "distribution", "status"),
        [(item.plugin, f"{item.distribution} {item.version or ''}".strip(), item.status) for item in outcomes],
    )
    if any(item.status == "already-installed" for item in outcomes):
        output.note("already installed ones are left alone without --upgrade")


def uninstall(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Plugins, by their name or distribution's.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: _DryRun = False,
    as_json: _Json = False,
) -> None:
    """Uninstall plugins; also those that crash, exit or hang when they are imported: none of their code runs."""
    from icml26.registry.install import to_uninstall
    from icml26.registry.install import uninstall as uninstall_plugins
    from icml26.registry.target import this_environment

    distributions = to_uninstall(names)
    if not dry_run:
        environment = this_environment()
        confirm(f"uninstall {', '.join(distributions)}?", yes)
        uninstall_plugins(distributions, environment)
    if as_json:
        console().json("uninstall", {"removed": [] if dry_run else distributions, "selected": distributions})
    else:
        console().write("\n".join(("would remove " if dry_run else "removed ") + name for name in distributions))


def confirm(question: str, yes: bool) -> None:
    """Ask on the terminal; without one ``--yes`` must have been given. Raises UsageError, or ends when the answer is no."""
    import sys

    from icml26.errors import UsageError

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody can be asked here; say --yes")
    if not typer.confirm(question, err=True):
        console().note("nothing was changed")
        raise typer.Exit(0)


def existing_files(paths: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Absolute paths of files that exist; raises UsageError."""
    from pathlib import Path

    from icml26.errors import UsageError

    for path in paths:
        if not Path(path).is_file():
            raise UsageError(f"--constraint {path}: no such file")
    return tuple(str(Path(path).absolute()) for path in paths)
