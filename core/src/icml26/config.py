"""Configs from text to values: ``--set``, config files, profiles and defaults, directed by a Config's JSON schema.

The schema comes from the static index, so wrong keys and values are refused before any plugin is imported; pydantic has
the last word when the run begins.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icml26.errors import InputError, UsageError
from icml26.keys import from_jsonable
from icml26.strict_toml import read_toml

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a user set, by part: values that are still text are ``Text`` until a schema says how to read them."""

    method: dict[str, Any] = field(default_factory=dict)
    dataset: dict[str, Any] = field(default_factory=dict)
    metric: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Text:
    """The text right of ``=`` in ``--set``, to be read by the field's type."""

    text: str


def read_config_file(path: Path) -> Overrides:
    """The tables ``[method]``, ``[dataset]`` and ``[metric.NAME]`` of a TOML file; raises UsageError naming the fault."""
    try:
        document = read_toml(path)
    except UsageError as error:
        raise UsageError(f"--config {error}") from error
    known = ("method", "dataset", "metric")
    for name, table in document.items():
        if name not in known:
            raise UsageError(
                f"--config {path}: unknown table [{name}]{_nearest(name, known)}; allowed: {', '.join(known)}"
            )
        if not isinstance(table, dict):
            raise UsageError(f"--config {path}: [{name}] must be a table")
    metric = document.get("metric", {})
    for name, table in metric.items():
        if not isinstance(table, dict):
            raise UsageError(f"--config {path}: [metric.{name}] must be a table")
    return Overrides(document.get("method", {}), document.get("dataset", {}), metric)


def parse_settings(settings: Iterable[str]) -> Overrides:
    """``KEY=VALUE``, ``dataset.KEY=VALUE`` and ``metric.NAME.KEY=VALUE`` of the command line; the last one of a key wins."""
    overrides = Overrides()
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not equals or not key:
            raise UsageError(f"--set {setting!r}: expected KEY=VALUE")
        part, _, rest = key.partition(".")
        if part == "dataset" and rest:
            _put(overrides.dataset, rest, Text(text))
        elif part == "metric":
            name, _, option = rest.partition(".")
            if not option:
                raise UsageError(f"--set {setting!r}: expected metric.NAME.KEY=VALUE")
            _put(overrides.metric.setdefault(name, {}), option, Text(text))
        elif part == "method" and rest:
            _put(overrides.method, rest, Text(text))
        else:
            _put(overrides.method, key, Text(text))
    return overrides


def _put(table: dict[str, Any], dotted: str, value: Text) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        below = table.setdefault(parent, {})
        if not isinstance(below, dict):
            raise UsageError(f"--set {dotted}: {parent} was already set as a whole")
        table = below
    table[last] = value


def merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """``upper`` over ``lower``, table by table."""
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def merge_overrides(lower: Overrides, upper: Overrides) -> Overrides:
    """Part by part, ``upper`` wins."""
    return Overrides(
        merge(lower.method, upper.method), merge(lower.dataset, upper.dataset), merge(lower.metric, upper.metric)
    )


def resolve_config(schema: Schema | None, layers: Iterable[Mapping[str, Any]], *, owner: str) -> dict[str, Any]:
    """All fields of a config: the schema's defaults under the layers, the later layer wins.

    ``owner`` names the config in errors, e.g. ``"timeguard/timeguard"``. Raises InputError for an unknown key (with the
    nearest ones) or a value that the schema excludes (with the allowed range). Integers in float fields become floats.
    """
    layered: dict[str, Any] = {}
    for layer in layers:
        layered = merge(layered, layer)
    if schema is None:
        return {key: _untyped(value) for key, value in layered.items()}
    return _resolve_object(schema, schema, layered, owner, "")


def _resolve_object(root: Schema, schema: Schema, values: Mapping[str, Any], owner: str, prefix: str) -> dict[str, Any]:
    properties = schema.get("properties", {})
    closed = not schema.get("additionalProperties", False)
    for key in values:
        if key not in properties and closed:
            known = ", ".join(properties) or "none"
            raise InputError(f"{owner} has no option {prefix + key!r}{_nearest(key, properties)} (options: {known})")
    resolved: dict[str, Any] = {}
    for key, prop in properties.items():
        path = prefix + key
        if key in values:
            value = values[key]
            if isinstance(value, dict) and isinstance(prop.get("default"), dict):
                value = merge(from_jsonable(prop["default"]), value)
            resolved[key] = _resolve_value(root, prop, value, owner, path)
        elif "default" in prop:
            resolved[key] = _resolve_value(root, prop, from_jsonable(prop["default"]), owner, path, checked=False)
        elif key in schema.get("required", ()):
            raise InputError(f"{owner} needs the option {path!r}: {prop.get('description', 'no description')}")
    for key in values:
        if key not in properties:
            resolved[key] = _untyped(values[key])
    return resolved


def _resolve_value(root: Schema, prop: Schema, value: Any, owner: str, path: str, *, checked: bool = True) -> Any:
    branches = [_deref(root, branch) for branch in _branches(root, prop)]
    if isinstance(value, Text):
        value = _read_text(value.text, branches, owner, path)
    objects = [branch for branch in branches if branch.get("type") == "object" and "properties" in branch]
    if isinstance(value, dict) and len(objects) == 1:
        return _resolve_object(root, objects[0], value, owner, path + ".")
    types = {str(branch["type"]) for branch in branches if "type" in branch}
    if isinstance(value, int) and not isinstance(value, bool) and "number" in types and "integer" not in types:
        value = float(value)
    if isinstance(value, list | tuple):
        items = [branch["items"] for branch in branches if branch.get("type") == "array" and "items" in branch]
        if len(items) == 1:
            value = [_resolve_value(root, items[0], item, owner, f"{path}[{i}]") for i, item in enumerate(value)]
    if checked:
        faults = [_fault(branch, value) for branch in branches]
        if faults and all(faults):
            allowed = " or ".join(dict.fromkeys(fault for fault in faults if fault))
            raise InputError(f"{owner}: option {path!r} is {_untyped(value)!r}; allowed: {allowed}")
    return value


def _read_text(text: str, branches: list[Schema], owner: str, path: str) -> Any:
    types = {str(branch["type"]) for branch in branches if "type" in branch} - {"null"}
    if types == {"string"}:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"] if "\n" not in text else json.loads(text)
    except RecursionError as error:
        raise InputError(f"{owner}: option {path!r}: lists or tables are nested too deeply") from error
    except (tomllib.TOMLDecodeError, ValueError):
        pass
    try:
        return json.loads(text)
    except ValueError:
        if "string" in types or not types:
            return text
    wanted = " or ".join(sorted(types)) or "a value"
    raise InputError(f"{owner}: option {path!r}: {text!r} is not {wanted} in TOML or JSON")


def _untyped(value: Any) -> Any:
    if isinstance(value, Text):
        return _read_text(value.text, [], "", "")
    if isinstance(value, dict):
        return {key: _untyped(item) for key, item in value.items()}
    return value


def _branches(root: Schema, prop: Schema) -> list[Schema]:
    prop = _deref(root, prop)
    inner = prop.get("anyOf") or prop.get("oneOf")
    if inner is None:
        return [prop]
    return [leaf for branch in inner for leaf in _branches(root, branch)]


def _deref(root: Schema, schema: Schema) -> Schema:
    while "$ref" in schema or len(schema.get("allOf", ())) == 1:
        if "$ref" in schema:
            target: Any = root
            for part in schema["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            schema = target
        else:
            schema = schema["allOf"][0]
    return schema


_PYTHON = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": (list, tuple),
    "object": dict,
    "null": type(None),
}


def _fault(schema: Schema, value: Any) -> str | None:
    """What the schema allows, when it excludes the value; None when it does not."""
    if "const" in schema:
        return None if value == schema["const"] else repr(schema["const"])
    if "enum" in schema:
        return None if value in schema["enum"] else ", ".join(map(repr, schema["enum"]))
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _PYTHON:
        return None
    fits = isinstance(value, _PYTHON[kind]) and not (isinstance(value, bool) and kind in ("integer", "number"))  # type: ignore[arg-type]
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        fits = True
    if kind in ("integer", "number"):
        return (
            None
            if fits and _within(schema, value)
            else _range(schema, "an integer" if kind == "integer" else "a number")
        )
    if not fits:
        return {"null": "nothing", "array": "a list", "object": "a table", "string": "a text"}.get(kind, f"a {kind}")
    if kind == "string" and "pattern" in schema and not re.search(schema["pattern"], value):
        return f"a text that matches {schema['pattern']}"
    if kind == "array" and not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf):
        return f"a list of {schema.get('minItems', 0)} to {schema.get('maxItems', 'any number of')} items"
    return None


def _within(schema: Schema, value: float) -> bool:
    return bool(
        (
            value >= schema.get("minimum", -math.inf)
            and value <= schema.get("maximum", math.inf)
            and value > schema.get("exclusiveMinimum", -math.inf)
            and value < schema.get("exclusiveMaximum", math.inf)
        )
        or (math.isnan(value) and not {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} & set(schema))
        or (math.isinf(value) and value > 0 and not {"maximum", "exclusiveMaximum"} & set(schema))
        or (math.isinf(value) and value < 0 and not {"minimum", "exclusiveMinimum"} & set(schema))
    )


def _range(schema: Schema, noun: str) -> str:
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[name]}" for name, sign in signs.items() if name in schema]
    return f"{noun} {' and '.join(bounds)}".strip()


def _nearest(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
