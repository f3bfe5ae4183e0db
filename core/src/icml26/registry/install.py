"""Install and uninstall plugins.

Everything is judged before the first process starts, and every file before an installer sees it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name

from icml26.distributions import scan
from icml26.errors import EnvironmentError_, UsageError
from icml26.hookspecs import CORE_API
from icml26.registry.federation import Federation
from icml26.registry.model import GitSource, PathSource, PluginEntry
from icml26.registry.obtain import Ready, prepare
from icml26.registry.rules import web_url
from icml26.registry.target import IndexOptions, Target, run_tool

_CORE = "icml26"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one plugin. ``sha256`` is that of the installed wheel, ``source`` where it came from."""

    plugin: str
    distribution: str
    version: str | None
    source: str
    status: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """How ``install`` behaves; ``alone`` installs plugins without what they require (for environments of their own)."""

    indexes: IndexOptions = field(default_factory=IndexOptions)
    allow_build: bool = False
    upgrade: bool = False
    alone: bool = False
    dry_run: bool = False


def install(
    names: Sequence[str],
    federation: Federation,
    target: Callable[[], Target],
    options: Options | None = None,
    *,
    say: Callable[[str], None] = lambda text: None,
) -> list[Outcome]:
    """Install plugins by name; all or none. Raises UsageError or EnvironmentError_ before anything is changed.

    ``target`` is asked for the environment only after every entry was found good.
    """
    options = options or Options()
    for url in options.indexes.explicit:
        try:
            web_url(url)
        except ValueError as error:
            raise UsageError(f"--index-url: {error}") from error
    wanted = list({item.entry.distribution: item for item in map(federation.find, names)}.values())
    for item in wanted:
        _refuse(item.entry, options)
    outcomes, todo = [], []
    for item in wanted:
        version = installed_version(item.entry.distribution)
        if version is not None and not options.upgrade:
            outcomes.append(
                Outcome(item.entry.name, item.entry.distribution, version, item.registry.name, "already-installed")
            )
        else:
            todo.append(item)
    if not todo:
        return outcomes
    environment = target()
    with tempfile.TemporaryDirectory(prefix="icml26-install-") as folder:
        ready = []
        for number, item in enumerate(todo):
            own = Path(folder) / str(number)
            own.mkdir()
            say(f"getting {item.entry.distribution} ({item.qualified})")
            ready.append(prepare(item, environment, options.indexes, own))
        command = environment.install(
            [item.argument for item in ready],
            options.indexes,
            allow_build=options.allow_build,
            upgrade=options.upgrade,
            alone=options.alone,
        )
        say("would run: " + " ".join(command) if options.dry_run else "installing " + ", ".join(_shown(ready)))
        if not options.dry_run:
            run_tool(command)
    status = "would-install" if options.dry_run else "installed"
    outcomes += [
        Outcome(item.listed.entry.name, item.listed.entry.distribution, item.version, item.source, status, item.sha256)
        for item in ready
    ]
    return outcomes


def installed_version(distribution: str) -> str | None:
    """The installed version of a distribution, by metadata alone."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def installed_plugins() -> dict[str, set[str]]:
    """Distributions with an entry point in group ``icml26``: normalised name to entry-point names; without the core.

    No plugin code runs.
    """
    found: dict[str, set[str]] = {}
    seen = scan()
    for distribution in seen.distributions:
        found.setdefault(distribution.name, set()).add(distribution.entry_point)
    for fault in seen.faults:
        found.setdefault(fault.distribution, set()).add(fault.plugin)
    found.pop(_CORE, None)
    return found


def to_uninstall(names: Iterable[str]) -> list[str]:
    """The distributions that these plugin or distribution names mean; raises UsageError for unknown or ambiguous ones."""
    plugins = installed_plugins()
    chosen = []
    for name in names:
        distribution = str(canonicalize_name(name))
        matches = (
            [distribution] if distribution in plugins else [key for key, points in plugins.items() if name in points]
        )
        if distribution in (_CORE, "core") and not matches:
            raise UsageError(f"{name} is the core, not a plugin; remove it with your installer: pip uninstall icml26")
        if not matches:
            known = ", ".join(sorted({point for points in plugins.values() for point in points})) or "none"
            raise UsageError(f"no plugin {name!r} is installed; installed: {known}")
        if len(matches) > 1:
            raise UsageError(f"{name!r} is ambiguous; say which distribution: {', '.join(sorted(matches))}")
        chosen += [match for match in matches if match not in chosen]
    return chosen


def uninstall(distributions: Sequence[str], target: Target) -> list[str]:
    """Remove distributions (from ``to_uninstall``); returns those that are gone. Raises EnvironmentError_."""
    run_tool(target.uninstall(distributions))
    left = [name for name in distributions if name in installed_plugins()]
    if left:
        raise EnvironmentError_(f"still installed after the installer ended: {', '.join(left)}")
    return list(distributions)


def _refuse(entry: PluginEntry, options: Options) -> None:
    """What can be said against an entry without starting anything."""
    if entry.core_api != CORE_API:
        raise EnvironmentError_(
            f"plugin {entry.name} is for core_api {entry.core_api}; this icml26 has {CORE_API}: pip install --upgrade icml26"
        )
    where = None
    if isinstance(entry.source, GitSource):
        where = entry.source.url
    elif isinstance(entry.source, PathSource) and not entry.source.path.endswith(".whl"):
        where = entry.source.path
    if where is not None and not options.allow_build:
        raise UsageError(
            f"plugin {entry.name} comes as source ({where}); building it runs its code on this machine. "
            f"If you trust it: icml26 install {entry.name} --allow-build"
        )


def _shown(ready: Iterable[Ready]) -> list[str]:
    return [f"{item.listed.entry.distribution} {item.version or 'from ' + item.source}" for item in ready]


def outcome_rows(outcomes: Iterable[Outcome]) -> list[dict[str, str | None]]:
    """The rows of ``install --json``."""
    return [asdict(outcome) for outcome in outcomes]
