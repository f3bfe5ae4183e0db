"""``icml26 show NAME``: all that the static index says of a method, dataset, metric, task or plugin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from icml26.catalog import Catalog, Entry, Kind, unknown
from icml26.cli.lists import shortest_names, warn_of_faults, warnings
from icml26.cli.output import Output, plain, wrapped
from icml26.errors import UsageError
from icml26.index import SECTIONS, spec_to_json
from icml26.keys import jsonable
from icml26.plugins import load_catalog

KINDS: tuple[Kind, ...] = ("method", "dataset", "metric", "task")


def show(name: str, kind: str | None, output: Output, *, as_json: bool) -> int:
    """Print everything called ``name`` (of one ``kind``); raises UsageError when nothing is, or when several are."""
    if kind is not None and kind not in KINDS:
        raise UsageError(f"--kind {kind!r}: one of {', '.join(KINDS)} is expected")
    catalog = load_catalog()
    entries = find_all(catalog, name, KINDS if kind is None else (kind,))
    if as_json:
        output.json("show", {"entries": [_document(entry) for entry in entries], "warnings": warnings(catalog.faults)})
        return 0
    warn_of_faults(catalog, output)
    blocks = ["\n".join(_describe(entry, catalog, output)) for entry in entries]
    output.write("\n\n".join(blocks))
    return 0


def find_all(catalog: Catalog, name: str, kinds: tuple[Kind, ...]) -> list[Entry]:
    """The entries of these kinds that ``name`` means; raises UsageError when it is unknown or ambiguous."""
    found: list[Entry] = []
    ambiguous: UsageError | None = None
    bare = name.rpartition("/")[2]
    for kind in kinds:
        if any(entry.name == bare for entry in catalog.of_kind(kind)):
            try:
                found.append(catalog.find(kind, name))
            except UsageError as error:
                ambiguous = ambiguous or error
    if found:
        return found
    if ambiguous is not None:
        raise ambiguous
    known = [known for kind in kinds for known in shortest_names(catalog, kind).values()]
    what = kinds[0] if len(kinds) == 1 else "method, dataset, metric or task"
    message = unknown(what, name, known)
    if len(kinds) > 1:
        message = message.replace(f"; see `icml26 list-{what}s`", "; see `icml26 list-methods`")
    raise UsageError(message)


def _document(entry: Entry) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "plugin": entry.plugin,
        "qualified": entry.qualified,
        "distribution": entry.distribution,
        **spec_to_json(entry.spec),
        "config_schema": jsonable(entry.config_schema),
    }


def _describe(entry: Entry, catalog: Catalog, output: Output) -> Iterator[str]:
    spec = entry.spec
    role = f", role {spec.role}" if entry.kind == "method" else ""
    yield f"{output.style(entry.qualified, 'bold')}  {entry.kind}{role}"
    if spec.summary:
        yield from wrapped(plain(spec.summary), output.width)
    facts = dict(_facts(entry))
    label_width = max((len(label) for label in facts), default=0)
    for label, text in facts.items():
        first, *rest = wrapped(plain(text), max(output.width - label_width - 4, 20))
        yield f"  {output.style(label.ljust(label_width), 'dim')}  {first}"
        yield from (" " * (label_width + 4) + line for line in rest)
    if entry.kind in ("method", "dataset"):
        yield from _options(entry, output)
    if entry.kind == "task":
        for kind in ("method", "dataset", "metric"):
            names = [other.qualified for other in catalog.of_kind(kind, task=entry.name)]
            if names:
                yield f"  {SECTIONS[kind]}: {', '.join(names)}"
    if entry.kind == "method":
        yield ""
        yield f"Run it: icml26 run {shortest_names(catalog, 'method')[id(entry)]}"


def _facts(entry: Entry) -> Iterator[tuple[str, str]]:
    document = spec_to_json(entry.spec)
    if "task" in document:
        yield "task", document["task"]
    paper = document.get("paper")
    if paper:
        link = f", https://arxiv.org/abs/{paper['arxiv']}" if paper["arxiv"] else ""
        yield "paper", f"{paper['title']} ({paper['venue']}){link}"
    for name in (
        "default_dataset",
        "reference",
        "metrics",
        "requires",
        "provides",
        "needs",
        "files",
        "profile",
        "extra",
        "revision",
        "license",
        "source",
        "relative_to",
        "cost",
        "inputs",
        "truth",
        "output",
    ):
        text = _text(document.get(name))
        if text:
            yield name.replace("_", " "), text
    for word, meaning in (document.get("words") or {}).items():
        yield f"word {word}", meaning
    for profile, overrides in (document.get("profiles") or {}).items():
        yield f"profile {profile}", ", ".join(f"{key}={value!r}" for key, value in overrides.items())
    for value in document.get("values", ()):
        direction = f"{value['direction']} is better" if value["direction"] else "neither way is better"
        label = f"value {value['name']}" if value["name"] else "value"
        error = f"error of {value['error_of'] or entry.name}" if value["error_of"] is not None else direction
        yield label, f"{error}, unit: {value['unit'] or 'none'}"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    if isinstance(value, Mapping):
        when = "; ".join(f"{key} in {values}" for key, values in value.get("when", {}).items())
        return f"{value.get('word')} (when {when})" if when else str(value.get("word"))
    return "" if value is None else str(value)


def _options(entry: Entry, output: Output) -> Iterator[str]:
    schema = entry.config_schema
    if schema is None:
        yield "  options are known once the plugin has a static index (icml26 check-plugin --write-index)"
        return
    prefix = "dataset." if entry.kind == "dataset" else ""
    options = list(schema.get("properties", {}).items())
    if not options:
        yield "  no options"
        return
    yield ""
    yield output.style(f"Options (--set {prefix}KEY=VALUE)", "bold")
    required = schema.get("required", ())
    for name, field in options:
        default = "required" if name in required else f"default {_literal(field.get('default'))}"
        yield f"  {output.style(prefix + name, 'cyan')}  {option_type(field, schema)}, {default}"
        description = field.get("description")
        if description:
            yield from (f"      {line}" for line in wrapped(plain(description), max(output.width - 6, 20)))


def option_type(field: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """A field's type and bounds in words: ``number, > 0, <= 1``."""
    field = _dereferenced(field, root)
    options = [_dereferenced(option, root) for key in ("anyOf", "oneOf") for option in field.get(key, ())]
    if options:
        return " or ".join(dict.fromkeys(option_type(option, root) for option in options))
    if "enum" in field or "const" in field:
        return "|".join(_literal(value) for value in field.get("enum", [field.get("const")]))
    kind = str(field.get("type", "object" if "properties" in field else "any value"))
    if kind == "null":
        return "none"
    if kind == "array" and isinstance(field.get("items"), Mapping):
        kind = f"list of {option_type(field['items'], root)}"
    signs = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
    bounds = [f"{sign} {field[key]}" for key, sign in signs.items() if key in field]
    return ", ".join([kind, *bounds])


def _dereferenced(field: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    if "allOf" in field and len(field["allOf"]) == 1:
        field = {**field["allOf"][0], **field}
    reference = field.get("$ref")
    if not isinstance(reference, str):
        return field
    found = root.get("$defs", {}).get(reference.rpartition("/")[2], {})
    return found if isinstance(found, Mapping) else {}


def _literal(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
