"""The commands that only look: answered from static indexes before typer, pydantic or NumPy are imported.

Whatever this does not understand (``--help``, a wrong option, another command) is left to the full command line, which
knows the same commands; so this changes how fast they are, never what they say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from icml26.cli.output import Output

_KINDS = {"list-methods": "method", "list-datasets": "dataset", "list-metrics": "metric", "list-tasks": "task"}
_VALUED: dict[str, tuple[str, ...]] = {
    "list-methods": ("--task", "--plugin", "--role"),
    "list-datasets": ("--task", "--plugin"),
    "list-metrics": ("--task", "--plugin"),
    "list-tasks": ("--plugin",),
    "list-plugins": (),
    "show": ("--kind",),
}


def answer(arguments: Sequence[str], environ: Mapping[str, str], output: Output) -> int | None:
    """The exit code of a command that was answered here, None for all others."""
    instruction = environ.get("_ICML26_COMPLETE")
    if instruction:
        from icml26.cli.complete import complete

        return complete(instruction, environ, output)
    if list(arguments) in (["--version"], ["-V"]):
        from icml26 import __version__

        output.write(f"icml26 {__version__}")
        return 0
    if not arguments or arguments[0] not in _VALUED:
        return None
    command, *rest = arguments
    parsed = parse(rest, _VALUED[command], positional=command == "show")
    if parsed is None:
        return None
    options, flags, name = parsed
    if command == "show":
        from icml26.cli.show import show

        return show(name, options.get("--kind"), output, as_json="--json" in flags)
    from icml26.cli.lists import Filter, list_kind, list_plugins

    if command == "list-plugins":
        return list_plugins(output, as_json="--json" in flags)
    chosen = Filter(options.get("--task"), options.get("--plugin"), options.get("--role"))
    return list_kind(_KINDS[command], chosen, output, as_json="--json" in flags)  # type: ignore[arg-type]


def parse(
    arguments: Sequence[str], valued: Sequence[str], *, positional: bool
) -> tuple[dict[str, str], set[str], str] | None:
    """Options with a value, flags and the one positional argument; None for anything that is not plainly right."""
    options: dict[str, str] = {}
    flags: set[str] = set()
    names: list[str] = []
    items = iter(arguments)
    for item in items:
        key, equals, value = item.partition("=")
        if item == "--json":
            flags.add(item)
        elif key in valued:
            if not equals:
                following = next(items, None)
                if following is None or following.startswith("-"):
                    return None
                value = following
            options[key] = value
        elif item.startswith("-"):
            return None
        else:
            names.append(item)
    if len(names) != (1 if positional else 0):
        return None
    return options, flags, names[0] if names else ""
