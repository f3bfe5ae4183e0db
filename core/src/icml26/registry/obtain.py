"""Get what an entry names, checked, to the point where an installer may have it: a wheel, a project folder or a git reference."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name, parse_wheel_filename

from icml26.errors import EnvironmentError_
from icml26.home import cache_folder
from icml26.hookspecs import ENTRY_POINT_GROUP
from icml26.registry import git, net, package_index
from icml26.registry.federation import Listed
from icml26.registry.model import GitSource, IndexSource, PathSource, PluginEntry
from icml26.registry.package_index import Link
from icml26.registry.target import IndexOptions, Target
from icml26.registry.wheels import check_hash, check_wheel
from icml26.smallfiles import read_text

WHEEL_LIMIT = 2 << 30


@dataclass(frozen=True, slots=True)
class Ready:
    """Something that passed every check and may be handed to an installer as ``argument``."""

    listed: Listed
    argument: str
    version: str | None
    source: str
    sha256: str | None = None


def prepare(item: Listed, target: Target, indexes: IndexOptions, folder: Path) -> Ready:
    """Get and check one entry, with ``folder`` (empty) as the work place; raises EnvironmentError_."""
    source = item.entry.source
    if isinstance(source, IndexSource):
        link = (
            _on_indexes(item.entry, source, indexes)
            if indexes.explicit
            else _ask_installer(item.entry, source, target, folder)
        )
        return _from_link(item, link, folder)
    if isinstance(source, GitSource):
        _check_project(git.checkout(source, folder), item.entry)
        label = f"{source.url}@{source.revision[:12]}"
        return Ready(item, git.reference(item.entry.distribution, source), None, label)
    return _from_path(item, source, folder)


def _on_indexes(entry: PluginEntry, source: IndexSource, indexes: IndexOptions) -> Link:
    """The best wheel on the first of the named indexes that has the project."""
    found = package_index.Candidates()
    for url in indexes.explicit:
        links = package_index.project_links(url, entry.distribution)
        if links is not None:
            allowed = [wheel.file for wheel in entry.wheels] or None
            found = package_index.choose(links, entry.distribution, specifier=source.version, allowed=allowed)
            break
    link = found.best()
    if link is None:
        reasons = "; ".join(found.passed_over[:5]) or "the index does not have it"
        raise EnvironmentError_(f"no wheel of {entry.distribution} can be installed here ({reasons})")
    return link


def _from_link(item: Listed, link: Link, folder: Path) -> Ready:
    path = folder / link.file
    if path.exists():
        sha256 = _sha256(path)
    elif urlsplit(link.url).scheme == "file":
        # A copy, so that what is checked is what is installed.
        shutil.copyfile(unquote(urlsplit(link.url).path), path)
        sha256 = _sha256(path)
    else:
        sha256 = net.download(link.url, path, limit=WHEEL_LIMIT)
    return _checked(item, path, sha256, link.sha256, link.url)


def _from_path(item: Listed, source: PathSource, folder: Path) -> Ready:
    assert item.registry.folder is not None, "the reader refuses path sources of remote registries"
    path = item.registry.folder / source.path
    if not path.resolve().is_relative_to(item.registry.folder.resolve()):
        raise EnvironmentError_(f"plugin {item.entry.name}: {path} leads out of its registry's folder; refused")
    if not path.exists():
        raise EnvironmentError_(f"plugin {item.entry.name}: {path} does not exist")
    if path.suffix == ".whl":
        return _from_link(item, Link(path.name, path.absolute().as_uri()), folder)
    _check_project(path, item.entry)
    return Ready(item, str(path), None, str(path))


def _checked(item: Listed, path: Path, sha256: str, told: str | None, source: str) -> Ready:
    entry = item.entry
    released = {wheel.file: wheel.sha256 for wheel in entry.wheels}
    if released and path.name not in released:
        raise EnvironmentError_(
            f"{path.name} is not among the released files that registry {item.registry.name} lists "
            f"({', '.join(sorted(released))}); nothing was installed"
        )
    check_hash(path, sha256, released.get(path.name, told))
    facts = check_wheel(path, entry.distribution, entry.name)
    return Ready(item, str(_kept(path, sha256)), facts.version, source, sha256)


def _kept(path: Path, sha256: str) -> Path:
    """The wheel at a place where it stays: the installer records that place, and other environments install from it."""
    target = cache_folder() / "wheels" / sha256 / path.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copyfile(path, temporary)
        temporary.replace(target)
    except OSError:
        return path  # a cache that cannot be written costs a download later, nothing else
    return target


def _ask_installer(entry: PluginEntry, source: IndexSource, target: Target, folder: Path) -> package_index.Link:
    """The wheel that the installer's own configuration (index, credentials, proxies) leads to."""
    requirement = entry.distribution + (source.version or "")
    if entry.wheels:
        newest = max(parse_wheel_filename(wheel.file)[1] for wheel in entry.wheels)
        requirement = f"{entry.distribution}=={newest}"
    if target.tool == "pip":
        command = [target.python, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", str(folder), "--", requirement]
        _output(command, entry)
        files = sorted(folder.glob("*.whl"))
        if len(files) != 1:
            raise EnvironmentError_(f"the installer found no wheel of {entry.distribution}")
        return package_index.Link(files[0].name, files[0].as_uri())
    assert target.uv is not None
    command = [target.uv, "pip", "compile", "--quiet", "--no-deps", "--only-binary", ":all:", "--python", target.python]
    lock = tomllib.loads(_output([*command, "--format", "pylock.toml", "-"], entry, requirement + "\n"))
    links = [
        package_index.Link(
            wheel.get("name") or unquote(str(wheel.get("url") or wheel.get("path")).rsplit("/", 1)[-1]),
            wheel["url"] if "url" in wheel else Path(wheel["path"]).absolute().as_uri(),
            wheel.get("hashes", {}).get("sha256"),
        )
        for package in lock.get("packages", [])
        for wheel in package.get("wheels", [])
    ]
    link = package_index.choose(links, entry.distribution).best()
    if link is None:
        raise EnvironmentError_(f"the installer found no wheel of {entry.distribution} for this Python")
    return link


def _output(command: Sequence[str], entry: PluginEntry, text: str | None = None) -> str:
    try:
        done = subprocess.run(
            command, input=text or "", capture_output=True, encoding="utf-8", errors="replace", timeout=900, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentError_(f"the installer did not end well ({error})") from error
    if done.returncode:
        raise EnvironmentError_(f"the installer finds no wheel of {entry.distribution}:\n{done.stderr.strip()[-2000:]}")
    return done.stdout


def _check_project(folder: Path, entry: PluginEntry) -> None:
    """Whether a source folder is the project that the entry promises."""
    path = folder / "pyproject.toml"
    try:
        project = tomllib.loads(read_text(path))["project"]
        name, points = str(project["name"]), project.get("entry-points", {}).get(ENTRY_POINT_GROUP, {})
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise EnvironmentError_(
            f"plugin {entry.name}: no readable [project] in its pyproject.toml ({error!r})"
        ) from error
    if canonicalize_name(name) != entry.distribution:
        raise EnvironmentError_(
            f"plugin {entry.name}: the project there is {name!r}, not {entry.distribution}; refused"
        )
    if entry.name not in points:
        raise EnvironmentError_(
            f"plugin {entry.name}: the project has no entry point of that name in group 'icml26'; refused"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
