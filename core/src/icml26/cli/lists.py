"""The list commands: rows for people, JSON for programs, both from static indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from icml26.catalog import Catalog, Entry, Fault, Kind, unknown
from icml26.cli.output import Output, plain
from icml26.errors import UsageError
from icml26.index import SECTIONS
from icml26.plugins import extra_faults, load_catalog

ROLES = ("paper", "baseline", "reference", "oracle")

_REASON_LENGTH = 300


class Filter(NamedTuple):
    """What to list; None lists all."""

    task: str | None = None
    plugin: str | None = None
    role: str | None = None


def list_kind(kind: Kind, chosen: Filter, output: Output, *, as_json: bool) -> int:
    """``list-methods`` and its siblings for one kind of entry; the exit code."""
    catalog = load_catalog(kinds=("method", "dataset") if kind == "task" else (kind,), schemas=False)
    entries = select(catalog, kind, chosen)
    warn_of_faults(catalog, output)
    section = SECTIONS[kind]
    if as_json:
        body = {section: [_document(entry, catalog) for entry in entries], "warnings": warnings(catalog.faults)}
        output.json(f"list-{section}", body)
        return 0
    names = shortest_names(catalog, kind) if output.terminal else {}
    rows = [_row(entry, names.get(id(entry), entry.qualified), catalog) for entry in entries]
    output.table(_HEADERS[kind], rows)
    if not entries:
        output.note(f"no {section} to list" + ("" if chosen == Filter() else " with this choice"))
    return 0


def list_plugins(output: Output, *, as_json: bool) -> int:
    """``list-plugins``: every plugin with its state, and the reason where it is not listed; the exit code."""
    catalog = load_catalog(schemas=False)
    faults = [*catalog.faults, *extra_faults(catalog)]
    warn_of_faults(catalog, output)
    if as_json:
        plugins = [_plugin_document(plugin) for plugin in catalog.plugins]
        body = {"plugins": plugins, "faults": [_fault_document(fault) for fault in faults]}
        output.json("list-plugins", {**body, "warnings": warnings(catalog.faults)})
        return 0
    listed = {plugin.distribution for plugin in catalog.plugins}
    rows = []
    for plugin in catalog.plugins:
        own = [fault.reason for fault in faults if fault.distribution == plugin.distribution]
        state = "; ".join(["ok" if plugin.indexed else "ok, without an index", *own])
        rows.append((plugin.name, plugin.version, plugin.distribution, state))
    for fault in faults:
        if fault.distribution not in listed:
            state = "disabled" if fault.id == "disabled" else f"not listed: {fault.reason}"
            rows.append((fault.plugin, "-", fault.distribution, state))
    output.table(("PLUGIN", "VERSION", "DISTRIBUTION", "STATE"), rows)
    if not rows:
        output.note("no plugins are installed")
    return 0


def select(catalog: Catalog, kind: Kind, chosen: Filter) -> list[Entry]:
    """The entries of a kind that a filter leaves; raises UsageError for a task, plugin or role that nobody has."""
    if chosen.task is not None:
        tasks = {entry.name if entry.kind == "task" else entry.spec.task for entry in catalog.entries}
        if chosen.task not in tasks:
            raise UsageError(unknown("task", chosen.task, sorted(tasks)))
    if chosen.role is not None and chosen.role not in ROLES:
        raise UsageError(f"--role {chosen.role!r}: one of {', '.join(ROLES)} is expected")
    plugin = None if chosen.plugin is None else catalog.plugin(chosen.plugin).name
    return [
        entry
        for entry in catalog.of_kind(kind, task=chosen.task)
        if (plugin is None or entry.plugin == plugin) and (chosen.role is None or entry.spec.role == chosen.role)
    ]


def shortest_names(catalog: Catalog, kind: Kind) -> dict[int, str]:
    """For each entry (by identity) the shortest name that means it on the command line."""
    by_name: dict[str, list[Entry]] = {}
    for entry in catalog.of_kind(kind):
        by_name.setdefault(entry.name, []).append(entry)
    names = {}
    for name, entries in by_name.items():
        core = [entry for entry in entries if entry.plugin == "core"]
        winner = entries[0] if len(entries) == 1 else core[0] if core else None
        names.update({id(entry): name if entry is winner else entry.qualified for entry in entries})
    return names


def warn_of_faults(catalog: Catalog, output: Output) -> None:
    """One line on standard error for each plugin that is not, or not wholly, listed."""
    for fault in catalog.faults:
        if fault.severity != "note":
            output.warn(fault_line(catalog, fault))


def fault_line(catalog: Catalog, fault: Fault) -> str:
    """A fault in one line."""
    listed = any(plugin.distribution == fault.distribution for plugin in catalog.plugins)
    reason = plain(fault.reason)
    if len(reason) > _REASON_LENGTH:
        reason = reason[:_REASON_LENGTH] + "…"
    return f"plugin {fault.plugin} ({fault.distribution}){'' if listed else ' is not listed'}: {reason}"


def warnings(faults: Sequence[Fault]) -> list[dict[str, str]]:
    """The ``warnings`` of a list command's JSON."""
    return [
        {"plugin": fault.plugin, "distribution": fault.distribution, "reason": fault.reason}
        for fault in faults
        if fault.severity != "note"
    ]


_HEADERS: dict[Kind, tuple[str, ...]] = {
    "method": ("METHOD", "TASK", "ROLE", "SUMMARY"),
    "dataset": ("DATASET", "TASK", "SUMMARY"),
    "metric": ("METRIC", "TASK", "BETTER", "SUMMARY"),
    "task": ("TASK", "PLUGIN", "METHODS", "DATASETS", "SUMMARY"),
}


def _row(entry: Entry, name: str, catalog: Catalog) -> tuple[str, ...]:
    spec = entry.spec
    if entry.kind == "method":
        return name, spec.task, spec.role, spec.summary
    if entry.kind == "dataset":
        return name, spec.task, spec.summary
    if entry.kind == "metric":
        return name, spec.task, spec.values[0].direction or "-", spec.summary
    counts = [str(len(catalog.of_kind(kind, task=entry.name))) for kind in ("method", "dataset")]
    return entry.name, entry.plugin, *counts, spec.summary


def _document(entry: Entry, catalog: Catalog) -> dict[str, Any]:
    spec = entry.spec
    document = {"name": entry.name, "plugin": entry.plugin, "qualified": entry.qualified}
    if entry.kind == "method":
        paper = None if spec.paper is None else {"title": spec.paper.title, "arxiv": spec.paper.arxiv}
        return {
            **document,
            "task": spec.task,
            "role": spec.role,
            "summary": spec.summary,
            "paper": paper,
            "default_dataset": spec.default_dataset,
        }
    if entry.kind == "dataset":
        return {
            **document,
            "task": spec.task,
            "summary": spec.summary,
            "seeded": spec.seeded,
            "files": list(spec.files),
            "license": spec.license,
            "source": spec.source,
        }
    if entry.kind == "metric":
        values = [{"name": value.name, "unit": value.unit, "direction": value.direction} for value in spec.values]
        return {
            **document,
            "task": spec.task,
            "summary": spec.summary,
            "values": values,
            "cost": spec.cost,
            "relative_to": spec.relative_to,
        }
    return {
        **document,
        "summary": spec.summary,
        "metrics": list(spec.metrics),
        "words": dict(spec.words),
        "methods": [other.qualified for other in catalog.of_kind("method", task=entry.name)],
        "datasets": [other.qualified for other in catalog.of_kind("dataset", task=entry.name)],
    }


def _plugin_document(plugin: Any) -> dict[str, Any]:
    return {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "module": plugin.module,
        "editable": plugin.editable,
        "location": plugin.location,
        "core_api": plugin.core_api,
        "indexed": plugin.indexed,
    }


def _fault_document(fault: Fault) -> dict[str, str]:
    return {
        "plugin": fault.plugin,
        "distribution": fault.distribution,
        "id": fault.id,
        "severity": fault.severity,
        "reason": fault.reason,
        "fix": fault.fix,
        "details": fault.details,
    }
