"""Build the static index of a plugin from its hooks, and tell whether an index still agrees with them.

This imports the plugin: it runs in ``check-plugin``, in tests and in the child process of a probe, never while listing.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from icml26.catalog import Kind
from icml26.errors import PluginError
from icml26.index import (
    INDEX_FILE,
    INDEX_SCHEMA,
    SECTIONS,
    duplicate_problem,
    index_from_json,
    spec_problem,
    spec_to_json,
)
from icml26.names import name_problem
from icml26.smallfiles import read_text
from icml26.specs import CORE_API, DatasetSpec, MethodSpec, MetricSpec, Spec, TaskSpec

_HOOKS: dict[Kind, tuple[str, type[Any]]] = {
    "task": ("icml26_tasks", TaskSpec),
    "method": ("icml26_methods", MethodSpec),
    "dataset": ("icml26_datasets", DatasetSpec),
    "metric": ("icml26_metrics", MetricSpec),
}


def build_index(
    plugin: str,
    distribution: str,
    module: str,
    *,
    schemas: bool = True,
    smoke: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The index document of the plugin whose hook module is ``module`` (or ``module:object``), which is imported.

    With ``schemas`` every method and dataset is imported too, for the JSON schema of its Config. ``smoke`` (metrics of
    smoke runs) is carried along. Raises PluginError for hooks that return something else than valid specs.
    """
    specs = collect_specs(module)
    own = {kind: {spec.name for spec in items} for kind, items in specs.items()}
    core = own if plugin == "core" else _core_names()
    document: dict[str, Any] = {
        "schema": INDEX_SCHEMA,
        "core_api": CORE_API,
        "plugin": plugin,
        "distribution": distribution,
    }
    for kind, section in SECTIONS.items():
        entries = []
        for spec in specs[kind]:
            entry = spec_to_json(_qualified(spec, plugin, own, core))
            if schemas and kind in ("method", "dataset"):
                entry["config_schema"] = config_schema(spec)
            entries.append(entry)
        document[section] = entries
    document["recipes"] = find_recipes(package_folder(module))
    document["smoke"] = dict(smoke or {})
    index_from_json(document, core_api=CORE_API)
    return document


def collect_specs(module: str) -> dict[Kind, list[Any]]:
    """Import a hook module and call its hooks; raises PluginError when a hook returns anything but valid specs."""
    import pluggy

    from icml26 import hookspecs

    manager = pluggy.PluginManager("icml26")
    manager.add_hookspecs(hookspecs)
    with _blamed(f"cannot import {module}"):
        hooks = _hook_object(module)
    with _blamed(f"{module} does not fit the hooks of icml26"):
        manager.register(hooks)
        manager.check_pending()
    specs: dict[Kind, list[Any]] = {}
    for kind, (hook, expected) in _HOOKS.items():
        specs[kind] = []
        with _blamed(f"{hook}() of {module} fails"):
            for returned in getattr(manager.hook, hook)():
                specs[kind].extend(_checked(hook, expected, returned))
    problem = duplicate_problem([spec for items in specs.values() for spec in items])
    if problem:
        raise PluginError(problem)
    return specs


def config_schema(spec: MethodSpec | DatasetSpec) -> dict[str, Any]:
    """The JSON schema of a method's or dataset's Config, which is imported; floats that are not finite are tagged."""
    from pydantic import BaseModel

    from icml26.keys import jsonable
    from icml26.targets import load_target

    config = getattr(load_target(spec.target, owner=spec.name), "Config", None)
    if not (isinstance(config, type) and issubclass(config, BaseModel)):
        raise PluginError(f"{spec.target} has no nested class Config (a pydantic model)")
    try:
        schema = jsonable(config.model_json_schema())
    except (TypeError, ValueError) as error:
        raise PluginError(f"{spec.target}: its Config has no JSON schema ({error})") from error
    assert isinstance(schema, dict)
    return schema


def find_recipes(folder: Path | None) -> list[dict[str, str]]:
    """Name, title and relative path of each ``recipes/*.toml`` of a package folder; raises PluginError for a bad file."""
    recipes = []
    for path in sorted((folder / "recipes").glob("*.toml")) if folder is not None else ():
        problem = name_problem(path.stem)
        if problem:
            raise PluginError(f"recipes/{path.name}: {problem}")
        try:
            document = tomllib.loads(read_text(path))
        except (OSError, ValueError) as error:
            raise PluginError(f"recipes/{path.name}: not a readable TOML file ({error})") from error
        title = document.get("title", path.stem)
        recipes.append({"name": path.stem, "title": str(title), "path": f"recipes/{path.name}"})
    return recipes


def package_folder(module: str) -> Path | None:
    """The folder of the package that holds an imported hook module: where its index and recipes lie."""
    name = module.partition(":")[0]
    package = importlib.import_module(name)
    file = getattr(package, "__file__", None)
    return Path(file).parent if file and "." in name else None


def index_text(document: Mapping[str, Any]) -> str:
    """The text of an index file."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_index(document: Mapping[str, Any], folder: Path) -> Path:
    """Write an index into a package folder, by a temporary name and a rename."""
    path = folder / INDEX_FILE
    temporary = path.with_name(f".{INDEX_FILE}.{os.getpid()}.tmp")
    try:
        temporary.write_text(index_text(document), encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def differences(index: Mapping[str, Any], fresh: Mapping[str, Any]) -> list[str]:
    """Where a stored index disagrees with a freshly built one, as ``methods.timeguard.summary: 'old' -> 'new'`` lines.

    Both are compared in a normalised form: JSON schemas are reduced to the fields' names, types, defaults, bounds and
    descriptions, since their form differs between versions of pydantic. ``smoke`` is not compared.
    """
    return list(_differences("", _normalised(index), _normalised(fresh)))


@contextlib.contextmanager
def _blamed(what: str) -> Iterator[None]:
    """Turn whatever a plugin's code raises, ``SystemExit`` too, into a PluginError that says where."""
    try:
        yield
    except PluginError:
        raise
    except SystemExit as error:
        raise PluginError(f"{what}: it calls sys.exit({error.code!r})") from error
    except Exception as error:
        raise PluginError(f"{what}: {type(error).__name__}: {error}") from error


def _hook_object(module: str) -> Any:
    name, _, attribute = module.partition(":")
    found: Any = importlib.import_module(name)
    for part in attribute.split(".") if attribute else ():
        found = getattr(found, part)
    return found


def _checked(hook: str, expected: type[Any], returned: Any) -> list[Any]:
    if isinstance(returned, str | bytes | Mapping) or not isinstance(returned, Iterable):
        raise PluginError(
            f"{hook}() returned a {type(returned).__name__}; an iterable of {expected.__name__} is expected"
        )
    items = list(returned)
    for item in items:
        if not isinstance(item, expected):
            raise PluginError(f"{hook}() returned a {type(item).__name__}; {expected.__name__} is expected")
        problem = spec_problem(item)
        if problem:
            raise PluginError(problem)
    return items


def _core_names() -> dict[Kind, set[str]]:
    """The names that core's own index declares, by kind."""
    path = Path(__file__).with_name(INDEX_FILE)
    if not path.is_file():
        return {kind: set() for kind in SECTIONS}
    document = json.loads(path.read_text(encoding="utf-8"))
    return {kind: {entry["name"] for entry in document[section]} for kind, section in SECTIONS.items()}


def _qualified(spec: Spec, plugin: str, own: Mapping[Kind, set[str]], core: Mapping[Kind, set[str]]) -> Spec:
    """The spec with the names it refers to qualified, where they are its own plugin's or core's."""

    def qualify(kind: Kind, name: str | None) -> str | None:
        if name is None or "/" in name:
            return name
        if name in own[kind]:
            return f"{plugin}/{name}"
        return f"core/{name}" if name in core[kind] else name

    changes: dict[str, Any] = {}
    for field in ("metrics", "needs"):
        if hasattr(spec, field):
            changes[field] = tuple(qualify("metric", name) for name in getattr(spec, field))
    if isinstance(spec, MethodSpec):
        changes["reference"] = qualify("method", spec.reference)
        changes["default_dataset"] = qualify("dataset", spec.default_dataset)
    if isinstance(spec, MetricSpec):
        changes["relative_to"] = qualify("method", spec.relative_to)
    return replace(spec, **changes) if changes else spec


def _normalised(document: Mapping[str, Any]) -> dict[str, Any]:
    normal: dict[str, Any] = {name: document.get(name) for name in ("schema", "core_api", "plugin", "distribution")}
    for section in (*SECTIONS.values(), "recipes"):
        normal[section] = {}
        for entry in document.get(section, ()):
            entry = dict(entry)
            schema = entry.pop("config_schema", None)
            if isinstance(schema, Mapping):
                entry["config"] = _fields_of(schema, schema.get("$defs", {}))
            normal[section][entry.get("name")] = entry
    return normal


_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_LENGTHS = (
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "pattern",
    "enum",
    "const",
    "type",
    "default",
    "description",
)


def _fields_of(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    required = set(schema.get("required", ()))
    found = {}
    for name, field in schema.get("properties", {}).items():
        facts = _facts(field, definitions, ())
        facts["required"] = name in required
        found[name] = facts
    return found


def _facts(field: Mapping[str, Any], definitions: Mapping[str, Any], above: tuple[str, ...]) -> dict[str, Any]:
    """What matters of one field's schema: references followed, wrappers dissolved, alternatives sorted."""
    facts = {key: field[key] for key in (*_BOUNDS, *_LENGTHS) if key in field}
    reference = field.get("$ref")
    if reference is not None:
        name = str(reference).rpartition("/")[2]
        if name not in above and name in definitions:
            target = definitions[name]
            facts = {**_facts(target, definitions, (*above, name)), **facts}
            if "properties" in target:
                facts["fields"] = _fields_of(target, definitions) if len(above) < 8 else name
    if isinstance(field.get("items"), Mapping):
        facts["items"] = _facts(field["items"], definitions, above)
    alternatives = [
        _facts(option, definitions, above) for key in ("anyOf", "oneOf", "allOf") for option in field.get(key, ())
    ]
    if len(alternatives) == 1:
        return {**alternatives[0], **facts}
    if alternatives:
        facts["any"] = sorted(alternatives, key=lambda item: json.dumps(item, sort_keys=True))
    if "const" in facts:
        facts["enum"] = [facts.pop("const")]
    if "enum" in facts:
        facts.pop("type", None)
    return facts


def _differences(path: str, old: Any, new: Any) -> Iterable[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{path}.{key}" if path else str(key)
            if key not in new:
                yield f"{inner}: only in the index"
            elif key not in old:
                yield f"{inner}: missing in the index"
            else:
                yield from _differences(inner, old[key], new[key])
    elif old != new:
        yield f"{path}: {old!r} in the index, {new!r} in the hooks"
