"""The static index: what is written comes back, what is wrong is refused, and drift from the hooks is seen."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from icml26.errors import PluginError
from icml26.index import IndexFormatError, index_from_json, parse_index, read_index, spec_from_json, spec_to_json
from icml26.index_build import build_index, differences, index_text, write_index
from icml26.keys import from_jsonable
from icml26.names import name_problem, target_problem, task_problem
from icml26.smallfiles import read_bytes
from icml26.specs import CORE_API, DatasetSpec, MethodSpec, MetricSpec, Paper, Provides, TaskSpec, Value
from installed import index_of

SPECS = [
    ("task", TaskSpec("toys.sort", "Sort", "a:I", "a:T", "a:O", ("m",), {"w": "a word"})),
    (
        "method",
        MethodSpec(
            "fast-sort",
            "toys.sort",
            "a.b:C",
            "Sorts – quickly",
            role="oracle",
            paper=Paper("A title", "2605.00001", "id", "ICML 2026", ("A. B.", "C. D.")),
            requires=("w", Provides("w2", {"kind": ("x", 1, None)})),
            provides=(Provides("plugin:v"),),
            metrics=("m",),
            default_dataset="core/d",
            reference="r",
            profiles={"small": {"n": 1, "limit": math.inf}},
            smoke={"n": 2},
            files=("path",),
            extra="trees",
            results_version=3,
        ),
    ),
    (
        "dataset",
        DatasetSpec(
            "d", "toys.sort", "a:D", "Data", ("w",), False, ("path",), "small", {"n": 3}, "x", "7", "CC0-1.0", "there"
        ),
    ),
    (
        "metric",
        MetricSpec(
            "m",
            "toys.sort",
            "a:m",
            (Value("", "s", "lower"), Value("se", "s", None, "")),
            "A metric",
            ("w",),
            ("n",),
            "none",
            "expensive",
            "x",
        ),
    ),
]


@pytest.mark.parametrize(("kind", "spec"), SPECS)
def test_every_field_of_a_spec_survives_json(kind: Any, spec: Any) -> None:
    text = json.dumps({"nonfinite-safe": spec_to_json(spec)}, allow_nan=False)
    assert spec_from_json(kind, from_jsonable(json.loads(text)["nonfinite-safe"])) == spec


def test_an_infinite_value_in_an_index_file_comes_back_as_infinity() -> None:
    document = index_of("p", "icml26-plugin-p", "p")
    document["methods"][0]["smoke"] = {"limit": {"nonfinite": "inf"}}
    index = parse_index(json.dumps(document), core_api=CORE_API)
    assert next(one.spec for one in index.specs if one.spec.name == "p").smoke == {"limit": math.inf}


def test_unknown_keys_of_a_later_minor_version_are_left_alone() -> None:
    document = index_of("p", "icml26-plugin-p", "p")
    document["methods"][0]["added_later"] = 1
    document["added_later"] = 1
    assert len(index_from_json(document, core_api=CORE_API).specs) == 5


def _without(section: str, field: str) -> Any:
    return lambda document: document[section][0].pop(field)


def _with(section: str, **fields: Any) -> Any:
    return lambda document: document[section][0].update(fields)


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (_without("methods", "target"), "target"),
        (_with("methods", name="Not_Kebab"), "kebab-case"),
        (_with("methods", name="x" * 41), "40 characters"),
        (_with("methods", name="con"), "Windows"),
        (_with("methods", name=3), "name"),
        (_with("methods", name="plain"), "twice"),
        (_with("methods", role="hero"), "hero"),
        (_with("methods", target="os.system"), "import string"),
        (_with("methods", target="os:system('x')"), "import string"),
        (_with("methods", results_version="1"), "results_version"),
        (_with("methods", profiles={"small": 3}), "profiles"),
        (_with("methods", paper={"title": 3}), "paper"),
        (_with("methods", requires=[{"word": None}]), "requires"),
        (_with("methods", config_schema=3), "config_schema"),
        (_with("tasks", name="nodot"), "field.noun"),
        (_with("datasets", seeded="yes"), "seeded"),
        (_with("metrics", values=[]), "no value"),
        (_with("metrics", values=[{"direction": "up"}]), "direction"),
        (_with("metrics", cost="free"), "free"),
        (lambda document: document.update(schema="icml26.index/2"), "icml26.index/2"),
        (lambda document: document.update(core_api=2), "core_api 2"),
        (lambda document: document.update(methods={}), "list"),
        (lambda document: document.update(plugin=None), "text"),
        (lambda document: document.update(recipes=[{"name": "r", "title": "t", "path": "../../etc/passwd"}]), "leaves"),
        (lambda document: document.update(recipes=[{"name": "r", "title": "t", "path": "/etc/passwd"}]), "leaves"),
        (lambda document: document.update(recipes=[{"name": "r"}]), "title"),
    ],
)
def test_a_wrong_index_is_refused_with_the_reason(spoil: Any, word: str) -> None:
    document = index_of("p", "icml26-plugin-p", "p")
    spoil(document)
    with pytest.raises(IndexFormatError, match=word):
        index_from_json(document, core_api=CORE_API)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"schema": "icml26.index/1"', "[" * 100_000])
def test_a_damaged_index_is_refused(text: str) -> None:
    with pytest.raises(IndexFormatError):
        parse_index(text, core_api=CORE_API)


def test_an_index_that_is_a_folder_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match="cannot be read"):
        read_index(str(tmp_path), core_api=CORE_API)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(IndexFormatError, match="cannot be read"):
        read_index(str(tmp_path / "binary"), core_api=CORE_API)


def test_the_committed_index_of_core_agrees_with_its_hooks() -> None:
    import icml26

    path = Path(icml26.__file__).with_name("icml26-index.json")
    fresh = build_index("core", "icml26", "icml26.builtin")
    assert differences(json.loads(path.read_text(encoding="utf-8")), fresh) == []


PLUGIN = """
from icml26.hookspecs import hookimpl
from icml26.specs import DatasetSpec, MethodSpec, MetricSpec, TaskSpec

@hookimpl
def icml26_methods():
    return [MethodSpec("mine", "regression.tabular", "{module}.impl:Mine", "S", reference="mean",
                       default_dataset="own", metrics=("size", "r2", "other/x", "nowhere"))]

@hookimpl
def icml26_datasets():
    return [DatasetSpec("own", "regression.tabular", "{module}.impl:Data", "S")]

@hookimpl
def icml26_metrics():
    return [MetricSpec("size", "regression.tabular", "{module}.impl:size", needs=("r2",), relative_to="mean")]
"""
IMPLEMENTATION = """
import math
from typing import Literal
from pydantic import BaseModel, Field
from icml26 import Dataset, DatasetConfig, Method, MethodConfig

class Inner(BaseModel):
    depth: int = Field(3, ge=1, description="How deep")

class Mine(Method):
    class Config(MethodConfig):
        beta: float = Field(0.8, gt=0, le=1, description="Share kept")
        limit: float = Field(math.inf, description="Largest value")
        kind: Literal["a", "b"] = Field("a", description="Which")
        inner: Inner = Field(Inner(), description="Inside")
    def run(self, inputs, ctx):
        return None

class Data(Dataset):
    class Config(DatasetConfig):
        n: int = Field(10, ge=1, description="Rows")
    def load(self, ctx):
        return None
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A package with hooks and implementations, under a module name of the test's own."""
    import sys

    name = "toy_" + "".join(char if char.isalnum() else "_" for char in request.node.name)
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "plugin.py").write_text(PLUGIN.replace("{module}", name))
    (folder / "impl.py").write_text(IMPLEMENTATION)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


def _build(package: Path, **options: Any) -> dict[str, Any]:
    return build_index("toy", "icml26-plugin-toy", f"{package.name}.plugin", **options)


def test_names_in_an_index_are_qualified_own_plugin_first_then_core(package: Path) -> None:
    document = _build(package)
    method, metric = document["methods"][0], document["metrics"][0]
    assert method["reference"] == "core/mean"
    assert method["default_dataset"] == "toy/own"
    assert method["metrics"] == ["toy/size", "core/r2", "other/x", "nowhere"]
    assert metric["needs"] == ["core/r2"]
    assert metric["relative_to"] == "core/mean"


def test_an_index_holds_the_schema_of_every_config_as_strict_json(package: Path) -> None:
    document = _build(package)
    schema = document["methods"][0]["config_schema"]
    assert schema["properties"]["beta"]["exclusiveMinimum"] == 0
    assert schema["properties"]["limit"]["default"] == {"nonfinite": "inf"}
    json.dumps(document, allow_nan=False)
    path = write_index(document, package)
    assert read_index(str(path), core_api=CORE_API).plugin == "toy"
    assert path.read_text(encoding="utf-8") == index_text(document)
    assert [item.name for item in package.iterdir() if item.name.endswith(".tmp")] == []


def test_without_schemas_no_implementation_is_imported(package: Path) -> None:
    (package / "impl.py").write_text("raise RuntimeError('imported')")
    assert "config_schema" not in _build(package, schemas=False)["methods"][0]
    with pytest.raises(PluginError, match="imported"):
        _build(package)


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("gt=0, le=1", "gt=0, le=2", "methods.mine.config.beta.maximum"),
        ("0.8,", "0.7,", "methods.mine.config.beta.default"),
        ("Share kept", "Share thrown", "methods.mine.config.beta.description"),
        ("beta:", "gamma:", "methods.mine.config"),
        ('["a", "b"]', '["a", "c"]', "methods.mine.config.kind.enum"),
        (
            'ge=1, description="How deep"',
            'ge=2, description="How deep"',
            "methods.mine.config.inner.fields.depth.minimum",
        ),
        ("n: int = Field(10, ge=1", "n: int = Field(10, ge=0", "datasets.own.config.n.minimum"),
    ],
)
def test_a_config_that_moved_away_from_the_index_is_seen(package: Path, old: str, new: str, path: str) -> None:
    import sys

    before = json.loads(json.dumps(_build(package)))
    assert differences(before, _build(package)) == []
    source = (package / "impl.py").read_text()
    assert old in source
    (package / "impl.py").write_text(source.replace(old, new) + "\n# another length for the bytecode cache\n")
    del sys.modules[f"{package.name}.impl"]
    found = differences(before, _build(package))
    assert found and found[0].startswith(path)


def test_schemas_that_say_the_same_in_other_words_are_equal() -> None:
    def index(field: dict[str, Any], **definitions: Any) -> dict[str, Any]:
        schema = {"properties": {"x": field}, "$defs": definitions, "title": "Anything"}
        return {"methods": [{"name": "m", "config_schema": schema}]}

    inner = {"properties": {"d": {"type": "integer", "default": 1}}, "title": "Inner", "type": "object"}
    one = index({"allOf": [{"$ref": "#/$defs/Inner"}], "default": {"d": 1}}, Inner=inner)
    two = index({"$ref": "#/$defs/Renamed", "default": {"d": 1}, "title": "X"}, Renamed={**inner, "title": "Renamed"})
    assert differences(one, two) == []
    assert differences(index({"const": "a"}), index({"enum": ["a"], "type": "string"})) == []
    union = [{"type": "integer"}, {"type": "null"}]
    assert differences(index({"anyOf": union}), index({"anyOf": union[::-1]})) == []
    assert differences(one, index({"$ref": "#/$defs/I", "default": {"d": 2}}, I=inner)) != []


@pytest.mark.parametrize(
    ("hooks", "word"),
    [
        ("    return 3", "int"),
        ("    return 'ab'", "str"),
        ("    return {'a': 1}", "dict"),
        ("    return [3]", "MethodSpec is expected"),
        ("    return None", None),
        ("    return [MethodSpec('Bad Name', 'a.b', 'a:B', 's')]", "kebab"),
        ("    return [MethodSpec('m', 'a.b', 'a:B', 's')] * 2", "twice"),
        ("    yield MethodSpec('m', 'a.b', 'a', 's')", "import string"),
    ],
)
def test_hooks_that_return_nonsense_are_refused(package: Path, hooks: str, word: str | None) -> None:
    head = "from icml26.hookspecs import hookimpl\nfrom icml26.specs import *\n@hookimpl\ndef icml26_methods():\n"
    (package / "plugin.py").write_text(head + hooks)
    if word is None:
        assert _build(package, schemas=False)["methods"] == []  # pluggy leaves None out, as a hook that declines
    else:
        with pytest.raises(PluginError, match=word):
            _build(package, schemas=False)


def test_a_misspelt_hook_is_refused(package: Path) -> None:
    (package / "plugin.py").write_text(
        "from icml26.hookspecs import hookimpl\n@hookimpl\ndef icml26_method(): return []\n"
    )
    with pytest.raises(PluginError, match="icml26_method"):
        _build(package)


def test_recipes_are_listed_with_title_and_bad_ones_are_refused(package: Path) -> None:
    (package / "recipes").mkdir()
    (package / "recipes" / "main.toml").write_text('schema = "icml26.recipe/1"\ntitle = "It holds"\n')
    assert _build(package)["recipes"] == [{"name": "main", "title": "It holds", "path": "recipes/main.toml"}]
    (package / "recipes" / "bad.toml").write_text("title = ")
    with pytest.raises(PluginError, match=r"recipes/bad\.toml"):
        _build(package)


@pytest.mark.parametrize("name", ["a", "a1", "abl", "fine-pruning", "0x", "x" * 40])
def test_good_names(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "a--b", "A", "a_b", "a.b", "ä", "a b", "nul", "com1", "x" * 41, None, 3, "a\n"]
)
def test_bad_names(name: Any) -> None:
    assert name_problem(name) is not None


def test_names_of_tasks_and_targets() -> None:
    assert task_problem("forecasting.backdoor-defense") is None
    assert task_problem("a.b.c") is None
    assert all(task_problem(name) for name in ("", "a", "a.", ".b", "A.b", "a.b\n", None))
    assert target_problem("a.b:C.d") is None
    assert all(target_problem(name) for name in ("", "a", ":C", "a:", "a-b:C", "a:C()", "a b:C", None))


def _specs(text: str, **options: Any) -> list[Any]:
    return [one.spec for one in parse_index(text, core_api=CORE_API, **options).specs]


def test_passing_over_the_schemas_gives_the_same_specs_whatever_the_layout(package: Path) -> None:
    document = _build(package)
    document["methods"][0]["summary"] = 'tricky } { \n   } "config_schema": {\n and \\n   } too'
    document["methods"][0]["config_schema"]["description"] = '\n   }\n   "config_schema": {\n'
    for text in (
        index_text(document),
        json.dumps(document),
        json.dumps(document, indent=2),
        json.dumps(document, indent=1, sort_keys=True),
    ):
        assert _specs(text, schemas=False) == _specs(text)
    light = parse_index(index_text(document), core_api=CORE_API, schemas=False)
    assert {one.config_schema for one in light.specs} == {None}
    full = parse_index(index_text(document), core_api=CORE_API)
    [method] = [one for one in full.specs if one.kind == "method"]
    assert method.config_schema == from_jsonable(document["methods"][0]["config_schema"])


def test_an_index_laid_out_by_hand_loses_no_entry_when_schemas_are_passed_over() -> None:
    document = index_of("p", "icml26-plugin-p", "p")
    for number, entry in enumerate([*document["methods"], *document["datasets"]]):
        entry["config_schema"] = {"number": number}
    text = json.dumps(document, indent=1)
    first = '"config_schema": {\n    "number": 0\n   }'
    assert first in text
    by_hand = text.replace(first, '"config_schema": {\n "number": 0 }')
    assert _specs(by_hand, schemas=False) == _specs(text)
    no_other = json.dumps({**document, "methods": document["methods"][:1], "datasets": []}, indent=1)
    by_hand = no_other.replace(first, '"config_schema": {\n "number": 0 }').replace('"smoke": {}', '"smoke": {\n   }')
    assert json.loads(by_hand)
    assert _specs(by_hand, schemas=False) == _specs(no_other)


def test_a_damaged_schema_is_seen_even_when_schemas_are_passed_over() -> None:
    document = index_of("p", "icml26-plugin-p", "p")
    document["methods"][0]["config_schema"] = {"a": {"b": 1}}
    text = json.dumps(document, indent=1)
    with pytest.raises(IndexFormatError, match="damaged"):
        parse_index(text[: text.index('"b"')], core_api=CORE_API, schemas=False)


def test_only_the_kinds_that_are_asked_for_are_read() -> None:
    text = json.dumps(index_of("p", "icml26-plugin-p", "p"))
    found = parse_index(text, core_api=CORE_API, kinds=("dataset", "task")).specs
    assert [one.kind for one in found] == ["task", "dataset"]


def test_a_file_of_any_size_is_read_whole(tmp_path: Path) -> None:
    for size in (0, 1, 65535, 65536, 65537, 200_000):
        data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        (tmp_path / "file").write_bytes(data)
        assert read_bytes(str(tmp_path / "file")) == data
