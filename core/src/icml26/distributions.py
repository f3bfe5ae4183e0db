"""Installed distributions that declare an ``icml26`` entry point, read from their metadata folders alone.

``importlib.metadata`` is not used: it costs several times the rest of a list command, and it keeps one of two equal
folders silently.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from icml26.catalog import Fault
from icml26.names import is_distribution, is_import_path, normalised
from icml26.smallfiles import read_bytes
from icml26.specs import ENTRY_POINT_GROUP


class Distribution(NamedTuple):
    """One installed distribution with an entry point in our group.

    ``folder`` is its metadata folder, ``location`` the folder on ``sys.path`` that holds it; ``module`` is the value of
    its entry point ``entry_point``.
    """

    name: str
    version: str
    folder: str
    location: str
    entry_point: str
    module: str
    editable: bool = False


class Scan(NamedTuple):
    """What a look along ``sys.path`` found; ``installed`` holds the normalised name and version of *every* distribution."""

    distributions: tuple[Distribution, ...]
    faults: tuple[Fault, ...]
    installed: tuple[str, ...]


def scan(path: Iterable[str] | None = None) -> Scan:
    """Read the metadata folders on ``path`` (default ``sys.path``).

    Folders are told apart by real path; of one name in several places the first on the path counts, as for imports; of
    several in one place the newest version, and each other is a fault.
    """
    found: dict[str, list[Distribution]] = {}
    faults: list[Fault] = []
    installed: list[str] = []
    for location in _unique(sys.path if path is None else path):
        here: dict[str, list[Distribution]] = {}
        for folder_name, stem in _metadata_folders(location):
            installed.append(stem)
            text = _read(f"{location}/{folder_name}/entry_points.txt")
            entries = _entry_points(text) if text and ENTRY_POINT_GROUP in text else ()
            if entries:
                distribution, problems = _distribution(location, folder_name, stem, entries)
                faults.extend(problems)
                if distribution is not None:
                    here.setdefault(distribution.name, []).append(distribution)
        for name, candidates in here.items():
            best, problems = _newest(candidates)
            faults.extend(problems)
            found.setdefault(name, []).append(best)
    for copies in found.values():
        if len(copies) > 1:
            first, *hidden = _by_real_path(copies)
            faults.extend(_shadowed(first, other) for other in hidden)
    distributions = tuple(
        sorted((copies[0] for copies in found.values()), key=lambda item: (item.entry_point, item.name))
    )
    return Scan(distributions, tuple(faults), tuple(installed))


class ScannedMetadata:
    """Requirements and versions from metadata folders, for ``icml26.extras``, without ``importlib.metadata``."""

    def __init__(self, folders: Mapping[str, str], installed: Iterable[str]) -> None:
        self._folders = folders
        self._versions: dict[str, str] = {}
        for stem in installed:
            name, _, version = stem.partition("-")
            self._versions.setdefault(normalised(name), version)

    def requires(self, distribution: str) -> list[str] | None:
        """The ``Requires-Dist`` lines of one of the folders; None when it is not among them."""
        folder = self._folders.get(distribution)
        if folder is None:
            return None
        head = _read(f"{folder}/METADATA").replace("\r\n", "\n").partition("\n\n")[0]
        lines = (line.partition(":") for line in head.splitlines())
        return [value.strip() for key, _, value in lines if key.lower() == "requires-dist"]

    def version(self, distribution: str) -> str | None:
        """The version in the name of a metadata folder; None when there is none."""
        return self._versions.get(normalised(distribution))


def _unique(path: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    unique = []
    for item in path:
        try:
            real = os.path.realpath(item or ".")
        except OSError:  # the working folder was removed
            continue
        if real not in seen:
            seen.add(real)
            unique.append(real)
    return unique


def _metadata_folders(location: str) -> list[tuple[str, str]]:
    """(folder, stem) of the metadata folders in one place, sorted; a place that cannot be read has none."""
    try:
        names = os.listdir(location)
    except OSError:
        return []
    folders = []
    for name in sorted(names):
        # pip renames what it is about to remove to "~name", and a crash leaves it there.
        if name.endswith(".dist-info") and not name.startswith("~"):
            folders.append((name, name[:-10]))
        elif name.endswith(".egg-info"):
            folders.append((name, name[:-9]))
    return folders


def _read(path: str) -> str:
    try:
        return read_bytes(path).decode("utf-8", "replace")
    except OSError:
        return ""


def _entry_points(text: str) -> list[tuple[str, str]]:
    """(name, value) of our group in the text of an ``entry_points.txt``."""
    entries = []
    ours = False
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("["):
            ours = line == f"[{ENTRY_POINT_GROUP}]"
        elif ours and line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            entries.append((name.strip(), value.partition("[")[0].strip()))
    return entries


def _distribution(
    location: str, folder_name: str, stem: str, entries: list[tuple[str, str]]
) -> tuple[Distribution | None, list[Fault]]:
    folder = f"{location}/{folder_name}"
    egg = folder_name.endswith(".egg-info")
    # The folder of a wheel is called name-version; that of an egg may lack the version.
    stem_name, _, version = stem.partition("-")
    whole = os.path.isfile(f"{folder}/{'PKG-INFO' if egg else 'METADATA'}")
    if egg and whole:
        headers = _headers(_read(f"{folder}/PKG-INFO"))
        stem_name, version = headers.get("name", ""), headers.get("version", "")
    name = normalised(stem_name)
    entry_point, module = entries[0]
    faults = []
    if not whole or not version or not is_distribution(stem_name):
        reason = f"its metadata folder {folder} is incomplete (an interrupted install?)"
        return None, [Fault(entry_point, name, reason, "stale-metadata", fix=f"remove {folder}, then reinstall {name}")]
    if not is_import_path(module):
        reason = f"the value of its entry point, {module!r}, names no module"
        return None, [Fault(entry_point, name, reason, "bad-entry-point", fix=f"uninstall {name}")]
    if len(entries) > 1:
        names = ", ".join(item[0] for item in entries)
        reason = f"it declares several entry points in group {ENTRY_POINT_GROUP} ({names}); only {entry_point} is used"
        faults.append(Fault(entry_point, name, reason, "several-entry-points", "warning"))
    return Distribution(name, version, folder, location, entry_point, module, _is_editable(folder, egg)), faults


def _headers(text: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or len(headers) == 2:
            break
        key, _, value = line.partition(":")
        if key.lower() in ("name", "version"):
            headers[key.lower()] = value.strip()
    return headers


def _is_editable(folder: str, egg: bool) -> bool:
    if egg:
        return not os.path.exists(f"{folder}/installed-files.txt")
    text = _read(f"{folder}/direct_url.json")
    if '"editable"' not in text:
        return False
    import json

    try:
        return json.loads(text).get("dir_info", {}).get("editable") is True
    except (ValueError, AttributeError):
        return False


def _newest(candidates: list[Distribution]) -> tuple[Distribution, list[Fault]]:
    if len(candidates) == 1:
        return candidates[0], []
    best = max(candidates, key=_version_key)
    faults = []
    for other in candidates:
        if other is not best:
            reason = f"metadata of version {other.version} was left beside version {best.version}: {other.folder}"
            fix = f"remove {other.folder}"
            faults.append(Fault(other.entry_point, other.name, reason, "leftover-metadata", "warning", fix))
    return best, faults


def _version_key(distribution: Distribution) -> tuple[bool, object]:
    from packaging.version import InvalidVersion, Version

    try:
        return True, Version(distribution.version)
    except InvalidVersion:
        return False, distribution.version


def _by_real_path(copies: list[Distribution]) -> list[Distribution]:
    unique = {os.path.realpath(copy.folder): copy for copy in reversed(copies)}
    return list(reversed(unique.values()))


def _shadowed(first: Distribution, other: Distribution) -> Fault:
    reason = f"version {other.version} in {other.location} is hidden by version {first.version} in {first.location}"
    return Fault(other.entry_point, other.name, reason, "hidden-copy", "note")
