"""Several registries as one: look up, search, and say where two of them clash."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from icml26.errors import UsageError
from icml26.registry.model import PathSource, PluginEntry
from icml26.registry.reader import Registry
from icml26.registry.sources import Unread, read_all, sources


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry and the registry that lists it."""

    entry: PluginEntry
    registry: Registry

    @property
    def qualified(self) -> str:
        """``registry/plugin``."""
        return f"{self.registry.name}/{self.entry.name}"


@dataclass(frozen=True, slots=True)
class Federation:
    """All registries that could be read."""

    registries: tuple[Registry, ...] = ()
    unread: tuple[Unread, ...] = ()

    @property
    def listed(self) -> tuple[Listed, ...]:
        """Every valid entry of every registry."""
        return tuple(Listed(entry, registry) for registry in self.registries for entry in registry.plugins)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was skipped and why, a line each."""
        lines = [f"registry {item.name} is not used: {item.reason}" for item in self.unread]
        for registry in self.registries:
            lines += [f"registry {registry.name}: {item.entry} is skipped: {item.reason}" for item in registry.rejected]
            lines += [f"registry {registry.name}: {note}" for note in registry.warnings]
        return tuple(lines)

    def find(self, name: str) -> Listed:
        """The entry that ``plugin``, ``registry/plugin`` or a distribution's name means; raises UsageError.

        Entries of several registries that agree in all that is installed are one; else the candidates are named.
        """
        owner, _, bare = name.rpartition("/")
        matches = [
            item
            for item in self.listed
            if bare in (item.entry.name, item.entry.distribution) and (not owner or item.registry.name == owner)
        ]
        if not matches:
            raise UsageError(self._unknown(name, owner, bare))
        if len({_installs(item) for item in matches}) > 1:
            candidates = ", ".join(sorted(item.qualified for item in matches))
            raise UsageError(f"plugin {name!r} is ambiguous, registries differ about it; say which: {candidates}")
        return matches[0]

    def _unknown(self, name: str, owner: str, bare: str) -> str:
        if owner and owner not in {registry.name for registry in self.registries}:
            known = ", ".join(registry.name for registry in self.registries)
            return f"no registry {owner!r}; there are: {known}"
        skipped = [
            f"{registry.name}: {item.reason}"
            for registry in self.registries
            for item in registry.rejected
            if item.entry == bare or f"'{bare}'" in item.entry
        ]
        if skipped:
            return f"plugin {name!r} is listed, but its entry cannot be used ({'; '.join(skipped)})"
        near = difflib.get_close_matches(bare, [item.entry.name for item in self.listed], n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(repr(item) for item in near)}?" if near else "; see `icml26 search`"
        failed = f" Not read: {', '.join(item.name for item in self.unread)}." if self.unread else ""
        return f"no registry lists a plugin {name!r}{hint}{failed}"

    def search(self, words: Iterable[str] = (), *, task: str | None = None) -> list[Listed]:
        """Entries that contain every word, best first: in the name, then in methods and tasks, then anywhere."""
        wanted = [word.casefold() for word in words]
        found = []
        for item in self.listed:
            if task is not None and task not in item.entry.tasks:
                continue
            ranks = [_rank(item.entry, word) for word in wanted]
            if None not in ranks:
                found.append((sum(rank or 0 for rank in ranks), item.entry.name, item.registry.name, item))
        return [row[-1] for row in sorted(found, key=lambda row: row[:-1])]


def open_federation(*, refresh: bool = False) -> Federation:
    """Read all registries of this user."""
    registries, unread = read_all(sources(), refresh=refresh)
    return Federation(tuple(registries), tuple(unread))


def _installs(item: Listed) -> str:
    origin = str(item.registry.folder) if isinstance(item.entry.source, PathSource) else ""
    wheels = sorted((wheel.file, wheel.sha256) for wheel in item.entry.wheels)
    return repr((item.entry.distribution, item.entry.source, wheels, origin))


def _rank(entry: PluginEntry, word: str) -> int | None:
    if word in entry.name or word in entry.distribution:
        return 0
    if any(word in name for name in (*entry.methods, *entry.datasets, *entry.tasks)):
        return 1
    texts = [entry.summary, *entry.maintainers]
    if entry.paper is not None:
        texts += [entry.paper.title, entry.paper.arxiv or "", entry.paper.openreview or "", *entry.paper.authors]
    return 2 if any(word in text.casefold() for text in texts) else None
