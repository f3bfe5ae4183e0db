"""``icml26 registry``: which registries this user trusts, and tools for those who publish one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icml26.cli.output import console

if TYPE_CHECKING:
    from icml26.registry.reader import Registry

registry = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Registries of plugins: the ones that you trust, and tools to publish your own.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


@registry.command("list")
def list_registries(as_json: _Json = False) -> None:
    """List the registries that are used, and how many plugins each has."""
    from icml26.registry.sources import read_all, sources

    output = console()
    chosen = sources()
    read, unread = read_all(chosen)
    by_name = {item.name: item for item in read}
    failed = {item.name: item.reason for item in unread}
    rows = [
        {
            "name": item.name,
            "location": item.location,
            "plugins": len(by_name[item.name].plugins) if item.name in by_name else None,
            "skipped": len(by_name[item.name].rejected) if item.name in by_name else None,
            "error": failed.get(item.name),
        }
        for item in chosen
    ]
    if as_json:
        output.json("registry-list", {"registries": rows})
        return
    output.table(
        ("registry", "plugins", "location"),
        [
            (
                str(row["name"]),
                "-" if row["plugins"] is None else str(row["plugins"]),
                f"{row['location']}" + (f" ({row['error']})" if row["error"] else ""),
            )
            for row in rows
        ],
    )


@registry.command("add")
def add_registry(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What you call it; plugins become NAME/plugin.")],
    location: Annotated[
        str, typer.Argument(metavar="PATH-OR-URL", help="A registry.toml: a path, or an https:// URL.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: _Json = False,
) -> None:
    """Trust a registry: from now on `search` shows its plugins, and `install` installs them."""
    from icml26.cli.install import confirm
    from icml26.registry.sources import add, resolve_location

    place = resolve_location(location)
    confirm(
        f"Trust the registry at {place}? Whoever writes it decides which software `icml26 install` brings to this machine.",
        yes,
    )
    source, found = add(name, location)
    _report(found)
    if as_json:
        console().json("registry-add", {"name": name, "location": source.location, "plugins": len(found.plugins)})
    else:
        console().write(f"{name}: {_plural(len(found.plugins), 'plugin')}")


@registry.command("remove")
def remove_registry(name: Annotated[str, typer.Argument(metavar="NAME")], as_json: _Json = False) -> None:
    """Forget a registry; plugins that came from it stay installed."""
    from icml26.registry.sources import remove

    source = remove(name)
    if as_json:
        console().json("registry-remove", {"name": source.name, "location": source.location})
    else:
        console().write(f"removed {source.name}")


@registry.command("update")
def update_registries() -> None:
    """Fetch the remote registries anew (otherwise once a day)."""
    from icml26.registry.sources import read_all, sources

    read, unread = read_all(sources(), refresh=True)
    for found in read:
        _report(found)
        console().write(f"{found.name}: {_plural(len(found.plugins), 'plugin')}")
    for item in unread:
        console().warn(f"{item.name}: {item.reason}")
    if unread:
        raise typer.Exit(4)


@registry.command("check")
def check_registry(
    location: Annotated[str, typer.Argument(metavar="NAME-PATH-OR-URL", help="An added registry, or a registry.toml.")],
    as_json: _Json = False,
) -> None:
    """Check a registry for those who publish it: every entry that users would not see, and why."""
    from icml26.registry.sources import Source, read, resolve_location, sources

    known = {item.name: item for item in sources()}
    source = known.get(location) or Source("checked", resolve_location(location))
    found = read(source, refresh=True)
    if as_json:
        checks = [
            {"id": "entry", "severity": "error", "message": f"{item.entry}: {item.reason}", "fix": "correct the entry"}
            for item in found.rejected
        ]
        checks += [
            {"id": "unknown-key", "severity": "warning", "message": text, "fix": "remove or correct the key"}
            for text in found.warnings
        ]
        console().json("registry-check", {"plugins": len(found.plugins), "checks": checks})
    else:
        _report(found)
        console().write(f"{_plural(len(found.plugins), 'plugin')} good, {len(found.rejected)} refused")
    raise typer.Exit(1 if found.rejected else 0)


@registry.command("entry")
def registry_entry(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a plugin's project.")],
    git: Annotated[str | None, typer.Option("--git", metavar="URL", help="Its repository, for a git source.")] = None,
    revision: Annotated[str | None, typer.Option("--revision", metavar="COMMIT", help="The full commit id.")] = None,
    subdirectory: Annotated[str | None, typer.Option("--subdirectory", metavar="DIR")] = None,
    path: Annotated[
        str | None, typer.Option("--path", metavar="PATH", help="For a path source: seen from the registry.")
    ] = None,
    wheel: Annotated[
        list[Path] | None,
        typer.Option("--wheel", metavar="FILE", help="A released wheel, for its sha256 (repeatable)."),
    ] = None,
) -> None:
    """Print the registry entry of a plugin, made from its own metadata: append it to your registry.toml."""
    from icml26.errors import UsageError
    from icml26.registry.generate import entry_toml, project_entry, wheel_row

    if (git is None) != (revision is None) or (git and path) or (subdirectory and not git):
        raise UsageError(
            "a git source needs --git and --revision (and perhaps --subdirectory), a path source --path alone"
        )
    source: dict[str, str] = {"kind": "index"}
    if git and revision:
        source = {"kind": "git", "url": git, "revision": revision}
        if subdirectory:
            source["subdirectory"] = subdirectory
    elif path:
        source = {"kind": "path", "path": path}
    entry = project_entry(folder, source) | {"wheels": [wheel_row(file) for file in wheel or ()]}
    console().write(entry_toml(entry))


@registry.command("schema")
def registry_schema() -> None:
    """Print the JSON schema of registry.toml."""
    from icml26.registry.model import json_schema

    console().write(json.dumps(json_schema(), indent=1))


def _report(found: Registry) -> None:
    for item in found.rejected:
        console().warn(f"{item.entry} is refused: {item.reason}")
    for text in found.warnings:
        console().warn(text)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
