"""Read a registry: the document as a whole is refused or accepted, entries are judged one by one."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from icml26.errors import InputError
from icml26.registry.model import SCHEMA, PathSource, PluginEntry
from icml26.registry.rules import shown
from icml26.smallfiles import read_bytes

SIZE_LIMIT = 5 << 20
ENTRY_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class Rejected:
    """An entry that was skipped, and why."""

    entry: str
    reason: str


@dataclass(frozen=True, slots=True)
class Registry:
    """A read registry. ``folder`` is where its path sources start, None for one that came over a network."""

    name: str
    location: str
    folder: Path | None = None
    title: str = ""
    plugins: tuple[PluginEntry, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = ()


def read_registry(path: Path, name: str) -> Registry:
    """Read the registry file at ``path``; raises InputError when the whole document cannot be used."""
    try:
        data = read_bytes(path, SIZE_LIMIT)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    return parse_registry(data, name, str(path), folder=path.resolve().parent)


def parse_registry(data: bytes, name: str, location: str, folder: Path | None = None) -> Registry:
    """Parse and validate a registry document; raises InputError when the whole document cannot be used."""
    document = _document(data, location)
    plugins, rejected, warnings = [], [], _unknown_keys(document, {"schema", "title", "plugin"}, "the document")
    raw_entries = document.get("plugin", [])
    if not isinstance(raw_entries, list):
        raise InputError(f"{location}: 'plugin' is not an array of tables; write each entry under [[plugin]]")
    if len(raw_entries) > ENTRY_LIMIT:
        raise InputError(f"{location}: {len(raw_entries)} entries; a registry has at most {ENTRY_LIMIT}")
    for number, raw in enumerate(raw_entries, start=1):
        label = _label(raw, number)
        try:
            entry = PluginEntry.model_validate(raw)
            if isinstance(entry.source, PathSource) and folder is None:
                raise ValueError("source: a path source works only in a registry that is a local file")
        except ValidationError as error:
            rejected.append(Rejected(label, _reasons(error)))
        except ValueError as error:
            rejected.append(Rejected(label, str(error)))
        else:
            plugins.append(entry)
            warnings += _unknown_in(entry, label)
    unique, clashes = _without_duplicates(plugins)
    title = document.get("title")
    return Registry(
        name,
        location,
        folder,
        title if isinstance(title, str) and title.isprintable() else "",
        tuple(unique),
        tuple(rejected + clashes),
        tuple(warnings),
    )


def _document(data: bytes, location: str) -> dict[str, Any]:
    if len(data) > SIZE_LIMIT:
        raise InputError(f"{location}: more than {SIZE_LIMIT >> 20} MB; that is no registry")
    if data.lstrip()[:1] == b"<":
        raise InputError(
            f"{location}: this is an HTML or XML page, not a registry.toml; give the address of the raw file"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{location}: not UTF-8 (byte {error.start})") from error
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{location}: not valid TOML ({error or 'nested too deeply'})") from error
    schema = document.get("schema")
    if type(schema) is not int:
        raise InputError(f"{location}: 'schema = {SCHEMA}' is missing or not an integer; is this a registry?")
    if schema > SCHEMA:
        raise InputError(
            f"{location}: registry schema {schema} is newer than {SCHEMA}, which this icml26 reads; "
            "update it: pip install --upgrade icml26"
        )
    if schema < 1:
        raise InputError(f"{location}: there is no registry schema {schema}")
    return document


def _label(raw: Any, number: int) -> str:
    name = raw.get("name") if isinstance(raw, dict) else None
    return f"entry {number} ({shown(name)})" if isinstance(name, str) else f"entry {number}"


def _reasons(error: ValidationError) -> str:
    reasons = []
    for item in error.errors(include_url=False, include_input=False):
        where = ".".join(
            str(part) for part in item["loc"] if part not in ("index", "git", "path") or len(item["loc"]) == 1
        )
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing":
            message = "is missing"
        elif item["type"] in ("model_type", "model_attributes_type"):
            message = "is not a table"
        elif item["type"] == "union_tag_not_found":
            message = "kind is missing: 'index', 'git' or 'path'"
        elif item["type"] == "union_tag_invalid":
            message = "kind is none of 'index', 'git', 'path'"
        reasons.append(f"{where}: {message}" if where else message)
    return "; ".join(reasons)


def _unknown_keys(table: dict[str, Any], known: set[str], where: str) -> list[str]:
    return [f"unknown key {shown(key)} in {where} (ignored)" for key in table if key not in known]


def _unknown_in(table: BaseModel, label: str) -> list[str]:
    found = _unknown_keys(table.model_extra or {}, set(), label)
    for name in type(table).model_fields:
        value = getattr(table, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, BaseModel):
                found += _unknown_in(item, f"{label}, {name}")
    return found


def _without_duplicates(plugins: list[PluginEntry]) -> tuple[list[PluginEntry], list[Rejected]]:
    """Of two entries with one name or one distribution neither wins."""
    names = Counter(entry.name for entry in plugins)
    distributions = Counter(entry.distribution for entry in plugins)
    unique, clashes = [], []
    for entry in plugins:
        if names[entry.name] > 1:
            clashes.append(
                Rejected(entry.name, f"name '{entry.name}' stands {names[entry.name]} times in this registry")
            )
        elif distributions[entry.distribution] > 1:
            count = distributions[entry.distribution]
            clashes.append(
                Rejected(entry.name, f"distribution '{entry.distribution}' stands {count} times in this registry")
            )
        else:
            unique.append(entry)
    return unique, clashes
