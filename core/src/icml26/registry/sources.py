"""Which registries a user trusts: the one that comes with icml26, and those added with ``icml26 registry add``."""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from icml26.carried import carried
from icml26.errors import EnvironmentError_, Icml26Error, InputError, UsageError
from icml26.home import cache_folder, config_folder
from icml26.records import write_text_durably
from icml26.registry import net, rules, toml
from icml26.registry.reader import SIZE_LIMIT, Registry, parse_registry, read_registry
from icml26.smallfiles import read_bytes, read_text

BUILT_IN = "icml26"
FRESH_SECONDS = 24 * 3600.0
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Source:
    """A registry that the user trusts; ``location`` is an absolute path or a URL."""

    name: str
    location: str

    @property
    def remote(self) -> bool:
        """Whether it is fetched over a network."""
        return "://" in self.location


@dataclass(frozen=True, slots=True)
class Unread:
    """A registry that could not be used at all, and why."""

    name: str
    location: str
    reason: str


def config_file() -> Path:
    """Where the user's registries are written down."""
    return config_folder() / "registries.toml"


def built_in() -> Source:
    """The registry that this installation carries; ``ICML26_REGISTRY`` names another file or URL in its place."""
    own = os.environ.get("ICML26_REGISTRY")
    return Source(BUILT_IN, resolve_location(own) if own else str(carried("registry.toml")))


def sources() -> tuple[Source, ...]:
    """All registries of this user, the built-in one first."""
    return (built_in(), *added())


def added() -> tuple[Source, ...]:
    """The registries that were added; raises InputError when their file is damaged."""
    path = config_file()
    try:
        document = tomllib.loads(read_text(path, SIZE_LIMIT))
        return tuple(
            Source(rules.plugin_name(str(name)), str(table["location"]))
            for name, table in document.get("registry", {}).items()
        )
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise EnvironmentError_(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error}); mend or delete it, then add your registries again") from error


def resolve_location(location: str) -> str:
    """A URL after the allow-list, or an absolute path; raises UsageError."""
    if "://" in location or location.startswith(("git+", "ext::", "data:")):
        try:
            return rules.web_url(location)
        except ValueError as error:
            raise UsageError(f"registry location {error}") from error
    if "\0" in location or not location.strip():
        raise UsageError("registry location: an empty text or a NUL byte is no path")
    return str(Path(location).expanduser().absolute())


def add(name: str, location: str) -> tuple[Source, Registry]:
    """Read a registry and remember it under ``name``.

    Raises UsageError when the name is taken, InputError when the document is unusable or every entry of it is refused.
    """
    try:
        rules.plugin_name(name)
    except ValueError as error:
        raise UsageError(f"registry name {error}") from error
    existing = added()
    if any(source.name == name for source in existing):
        raise UsageError(f"there is a registry {name!r} already; `icml26 registry remove {name}` first")
    source = Source(name, resolve_location(location))
    registry = read(source, refresh=True)
    if registry.rejected and not registry.plugins:
        _cached(source).unlink(missing_ok=True)
        raise InputError(f"{source.location}: {_all_refused(registry)}")
    _write((*existing, source))
    return source, registry


def _all_refused(registry: Registry) -> str:
    reasons = [f"{item.entry}: {item.reason}" for item in registry.rejected]
    more = [f"and {len(reasons) - _NAMED} more; `icml26 registry check` lists them"] if len(reasons) > _NAMED else []
    return f"every entry is refused, so it was not added ({' | '.join([*reasons[:_NAMED], *more])})"


def remove(name: str) -> Source:
    """Forget a registry; plugins that came from it stay installed. Raises UsageError for an unknown name."""
    existing = added()
    for source in existing:
        if source.name == name:
            _write(tuple(other for other in existing if other.name != name))
            _cached(source).unlink(missing_ok=True)
            return source
    if name == BUILT_IN:
        raise UsageError(
            "the built-in registry cannot be removed; ICML26_REGISTRY=PATH-OR-URL puts another in its place"
        )
    known = ", ".join(source.name for source in existing) or "none was added"
    raise UsageError(f"no registry {name!r}; added: {known}")


def read(source: Source, *, refresh: bool = False) -> Registry:
    """Read a registry; a remote one from its cached copy while that is fresh, and when the network fails."""
    if not source.remote:
        return read_registry(Path(source.location), source.name)
    cached = _cached(source)
    if not refresh and _age(cached) < FRESH_SECONDS:
        return _parse_cached(source, cached)
    try:
        response = net.fetch(source.location, limit=SIZE_LIMIT)
    except EnvironmentError_ as error:
        if refresh or not cached.exists():
            raise
        stale = _parse_cached(source, cached)
        note = f"registry {source.name}: the copy of {_age(cached) / 3600:.0f} hours ago is used ({error})"
        return Registry(
            stale.name, stale.location, None, stale.title, stale.plugins, stale.rejected, (*stale.warnings, note)
        )
    registry = parse_registry(response.body, source.name, source.location)
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_text_durably(cached, response.body.decode("utf-8"))
    except OSError as error:
        note = f"registry {source.name}: no copy could be kept at {cached} ({error.strerror or error})"
        return Registry(
            registry.name, registry.location, None, registry.title, registry.plugins, registry.rejected, (note,)
        )
    return registry


def read_all(chosen: Iterable[Source], *, refresh: bool = False) -> tuple[list[Registry], list[Unread]]:
    """Read several registries; one that cannot be used does not stop the others."""
    registries, unread = [], []
    for source in chosen:
        try:
            registries.append(read(source, refresh=refresh))
        except Icml26Error as error:
            unread.append(Unread(source.name, source.location, str(error)))
    return registries, unread


def _cached(source: Source) -> Path:
    return cache_folder() / "registries" / f"{source.name}.toml"


def _age(path: Path) -> float:
    try:
        # File times are wall-clock, so the age is too; a clock set back makes the copy look old and it is fetched anew.
        age = time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")
    return age if age >= 0 else float("inf")


def _parse_cached(source: Source, cached: Path) -> Registry:
    return parse_registry(read_bytes(cached), source.name, source.location)


def _write(chosen: tuple[Source, ...]) -> None:
    path = config_file()
    body = "".join(
        "\n" + toml.table(f"[registry.{toml.key(item.name)}]", {"location": item.location}) for item in chosen
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_durably(path, "# Written by `icml26 registry add` and `remove`.\n" + body)
    except OSError as error:
        raise EnvironmentError_(f"{path}: cannot be written ({error.strerror or error})") from error
