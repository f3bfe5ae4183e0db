"""Which distributions a run needs, as requirement lines that rebuild in another environment what is installed in this one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from icml26.catalog import Catalog, Entry
from icml26.errors import EnvironmentError_
from icml26.keys import hash_path, hash_sources
from icml26.records import RunRequest

CORE = "icml26"


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """One distribution: the line that an installer takes, and what tells its content apart from other versions of it.

    ``folder`` is its project's folder when it must be built from there.
    """

    name: str
    line: str
    content: str
    folder: str | None = None


def needs_of(catalog: Catalog, request: RunRequest) -> tuple[Need, ...]:
    """The core and every plugin that a run touches: method, dataset, task, metrics, and the plugins that these require.

    What they require beyond plugins is left to the resolver. Raises EnvironmentError_ for what cannot be rebuilt.
    """
    entries = [catalog.find("method", request.method), catalog.find("dataset", request.dataset)]
    entries.append(catalog.find("task", request.task))
    entries += [catalog.find("metric", name) for name in (*request.metrics, *request.hidden_metrics)]
    return _needs_of(catalog, entries)


def needs_of_metric(catalog: Catalog, name: str) -> tuple[Need, ...]:
    """What scoring a relative metric needs: the plugin that has it."""
    return _needs_of(catalog, [catalog.find("metric", name)])


def _needs_of(catalog: Catalog, entries: Iterable[Entry]) -> tuple[Need, ...]:
    extras: dict[str, set[str]] = {CORE: set()}
    for entry in entries:
        extras.setdefault(str(canonicalize_name(entry.distribution)), set()).update(_extra(entry))
    plugins = {plugin.distribution for plugin in catalog.plugins}
    for name in [*extras]:
        for other in _required_plugins(name, plugins):
            extras.setdefault(other, set())
    return tuple(sorted(_need(name, tuple(sorted(extras[name]))) for name in extras))


def _extra(entry: Entry) -> set[str]:
    extra = getattr(entry.spec, "extra", None)
    return {extra} if extra else set()


def _required_plugins(name: str, plugins: set[str]) -> Iterable[str]:
    """Plugins that a distribution requires, and those that these require."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        for text in _requires(todo.pop()):
            requirement = Requirement(text)
            other = str(canonicalize_name(requirement.name))
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if other in plugins and other not in seen and applies:
                seen.add(other)
                todo.append(other)
    return seen - {CORE}


def _requires(name: str) -> list[str]:
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []


def _need(name: str, extras: tuple[str, ...]) -> Need:
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise EnvironmentError_(f"{name} is not installed, so no environment with it can be made") from error
    label = f"{name}[{','.join(extras)}]" if extras else name
    version = distribution.version
    by_version = Need(name, f"{label}=={version}", f"version {version}")
    origin: dict[str, Any] = json.loads(distribution.read_text("direct_url.json") or "{}")
    url = str(origin.get("url", ""))
    subdirectory = f"#subdirectory={origin['subdirectory']}" if origin.get("subdirectory") else ""
    if "vcs_info" in origin:
        commit = str(origin["vcs_info"]["commit_id"])
        return Need(name, f"{label} @ {origin['vcs_info']['vcs']}+{url}@{commit}{subdirectory}", f"commit {commit}")
    if "dir_info" in origin:
        folder = Path(unquote(urlsplit(url).path))
        if not (folder / "pyproject.toml").is_file():
            raise EnvironmentError_(f"{name} was installed from {folder}, which is no project (any more); reinstall it")
        return Need(name, f"{label} @ {folder.as_uri()}", f"sources {_sources(folder)}", str(folder))
    if "archive_info" in origin:
        return _archive(label, url, origin["archive_info"], by_version)
    return by_version


def _archive(label: str, url: str, info: dict[str, Any], by_version: Need) -> Need:
    sha256 = (info.get("hashes") or {}).get("sha256") or str(info.get("hash", "")).removeprefix("sha256=")
    if urlsplit(url).scheme != "file":
        return Need(by_version.name, f"{label} @ {url}", f"archive {url} {sha256}")
    path = Path(unquote(urlsplit(url).path))
    if path.is_file():
        found = hash_path(path).removeprefix("sha256:")
        if not sha256 or found == sha256:
            return Need(by_version.name, f"{label} @ {path.as_uri()}", f"sha256 {found}")
    return by_version


def _sources(folder: Path) -> str:
    """A hash of what a project's wheel is built from: its ``pyproject.toml`` and its code."""
    code = folder / "src" if (folder / "src").is_dir() else folder
    return hash_path(folder / "pyproject.toml") + " " + hash_sources([code])


@lru_cache(maxsize=1)
def running_python() -> str:
    """The interpreter and platform on which environments are made."""
    import platform
    import sys

    return f"{platform.python_implementation()} {platform.python_version()} {sys.platform} {platform.machine()}"
