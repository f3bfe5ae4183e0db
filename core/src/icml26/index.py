"""The static index of a plugin: its specs as JSON, read and checked without running any of its code."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from typing import Any, NamedTuple, TypeAlias

from icml26.catalog import Kind
from icml26.errors import PluginError
from icml26.names import name_problem, target_problem, task_problem
from icml26.smallfiles import read_bytes
from icml26.specs import DatasetSpec, MethodSpec, MetricSpec, Paper, Provides, Spec, TaskSpec, Value, Word

INDEX_FILE = "icml26-index.json"
INDEX_SCHEMA = "icml26.index/1"

#: The key of each kind's list in an index, in the order in which they stand there.
SECTIONS: dict[Kind, str] = {"task": "tasks", "method": "methods", "dataset": "datasets", "metric": "metrics"}

ALL_KINDS: tuple[Kind, ...] = tuple(SECTIONS)

_ROLES = frozenset(("paper", "baseline", "reference", "oracle"))
_DIRECTIONS = frozenset(("lower", "higher", None))
_COSTS = frozenset(("cheap", "expensive"))

Read: TypeAlias = Callable[[Any], Any]


class IndexFormatError(PluginError):
    """An index that is not one, or that holds something a spec cannot be."""


class IndexedSpec(NamedTuple):
    """A spec as an index holds it; ``config_schema`` is the JSON schema of its Config, None when it was not built."""

    kind: Kind
    spec: Any
    config_schema: dict[str, Any] | None = None


class Index(NamedTuple):
    """A validated index. ``recipes`` are (name, title, path relative to the index); ``smoke`` holds metrics by method."""

    plugin: str
    distribution: str
    core_api: int
    specs: tuple[IndexedSpec, ...] = ()
    recipes: tuple[tuple[str, str, str], ...] = ()
    smoke: Mapping[str, Any] | None = None


def read_index(path: str, *, core_api: int, kinds: Collection[Kind] = ALL_KINDS, schemas: bool = True) -> Index:
    """Read and validate an index file; raises IndexFormatError with the reason. See ``parse_index``."""
    try:
        text = read_bytes(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise IndexFormatError(f"its {INDEX_FILE} cannot be read ({error})") from error
    return parse_index(text, core_api=core_api, kinds=kinds, schemas=schemas)


def parse_index(text: str, *, core_api: int, kinds: Collection[Kind] = ALL_KINDS, schemas: bool = True) -> Index:
    """Validate the text of an index; raises IndexFormatError for damage, another schema or another ``core_api``.

    Only specs of ``kinds`` are read. Without ``schemas`` the JSON schemas of configs are passed over, where the text is
    laid out as we write it.
    """
    if not schemas:
        try:
            return _parsed(_without_schemas(text), core_api, kinds)
        except IndexFormatError:
            pass  # whether the index is wrong, or only its layout another, the whole text says
    return _parsed(text, core_api, kinds)


def index_from_json(document: Any, *, core_api: int, kinds: Collection[Kind] = ALL_KINDS) -> Index:
    """Validate an index document; see ``parse_index``."""
    if not isinstance(document, dict) or document.get("schema") != INDEX_SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise IndexFormatError(f"its index has schema {found!r}; this icml26 reads {INDEX_SCHEMA!r}")
    if document.get("core_api") != core_api:
        raise IndexFormatError(f"it is made for core_api {document.get('core_api')!r}; this icml26 has {core_api}")
    try:
        specs = tuple(
            IndexedSpec(kind, spec_from_json(kind, entry), _schema_of(entry))
            for kind, section in SECTIONS.items()
            if kind in kinds
            for entry in _list(document.get(section, []))
        )
        problem = duplicate_problem([item.spec for item in specs])
        if problem:
            raise IndexFormatError(problem)
        return Index(
            plugin=_text(document.get("plugin")),
            distribution=_text(document.get("distribution")),
            core_api=core_api,
            specs=specs,
            recipes=tuple(_recipe(item) for item in _list(document.get("recipes", []))),
            smoke=_mapping(document.get("smoke", {})),
        )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise IndexFormatError(f"its index holds something unexpected ({error})") from error


def spec_to_json(spec: Spec) -> dict[str, Any]:
    """All fields of a spec as JSON values (without its config schema)."""
    from icml26.keys import jsonable

    document: dict[str, Any] = {}
    for item in fields(spec):
        value = getattr(spec, item.name)
        if item.name in ("requires", "provides"):
            document[item.name] = [_word_to_json(word) for word in value]
        elif item.name == "values":
            document[item.name] = [_plain(entry) for entry in value]
        elif isinstance(value, Paper):
            document[item.name] = _plain(value)
        else:
            document[item.name] = jsonable(value)
    return document


def spec_from_json(kind: Kind, document: Any) -> Spec:
    """The spec that an index entry describes; unknown keys are left alone. Raises IndexFormatError."""
    if not isinstance(document, dict):
        raise IndexFormatError(f"its index holds a {type(document).__name__} where a {kind} is expected")
    make, plan = _PLANS[kind]
    values: dict[str, Any] = {}
    try:
        for name, reader, default in plan:
            value = document.get(name, default)
            if value == default:
                if default is _REQUIRED:
                    raise IndexFormatError(f"its index has a {kind} without {name!r}")
            elif reader is not None:
                values[name] = reader(value)
            elif type(value) is str:
                values[name] = value
            else:
                raise TypeError(f"is {value!r}, not a text")
    except (TypeError, ValueError) as error:
        raise IndexFormatError(f"{kind} {document.get('name')!r}: field {name!r} {error}") from error
    spec: Spec = make(**values)
    problem = spec_problem(spec)
    if problem:
        raise IndexFormatError(problem)
    return spec


def spec_problem(spec: Spec) -> str | None:
    """The first thing that is wrong with a spec taken alone (names, roles, directions, targets); None when it is fine."""
    kind = _KINDS[type(spec)]
    if isinstance(spec, TaskSpec):
        problem = task_problem(spec.name)
        for target in (spec.inputs, spec.truth, spec.output):
            problem = problem or target_problem(target)
    else:
        problem = name_problem(spec.name) or task_problem(spec.task) or target_problem(spec.target)
    if problem is None and isinstance(spec, MethodSpec):
        if spec.role not in _ROLES:
            problem = f"role {spec.role!r} is none of {', '.join(sorted(_ROLES))}"
        elif not isinstance(spec.results_version, int):
            problem = f"results_version {spec.results_version!r} is not an integer"
    if problem is None and isinstance(spec, MetricSpec):
        if not spec.values:
            problem = "it declares no value"
        elif spec.cost not in _COSTS:
            problem = f"cost {spec.cost!r} is neither 'cheap' nor 'expensive'"
        elif any(value.direction not in _DIRECTIONS for value in spec.values):
            problem = "a direction is none of 'lower', 'higher', None"
    return None if problem is None else f"{kind} {spec.name!r}: {problem}"


def duplicate_problem(specs: list[Any]) -> str | None:
    """The first name that one kind has twice; None when all differ."""
    seen = set()
    for spec in specs:
        key = (type(spec), spec.name)
        if key in seen:
            return f"it declares the {_KINDS[type(spec)]} {spec.name!r} twice"
        seen.add(key)
    return None


def _parsed(text: str, core_api: int, kinds: Collection[Kind]) -> Index:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IndexFormatError(f"its {INDEX_FILE} is damaged ({error})") from error
    if '"nonfinite"' in text:
        from icml26.keys import from_jsonable

        document = from_jsonable(document)
    return index_from_json(document, core_api=core_api, kinds=kinds)


def _without_schemas(text: str) -> str:
    """The text of an index with every config schema replaced by null.

    In JSON with an indent of one a schema goes from its key to the next brace that stands as deep as the key; no text
    within it can look like that, since strings hold no line breaks. This is several times faster than parsing them.
    """
    parts: list[str] = []
    position = 0
    while (start := text.find(_SCHEMA_BEGIN, position)) >= 0:
        end = text.find(_SCHEMA_END, start)
        if end < 0:
            break
        parts += (text[position : start + len(_SCHEMA_BEGIN) - 2], "null")
        position = end + len(_SCHEMA_END)
    parts.append(text[position:])
    stripped = "".join(parts)
    # In a text that somebody laid out by hand, "the next brace" may have been another entry's.
    return stripped if stripped.count(_SCHEMA_KEY) == text.count(_SCHEMA_KEY) else text


_SCHEMA_KEY = '"config_schema"'
_SCHEMA_BEGIN = '\n   "config_schema": {\n'
_SCHEMA_END = "\n   }"


def _plain(value: Any) -> dict[str, Any]:
    return {
        item.name: list(entry) if isinstance(entry := getattr(value, item.name), tuple) else entry
        for item in fields(value)
    }


def _word_to_json(word: Word) -> Any:
    from icml26.keys import jsonable

    if isinstance(word, str):
        return word
    return {"word": word.word, "when": jsonable(word.when)}


def _schema_of(document: dict[str, Any]) -> dict[str, Any] | None:
    schema = document.get("config_schema")
    if schema is not None and not isinstance(schema, dict):
        raise IndexFormatError(f"{document.get('name')!r}: config_schema is not a JSON object")
    return schema


def _recipe(document: Any) -> tuple[str, str, str]:
    name, title, path = _text(document["name"]), _text(document["title"]), _text(document["path"])
    if path.startswith(("/", "\\")) or ".." in path.replace("\\", "/").split("/") or ":" in path:
        raise IndexFormatError(f"recipe {name!r}: path {path!r} leaves the package")
    return name, title, path


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"is {value!r}, not a text")
    return value


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"is a {type(value).__name__}, not a list")
    return value


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"is a {type(value).__name__}, not an object")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple([_text(item) for item in _list(value)])


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"is {value!r}, not an integer")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"is {value!r}, not true or false")
    return value


def _words(value: Any) -> tuple[Word, ...]:
    return tuple([item if isinstance(item, str) else _provides(item) for item in _list(value)])


def _provides(value: Any) -> Provides:
    document = _mapping(value)
    when = {name: tuple(_list(values)) for name, values in _mapping(document.get("when", {})).items()}
    return Provides(_text(document.get("word")), when)


def _profiles(value: Any) -> dict[str, dict[str, Any]]:
    return {name: _mapping(overrides) for name, overrides in _mapping(value).items()}


def _record(make: type[Any], readers: Mapping[str, Read]) -> Read:
    def read(value: Any) -> Any:
        document = _mapping(value)
        return make(**{name: reader(document[name]) for name, reader in readers.items() if name in document})

    return read


_paper = _record(
    Paper, {"title": _text, "arxiv": _optional_text, "openreview": _optional_text, "venue": _text, "authors": _texts}
)
_value = _record(
    Value, {"name": _text, "unit": _optional_text, "direction": _optional_text, "error_of": _optional_text}
)


def _optional_paper(value: Any) -> Paper | None:
    return None if value is None else _paper(value)


def _values(value: Any) -> tuple[Value, ...]:
    return tuple([_value(item) for item in _list(value)])


#: How each field is read; a field that is not here holds a text.
_FIELDS: dict[str, Read] = {
    "paper": _optional_paper,
    "requires": _words,
    "provides": _words,
    "metrics": _texts,
    "needs": _texts,
    "files": _texts,
    "words": _mapping,
    "smoke": _mapping,
    "profiles": _profiles,
    "values": _values,
    "default_dataset": _optional_text,
    "reference": _optional_text,
    "relative_to": _optional_text,
    "profile": _optional_text,
    "extra": _optional_text,
    "license": _optional_text,
    "source": _optional_text,
    "results_version": _integer,
    "seeded": _flag,
}
_REQUIRED = object()


def _plan(make: type[Any]) -> tuple[type[Any], list[tuple[str, Read | None, Any]]]:
    """Of each field: its name, its reader (None for a text), and the JSON of its default."""
    steps = []
    for item in fields(make):
        default: Any = item.default
        if item.default_factory is not MISSING:
            default = item.default_factory()
        elif default is MISSING:
            default = _REQUIRED
        if isinstance(default, tuple):
            default = [_plain(entry) for entry in default]
        steps.append((item.name, _FIELDS.get(item.name), default))
    return make, steps


_KINDS: dict[type, Kind] = {TaskSpec: "task", MethodSpec: "method", DatasetSpec: "dataset", MetricSpec: "metric"}
_PLANS = {kind: _plan(make) for make, kind in _KINDS.items()}
