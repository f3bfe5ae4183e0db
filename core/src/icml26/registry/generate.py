"""Write a registry from the plugins themselves: their ``pyproject.toml`` and their static index.

``python -m icml26.registry.generate ROOT`` writes ``ROOT/registry.toml`` from ``ROOT/plugins/*``, and the format's JSON schema
into ``ROOT/docs``; ``--check`` only compares the registry.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, parse_wheel_filename
from pydantic import ValidationError

from icml26.errors import InputError
from icml26.records import write_text_durably
from icml26.registry import toml
from icml26.registry.model import PluginEntry, json_schema
from icml26.registry.reader import parse_registry, read_registry
from icml26.smallfiles import read_bytes, read_text

HEADER = """\
# Plugins of icml26, generated from their own metadata: do not edit, run `nox -s registry`.
# The format is described in docs/registry.md; anybody can publish such a file: `icml26 registry add NAME PATH-OR-URL`.
"""


class UnfinishedError(InputError):
    """A project that has no index yet."""


def project_entry(folder: Path, source: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The registry entry of a plugin's project folder; ``source`` defaults to the package index.

    Raises InputError when the project has no entry point in group ``icml26`` or no readable index.
    """
    pyproject = folder / "pyproject.toml"
    try:
        project = tomllib.loads(read_text(pyproject))["project"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{pyproject}: no readable [project] table ({error})") from error
    points = project.get("entry-points", {}).get("icml26", {})
    if len(points) != 1:
        raise InputError(f"{pyproject}: exactly one entry point in group 'icml26' is expected, found {len(points)}")
    name, module = next(iter(points.items()))
    index = _index(folder, str(module).split(".")[0])
    methods, datasets = index.get("methods", []), index.get("datasets", [])
    paper = next((item["paper"] for item in methods if item.get("role") == "paper" and item.get("paper")), None)
    tasks = [item["name"] for item in index.get("tasks", [])]
    tasks += [item["task"] for item in (*methods, *datasets)]
    homepage = next(
        (url for key, url in project.get("urls", {}).items() if key.lower() in ("homepage", "repository")), None
    )
    return {
        "name": name,
        "distribution": str(canonicalize_name(project["name"])),
        "summary": project.get("description", ""),
        "source": dict(source or {"kind": "index"}),
        "core_api": index.get("core_api", 1),
        "license": project.get("license") if isinstance(project.get("license"), str) else None,
        "homepage": homepage,
        "maintainers": [
            person["name"] for person in project.get("maintainers") or project.get("authors", []) if "name" in person
        ],
        "paper": None if paper is None else {key: value for key, value in paper.items() if value not in (None, [], ())},
        "tasks": list(dict.fromkeys(tasks)),
        "methods": [item["name"] for item in methods],
        "datasets": [item["name"] for item in datasets],
    }


def wheel_row(path: Path) -> dict[str, str]:
    """The file name and sha256 of a released wheel; raises InputError when it cannot be read."""
    try:
        return {"file": path.name, "sha256": hashlib.sha256(read_bytes(path)).hexdigest()}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def entry_toml(entry: Mapping[str, Any]) -> str:
    """One entry as a ``[[plugin]]`` table, after it passed the rules that every reader applies; raises InputError."""
    kept = {key: value for key, value in entry.items() if value not in (None, [], (), "", {})}
    try:
        PluginEntry.model_validate(kept)
    except ValidationError as error:
        raise InputError(f"plugin {entry.get('name')}: its entry would be refused: {error}") from error
    return toml.table("[[plugin]]", kept)


def registry_toml(entries: Iterable[Mapping[str, Any]], *, title: str, header: str = HEADER) -> str:
    """A whole registry document, entries sorted by name."""
    parts = [header, toml.table("", {"schema": 1, "title": title}).lstrip("\n")]
    parts += [entry_toml(entry) for entry in sorted(entries, key=lambda entry: str(entry["name"]))]
    return "\n".join(parts)


def generate(root: Path, *, wheels: Path | None = None) -> str:
    """The text of the repository's registry; hashes of released wheels are kept, and read anew from ``wheels``.

    A plugin that has no index yet is left out, with a line on standard error.
    """
    target = root / "registry.toml"
    released: dict[str, list[dict[str, str]]] = {}
    if target.exists():
        for entry in read_registry(target, "icml26").plugins:
            released[entry.distribution] = [wheel.model_dump() for wheel in entry.wheels]
    for path in sorted(wheels.glob("*.whl")) if wheels is not None else ():
        distribution = str(canonicalize_name(parse_wheel_filename(path.name)[0]))
        others = [wheel for wheel in released.get(distribution, []) if wheel["file"] != path.name]
        released[distribution] = [*others, wheel_row(path)]
    entries = []
    for pyproject in sorted(root.glob("plugins/*/pyproject.toml")):
        try:
            made = project_entry(pyproject.parent)
        except UnfinishedError as error:
            sys.stderr.write(f"left out: {error}\n")
            continue
        entries.append({**made, "wheels": released.get(made["distribution"], [])})
    text = registry_toml(entries, title="Papers of ICML 2026")
    registry = parse_registry(text.encode("utf-8"), "icml26", str(target))
    if registry.rejected:
        raise InputError("; ".join(f"{item.entry}: {item.reason}" for item in registry.rejected))
    return text


def main(argv: list[str] | None = None) -> int:
    """Command line of the generator; 1 when ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m icml26.registry.generate", description=__doc__)
    parser.add_argument("root", type=Path, help="the repository's folder")
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--wheels", type=Path, help="a folder of released wheels whose sha256 are written")
    options = parser.parse_args(argv)
    target = options.root / "registry.toml"
    text = generate(options.root, wheels=options.wheels)
    current = target.read_text(encoding="utf-8") if target.exists() else ""
    if not options.check:
        write_text_durably(target, text)
        if (options.root / "docs").is_dir():
            published = options.root / "docs" / "registry.schema.json"
            write_text_durably(published, json.dumps(json_schema(), indent=1) + "\n")
    elif text != current:
        difference = difflib.unified_diff(
            current.splitlines(), text.splitlines(), "registry.toml", "generated", lineterm="", n=1
        )
        sys.stderr.write("\n".join(difference) + "\nregistry.toml is out of date: run `nox -s registry`\n")
        return 1
    return 0


def _index(folder: Path, package: str) -> dict[str, Any]:
    for base in (folder / "src", folder):
        path = base / package / "icml26-index.json"
        if path.exists():
            try:
                document = json.loads(read_text(path))
            except ValueError as error:
                raise InputError(f"{path}: not valid JSON ({error})") from error
            if isinstance(document, dict) and document.get("schema") == "icml26.index/1":
                return document
            raise InputError(f"{path}: not an index of schema icml26.index/1")
    raise UnfinishedError(
        f"{folder}: {package}/icml26-index.json is missing; write it: icml26 check-plugin NAME --write-index"
    )


if __name__ == "__main__":
    raise SystemExit(main())
