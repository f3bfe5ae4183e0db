"""The full command line: typer, with every command imported only when it is called."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from icml26.cli.commands import COMMANDS, SECTIONS
from icml26.cli.output import COLOR_CHOICES, GlobalOptions
from icml26.cli.user_config import apply_user_config

_EPILOG = (
    "Every command has --help. Exit codes: 0 done, 1 a run failed or something is broken, 2 wrong usage or input, \
3 a bug, 4 environment or network, 5 nothing selected, 130 interrupted."
)


class LazyGroup(TyperGroup):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command; None when there is none of this name."""
        command = COMMANDS.get(cmd_name)
        return None if command is None else load_command(cmd_name, command.target)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands by section, from the table alone."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, command.summary) for name, command in commands.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer does, but nearest names are looked for in the table."""
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]
        return super().resolve_command(ctx, args)


def load_command(name: str, target: str) -> Any:
    """The click command of ``module:name``: a function with typer annotations, or a ``typer.Typer``."""
    module, _, attribute = target.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name)(found)
        found = single
    command = typer.main.get_command(found)
    command.name = name
    return command


def _version(asked: bool) -> None:
    if asked:
        from icml26 import __version__

        typer.echo(f"icml26 {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    color: Annotated[
        str, typer.Option("--color", metavar="|".join(COLOR_CHOICES), help="When to use colours; stands anywhere.")
    ] = "auto",
    traceback: Annotated[bool, typer.Option("--traceback", help="Show tracebacks of errors; stands anywhere.")] = False,
) -> None:
    """The papers of ICML 2026 as methods, datasets and metrics: install, run, compare, reproduce."""


def build() -> Any:
    """The root command."""
    app = typer.Typer(
        cls=LazyGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        epilog=_EPILOG,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return typer.main.get_command(app)


def run(arguments: Sequence[str], options: GlobalOptions) -> int:
    """Run a command line; the exit code. Errors of icml26 are the caller's to show."""
    # Pydantic looks through every installed distribution for plugins of its own when the first model is built.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if options.color != "auto":
        os.environ["FORCE_COLOR" if options.color == "always" else "NO_COLOR"] = "1"
    if list(arguments[:1]) != ["doctor"]:  # it is what names a faulty file
        apply_user_config()
    # A polite end is an interruption: records and stores are left in order, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        build().main(args=list(arguments) or ["--help"], prog_name="icml26")
    except SystemExit as end:
        cause = _cause(end)
        if cause is not None:
            raise cause from None
        if isinstance(end.code, int):
            return end.code
        if end.code is None:
            return 0
        raise
    return 0


def _cause(end: SystemExit) -> BaseException | None:
    """The closed pipe or the Ctrl-C that typer turned into its own exit; versions wrap it once or twice."""
    error: BaseException | None = end.__context__
    while error is not None and not isinstance(error, BrokenPipeError | KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error
