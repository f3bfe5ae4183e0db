"""What is installed, by name: specs, where they come from, and the faults of plugins that could not be listed.

The catalog is filled from static indexes (``icml26.index``, ``icml26.plugins``); nothing here runs plugin code. Its types are
named tuples, which take a tenth of a dataclass's time to define: every list command pays for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

from icml26.errors import UsageError
from icml26.specs import DatasetSpec, MethodSpec, MetricSpec, Spec, TaskSpec

Kind: TypeAlias = Literal["method", "dataset", "metric", "task"]


class Entry(NamedTuple):
    """One spec and its origin. ``plugin`` is the entry point's name, or the distribution's when two share one name."""

    kind: Kind
    plugin: str
    distribution: str
    spec: Any
    config_schema: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The bare name."""
        return str(self.spec.name)

    @property
    def qualified(self) -> str:
        """``plugin/name``; tasks are global and keep their own name."""
        return self.name if self.kind == "task" else f"{self.plugin}/{self.name}"


class Fault(NamedTuple):
    """A plugin that cannot be listed (or only under its distribution's name), and why.

    ``severity``: ``"error"`` and ``"warning"`` are one line each on stderr of the list commands; a ``"note"`` (disabled,
    an optional extra that is not installed) is only shown by ``list-plugins`` and ``doctor``. ``details`` is a traceback.
    """

    plugin: str
    distribution: str
    reason: str
    id: str = "unusable"
    severity: Literal["error", "warning", "note"] = "error"
    fix: str = ""
    details: str = ""


class Recipe(NamedTuple):
    """A recipe file of a plugin: ``path`` is absolute."""

    plugin: str
    name: str
    title: str
    path: str

    @property
    def qualified(self) -> str:
        """``plugin/name``."""
        return f"{self.plugin}/{self.name}"


class Plugin(NamedTuple):
    """One installed plugin that could be listed.

    ``name`` is the entry point's, or the distribution's when two share one; ``location`` is the folder of the package
    that holds its hook module ("" when that is a single file), ``metadata`` its ``*.dist-info`` folder.
    """

    name: str
    distribution: str
    version: str
    module: str
    editable: bool = False
    location: str = ""
    core_api: int = 1
    indexed: bool = True
    metadata: str = ""


class Catalog(NamedTuple):
    """All entries of all plugins, with name resolution."""

    plugins: tuple[Plugin, ...] = ()
    entries: tuple[Entry, ...] = ()
    recipes: tuple[Recipe, ...] = ()
    faults: tuple[Fault, ...] = ()

    def of_kind(self, kind: Kind, *, task: str | None = None) -> tuple[Entry, ...]:
        """The entries of a kind, optionally of one task, in the order of plugins and their declarations."""
        return tuple(
            entry
            for entry in self.entries
            if entry.kind == kind and (task is None or getattr(entry.spec, "task", entry.name) == task)
        )

    def find(self, kind: Kind, name: str, *, seen_from: str | None = None, task: str | None = None) -> Entry:
        """Resolve a bare or qualified name; bare means: its own plugin (``seen_from``), ``core``, the only one installed.

        Raises UsageError that lists the candidates, or the nearest names when there is none.
        """
        return resolve(self.of_kind(kind), kind, name, seen_from=seen_from, task=task, faults=self.faults)

    def task(self, name: str) -> TaskSpec:
        """The spec of a task; raises UsageError with the nearest names."""
        spec = self.find("task", name).spec
        assert isinstance(spec, TaskSpec)
        return spec

    def plugin(self, name: str) -> Plugin:
        """A plugin by its short name or its distribution's; raises UsageError with the nearest names."""
        for plugin in self.plugins:
            if name in (plugin.name, plugin.distribution):
                return plugin
        for fault in self.faults:
            if name in (fault.plugin, fault.distribution):
                raise UsageError(f"plugin {name} cannot be used: {fault.reason}")
        raise UsageError(unknown("plugin", name, [plugin.name for plugin in self.plugins]))


def resolve(
    entries: Iterable[Entry],
    kind: Kind,
    name: str,
    *,
    seen_from: str | None = None,
    task: str | None = None,
    faults: Iterable[Fault] = (),
) -> Entry:
    """The entry that ``name`` means; see ``Catalog.find``."""
    pool = [entry for entry in entries if task is None or entry.kind == "task" or entry.spec.task == task]
    if "/" in name:
        plugin, _, bare = name.rpartition("/")
        matches = [entry for entry in pool if entry.name == bare and plugin in (entry.plugin, entry.distribution)]
    else:
        matches = [entry for entry in pool if entry.name == name]
        for owner in (seen_from, "core"):
            own = [entry for entry in matches if owner is not None and entry.plugin == owner]
            if own:
                return own[0]
    if len(matches) == 1:
        return matches[0]
    if matches:
        candidates = ", ".join(sorted(entry.qualified for entry in matches))
        raise UsageError(f"{kind} {name!r} is ambiguous; say which: {candidates}")
    message = unknown(kind, name, [entry.name for entry in pool] + [entry.qualified for entry in pool if "/" in name])
    broken = [f"{fault.plugin} ({fault.reason})" for fault in faults]
    if broken:
        message += f". Not listed: {'; '.join(broken)}"
    raise UsageError(message)


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """``no method 'x'; did you mean 'y'?``"""
    import difflib

    nearest = difflib.get_close_matches(name, list(dict.fromkeys(known)), n=3, cutoff=0.5)
    hint = (
        f"; did you mean {' or '.join(repr(near) for near in nearest)}?" if nearest else f"; see `icml26 list-{what}s`"
    )
    return f"no {what} {name!r}{hint}"


def spec_kind(spec: Spec) -> Kind:
    """Which kind a spec is."""
    kinds: dict[type, Kind] = {
        MethodSpec: "method",
        DatasetSpec: "dataset",
        MetricSpec: "metric",
        TaskSpec: "task",
    }
    return kinds[type(spec)]
