"""``icml26 doctor``: what is wrong with an installation and how to mend it, without running plugin code in this process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from icml26.catalog import Catalog, Fault
from icml26.cli.output import Output, console, plain

_STYLE = {"error": "red", "warning": "yellow", "note": "dim"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that doctor found."""

    id: str
    severity: Literal["error", "warning", "note"]
    message: str
    fix: str = ""
    details: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Look for what is wrong with this installation: plugins that cannot be listed, and why; missing requirements;
    folders that cannot be written. Plugins without an index are tried again.

    Exit code 1 when something is wrong; notes alone are 0.
    """
    raise typer.Exit(report(console(), as_json=as_json))


def report(output: Output, *, as_json: bool) -> int:
    """Print what was found; the exit code."""
    from icml26.plugins import load_catalog

    catalog = load_catalog(probe="fresh")
    findings = examine(catalog)
    if as_json:
        faults = [
            {"id": one.id, "severity": one.severity, "message": one.message, "fix": one.fix, "details": one.details}
            for one in findings
        ]
        output.json("doctor", {"faults": faults, "plugins": [plugin.name for plugin in catalog.plugins]})
    else:
        for one in findings:
            output.write(f"{output.style(one.severity, _STYLE[one.severity])}: {plain(one.message)}")
            if one.fix:
                output.write(f"    fix: {plain(one.fix)}")
            if one.details and output.options.traceback:
                output.write("\n".join(f"    {plain(line)}" for line in one.details.splitlines()))
        number = len(catalog.plugins)
        output.write(f"{number} plugin{'' if number == 1 else 's'} can be used, {_count(findings)}")
    return 1 if any(one.severity != "note" for one in findings) else 0


def examine(catalog: Catalog) -> list[Finding]:
    """Everything that is wrong, or worth a note, most severe first."""
    from icml26.plugins import extra_faults

    findings = [_of_fault(fault) for fault in (*catalog.faults, *extra_faults(catalog))]
    findings += _of_core(catalog) + _of_requirements(catalog) + _of_folders() + _of_user_files()
    order = ("error", "warning", "note")
    return sorted(findings, key=lambda one: order.index(one.severity))


def _of_fault(fault: Fault) -> Finding:
    message = f"plugin {fault.plugin} ({fault.distribution}): {fault.reason}"
    return Finding(fault.id, fault.severity, message, fault.fix, fault.details)


def _of_core(catalog: Catalog) -> list[Finding]:
    disabled = any(fault.distribution == "icml26" for fault in catalog.faults)
    if disabled or any(plugin.distribution == "icml26" for plugin in catalog.plugins):
        return []
    message = "the metadata of icml26 itself was not found, so its built-in tasks are missing"
    return [Finding("core-missing", "error", message, "pip install --force-reinstall icml26")]


def _of_requirements(catalog: Catalog) -> list[Finding]:
    from icml26.extras import missing_requirements

    findings = []
    for plugin in catalog.plugins:
        missing = missing_requirements(plugin.distribution)
        if missing:
            message = (
                f"plugin {plugin.name} ({plugin.distribution}): its requirements are not met: {', '.join(missing)}"
            )
            fix = f"pip install {' '.join(repr(item.partition(' ')[0]) for item in missing)}"
            findings.append(Finding("missing-requirement", "error", message, fix))
    return findings


def _of_folders() -> list[Finding]:
    from icml26.home import cache_folder, home_folder

    findings = []
    for what, folder, severity in (("results", home_folder(), "warning"), ("the cache", cache_folder(), "note")):
        if not _can_be_written(folder):
            message = f"the folder of {what}, {folder}, cannot be written"
            fix = "set ICML26_HOME to a folder of yours"
            findings.append(Finding("folder-not-writable", severity, message, fix))  # type: ignore[arg-type]
    return findings


def _of_user_files() -> list[Finding]:
    """The user's config file and list of registries, and the store: what cannot be read stops the commands that need it."""
    from icml26.cli.user_config import read_user_config
    from icml26.errors import Icml26Error
    from icml26.home import store_file
    from icml26.registry.sources import added
    from icml26.store import Store

    findings = []
    for id_, read in (
        ("bad-config-file", read_user_config),
        ("bad-registry-list", added),
        ("bad-store", lambda: Store.open(store_file(), readonly=True).close()),
    ):
        try:
            read()
        except Icml26Error as error:
            findings.append(Finding(id_, "error", str(error), "mend the file, or move it away"))
    return findings


def _can_be_written(folder: Path) -> bool:
    """Whether the folder, or the nearest one above it that exists, lets us write; nothing is created."""
    for place in (folder, *folder.parents):
        if place.exists():
            return place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    return False


def _count(findings: list[Finding]) -> str:
    counts = {severity: sum(one.severity == severity for one in findings) for severity in ("error", "warning", "note")}
    words = [f"{number} {severity}{'s' if number > 1 else ''}" for severity, number in counts.items() if number]
    return ", ".join(words) or "nothing is wrong"
