"""From installed distributions to the catalog: static indexes are read, plugins without one are probed, faults are kept.

No plugin code runs in this process; implementations are imported by ``icml26.targets`` when they are used.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from icml26.catalog import Catalog, Entry, Fault, Kind, Plugin, Recipe
from icml26.distributions import Distribution, ScannedMetadata, scan
from icml26.errors import PluginError
from icml26.index import ALL_KINDS, INDEX_FILE, Index, IndexedSpec, IndexFormatError, read_index
from icml26.names import name_problem
from icml26.specs import CORE_API

if TYPE_CHECKING:
    from icml26.probe import Probing

_CORE = ("core", "icml26")
_MODULE_SUFFIXES = (*importlib.machinery.SOURCE_SUFFIXES, ".pyc", *importlib.machinery.EXTENSION_SUFFIXES)


class Candidate(NamedTuple):
    """A distribution whose hook module was found: ``folder`` is its package's, ``hook_file`` the module's file."""

    distribution: Distribution
    folder: str
    hook_file: str
    index_path: str | None


class Loaded(NamedTuple):
    """A candidate with its index."""

    candidate: Candidate
    contents: Index


def load_catalog(*, probe: Probing = "missing", kinds: Collection[Kind] = ALL_KINDS, schemas: bool = True) -> Catalog:
    """Everything that is installed.

    ``probe`` says which plugins without an index are imported in child processes: those ``"missing"`` in the cache, all
    of them (``"fresh"``), or none (``"never"``; those that the cache does not know are left out).

    Listing many plugins is fast because it reads no more than it shows: only entries of ``kinds`` (and tasks), and
    without ``schemas`` no ``config_schema``. What is wrong in the rest is then not seen.

    Reads ``ICML26_DISABLE_PLUGINS`` (names of plugins or distributions, separated by commas) and
    ``ICML26_RAISE_PLUGIN_ERRORS``, under which the first fault is raised as PluginError.
    """
    found = scan()
    faults = list(found.faults)
    loaded: list[Loaded] = []
    unindexed: list[Candidate] = []
    for distribution in found.distributions:
        if _disabled(distribution):
            reason = "disabled by ICML26_DISABLE_PLUGINS"
            faults.append(Fault(distribution.entry_point, distribution.name, reason, "disabled", "note"))
            continue
        candidate = locate(distribution)
        if isinstance(candidate, Fault):
            faults.append(candidate)
        elif candidate.index_path is None:
            unindexed.append(candidate)
        else:
            outcome = _read(candidate, {"task", *kinds}, schemas)
            (faults if isinstance(outcome, Fault) else loaded).append(outcome)  # type: ignore[arg-type]
    if unindexed:
        from icml26.probe import probe_all

        indexes, problems = probe_all(unindexed, found.installed, probe=probe)
        loaded += [Loaded(candidate, index) for candidate, index in indexes]
        faults += problems
    catalog = assemble(loaded, faults)
    if os.environ.get("ICML26_RAISE_PLUGIN_ERRORS", "") not in ("", "0"):
        _raise_first(catalog.faults)
    return catalog


def locate(distribution: Distribution) -> Candidate | Fault:
    """Find a distribution's hook module and index without importing anything of it."""
    module = distribution.module.partition(":")[0]
    top, *rest = module.split(".")
    for root in _roots(distribution, top):
        base = "/".join([root, *rest])
        file = _module_file(base)
        if file is not None:
            folder = os.path.dirname(base) if rest else ""
            places = dict.fromkeys((folder, root)) if rest else ()
            index = next((path for place in places if os.path.isfile(path := f"{place}/{INDEX_FILE}")), None)
            return Candidate(distribution, folder, file, index)
    reason = f"its files are gone: no module {module} for the metadata in {distribution.folder}"
    fix = f"reinstall {distribution.name}, or remove {distribution.folder}"
    return Fault(distribution.entry_point, distribution.name, reason, "files-gone", fix=fix)


def assemble(loaded: list[Loaded], faults: list[Fault]) -> Catalog:
    """The catalog of these plugins: clashes of names and of tasks become faults of everyone involved."""
    loaded = sorted(loaded, key=lambda item: (item.contents.plugin, item.candidate.distribution.name))
    names, clashes = _plugin_names([item.candidate.distribution for item in loaded])
    faults = [*faults, *clashes]
    claims = Counter(item.spec.name for one in loaded for item in one.contents.specs if item.kind == "task")
    core_tasks = {
        item.spec.name
        for one in loaded
        if _is_core(one.candidate.distribution)
        for item in one.contents.specs
        if item.kind == "task"
    }
    plugins, entries, recipes = [], [], []
    for one in loaded:
        distribution = one.candidate.distribution
        plugin = names[distribution.name]
        plugins.append(_plugin(plugin, one))
        for item in one.contents.specs:
            task = item.spec.name
            if item.kind == "task" and claims[task] > 1 and not (task in core_tasks and _is_core(distribution)):
                others = _claimants(loaded, task, distribution)
                reason = f"the task {task} is claimed by {others} too"
                faults.append(
                    Fault(plugin, distribution.name, reason, "task-claimed-twice", fix="uninstall one of them")
                )
                continue
            spec = item.spec if plugin == distribution.entry_point else _renamed(item, distribution.entry_point, plugin)
            entries.append(Entry(item.kind, plugin, distribution.name, spec, item.config_schema))
        for name, title, path in one.contents.recipes:
            recipes.append(Recipe(plugin, name, title, f"{one.candidate.folder}/{path}"))
    return Catalog(tuple(plugins), tuple(entries), tuple(recipes), tuple(faults))


def extra_faults(catalog: Catalog) -> list[Fault]:
    """A note for each optional extra that something in the catalog needs and that is not installed."""
    wanted: dict[tuple[str, str, str], list[str]] = {}
    for entry in catalog.entries:
        extra = getattr(entry.spec, "extra", None)
        if extra is not None:
            wanted.setdefault((entry.plugin, entry.distribution, extra), []).append(entry.name)
    if not wanted:
        return []
    from icml26.extras import missing_extra

    folders = {plugin.distribution: plugin.metadata for plugin in catalog.plugins}
    installed = ScannedMetadata(folders, scan().installed)
    faults = []
    for (plugin, distribution, extra), users in wanted.items():
        problem = missing_extra(distribution, extra, installed)
        if problem is not None:
            fix = f"pip install '{distribution}[{extra}]'"
            faults.append(Fault(plugin, distribution, f"{', '.join(users)}: {problem}", "missing-extra", "note", fix))
    return faults


def _disabled(distribution: Distribution) -> bool:
    setting = os.environ.get("ICML26_DISABLE_PLUGINS", "")
    names = {name.strip() for name in setting.split(",")}
    return bool(setting) and (distribution.entry_point in names or distribution.name in names)


def _is_core(distribution: Distribution) -> bool:
    return (distribution.entry_point, distribution.name) == _CORE


def _roots(distribution: Distribution, top: str) -> Iterable[str]:
    """Folders (or, for a single module, file stems) that may be the top-level package, most likely first."""
    beside = f"{distribution.location}/{top}"
    if not distribution.editable:
        yield beside
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(top, None)
        except Exception:  # noqa: BLE001 - a finder of somebody else that fails has not found anything
            continue
        if spec is None:
            continue
        if spec.submodule_search_locations:
            yield from spec.submodule_search_locations
        elif spec.origin and os.path.isabs(spec.origin):
            yield os.path.splitext(spec.origin)[0]
    if distribution.editable:
        yield beside


def _module_file(base: str) -> str | None:
    for suffix in _MODULE_SUFFIXES:
        if os.path.isfile(base + suffix):
            return base + suffix
    package = f"{base}/__init__"
    return next((package + suffix for suffix in _MODULE_SUFFIXES if os.path.isfile(package + suffix)), None)


def _read(candidate: Candidate, kinds: Collection[Kind], schemas: bool) -> Loaded | Fault:
    distribution = candidate.distribution
    assert candidate.index_path is not None
    try:
        index = read_index(candidate.index_path, core_api=CORE_API, kinds=kinds, schemas=schemas)
        if index.plugin != distribution.entry_point or index.distribution != distribution.name:
            raise IndexFormatError(
                f"its index is of {index.plugin} ({index.distribution}), "
                f"its entry point of {distribution.entry_point} ({distribution.name})"
            )
    except IndexFormatError as error:
        fix = f"reinstall {distribution.name}; its author runs `icml26 check-plugin {distribution.name} --write-index`"
        return Fault(distribution.entry_point, distribution.name, str(error), "bad-index", fix=fix)
    return Loaded(candidate, index)


def _plugin_names(distributions: list[Distribution]) -> tuple[dict[str, str], list[Fault]]:
    """The name under which each distribution's plugin is known, and the faults of those that lose their short name."""
    claims = Counter(distribution.entry_point for distribution in distributions)
    names, faults = {}, []
    for distribution in distributions:
        name = distribution.entry_point
        reason, id_ = None, "name-claimed-twice"
        if name == "core" and not _is_core(distribution):
            reason, id_ = "the name core is reserved", "reserved-name"
        elif claims[name] > 1 and not _is_core(distribution):
            others = ", ".join(o.name for o in distributions if o.entry_point == name and o is not distribution)
            reason = f"the name {name} is claimed by {others} too"
        else:
            problem = name_problem(name)
            if problem:
                reason, id_ = f"the name of its entry point: {problem}", "bad-name"
        names[distribution.name] = name if reason is None else distribution.name
        if reason is not None:
            reason += f"; it is listed as {distribution.name}"
            faults.append(Fault(name, distribution.name, reason, id_, "warning", "uninstall one of them"))
    return names, faults


def _plugin(name: str, loaded: Loaded) -> Plugin:
    candidate, distribution = loaded.candidate, loaded.candidate.distribution
    return Plugin(
        name=name,
        distribution=distribution.name,
        version=distribution.version,
        module=distribution.module,
        editable=distribution.editable,
        location=candidate.folder,
        core_api=loaded.contents.core_api,
        indexed=candidate.index_path is not None,
        metadata=distribution.folder,
    )


def _claimants(loaded: list[Loaded], task: str, own: Distribution) -> str:
    return ", ".join(
        one.candidate.distribution.name
        for one in loaded
        if one.candidate.distribution is not own
        and any(item.kind == "task" and item.spec.name == task for item in one.contents.specs)
    )


def _renamed(item: IndexedSpec, old: str, new: str) -> Any:
    """The spec with references to its own plugin under the name that the plugin has here."""

    def rename(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(rename(part) for part in value)
        if isinstance(value, str) and value.startswith(f"{old}/"):
            return f"{new}/{value[len(old) + 1 :]}"
        return value

    names = [
        name for name in ("metrics", "needs", "reference", "default_dataset", "relative_to") if hasattr(item.spec, name)
    ]
    return replace(item.spec, **{name: rename(getattr(item.spec, name)) for name in names})


def _raise_first(faults: Iterable[Fault]) -> None:
    for fault in faults:
        if fault.severity == "error":
            text = f"plugin {fault.plugin} ({fault.distribution}): {fault.reason}"
            raise PluginError(f"{text}\n{fault.details}" if fault.details else text)
