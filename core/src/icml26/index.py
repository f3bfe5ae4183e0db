"""The static index of a plugin: its specs as JSON, read and checked without running any of its code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeAlias

from icml26.catalog import Kind
from icml26.errors import PluginError
from icml26.names import name_problem, target_problem, task_problem
from icml26.specs import DatasetSpec, MethodSpec, MetricSpec, Paper, Provides, Spec, TaskSpec, Value, Word

INDEX_FILE = "icml26-index.json"
INDEX_SCHEMA = "icml26.index/1"

#: The key of each kind's list in an index, in the order in which they stand there.
SECTIONS: dict[Kind, str] = {"task": "tasks", "method": "methods", "dataset": "datasets", "metric": "metrics"}

_ROLES = frozenset(("paper", "baseline", "reference", "oracle"))
_DIRECTIONS = frozenset(("lower", "higher", None))
_COSTS = frozenset(("cheap", "expensive"))

Read: TypeAlias = Callable[[Any], Any]


class IndexFormatError(PluginError):
    """An index that is not one, or that holds something a spec cannot be."""


@dataclass(frozen=True, slots=True)
class IndexedSpec:
    """A spec as an index holds it; ``config_schema`` is the JSON schema of its Config, None when it was not built."""

    kind: Kind
    spec: Any
    config_schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """A validated index. ``recipes`` are (name, title, path relative to the index); ``smoke`` holds metrics by method."""

    plugin: str
    distribution: str
    core_api: int
    specs: tuple[IndexedSpec, ...] = ()
    recipes: tuple[tuple[str, str, str], ...] = ()
    smoke: Mapping[str, Any] | None = None


def read_index(path: str, *, core_api: int) -> Index:
    """Read and validate an index file; raises IndexFormatError with the reason."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise IndexFormatError(f"its {INDEX_FILE} cannot be read ({error})") from error
    return parse_index(text, core_api=core_api)


def parse_index(text: str, *, core_api: int) -> Index:
    """Validate the text of an index; raises IndexFormatError for damage, another schema or another ``core_api``."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IndexFormatError(f"its {INDEX_FILE} is damaged ({error})") from error
    if '"nonfinite"' in text:
        from icml26.keys import from_jsonable

        document = from_jsonable(document)
    return index_from_json(document, core_api=core_api)


def index_from_json(document: Any, *, core_api: int) -> Index:
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
    readers, required, make = _READERS[kind]
    values = {}
    try:
        for name in required:
            if name not in document:
                raise IndexFormatError(f"its index has a {kind} without {name!r}")
        for name, value in document.items():
            reader = readers.get(name)
            if reader is not None:
                values[name] = reader(value)
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


_COMMON: dict[str, Read] = {
    "name": _text,
    "summary": _text,
    "task": _text,
    "target": _text,
    "inputs": _text,
    "truth": _text,
    "output": _text,
    "role": _text,
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
    "revision": _text,
    "results_version": _integer,
    "seeded": _flag,
    "cost": _text,
}


def _readers(make: type[Any]) -> tuple[dict[str, Read], tuple[str, ...], type[Any]]:
    known = fields(make)
    required = tuple(item.name for item in known if item.default is MISSING and item.default_factory is MISSING)
    return {item.name: _COMMON[item.name] for item in known}, required, make


_KINDS: dict[type, Kind] = {TaskSpec: "task", MethodSpec: "method", DatasetSpec: "dataset", MetricSpec: "metric"}
_READERS = {kind: _readers(make) for make, kind in _KINDS.items()}
