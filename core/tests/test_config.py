"""Options from the command line, from files and from profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from icml26.config import merge, parse_settings, read_config_file, resolve_config
from icml26.errors import InputError, UsageError
from icml26.method import MethodConfig
from pydantic import BaseModel, Field


class Nested(BaseModel):
    depth: int = Field(2, ge=1, description="depth")
    scale: float = Field(1.0, description="scale")


class Config(MethodConfig):
    text: str = Field("a", description="a text")
    maybe: str | None = Field(None, description="a text or nothing")
    count: int = Field(1, ge=1, le=9, description="a count")
    rate: float = Field(0.5, gt=0, description="a rate")
    ratio: float | None = Field(None, description="a ratio")
    on: bool = Field(False, description="a switch")
    sizes: tuple[int, ...] = Field((2, 3), description="sizes")
    weights: list[float] = Field([1.0], description="weights")
    nested: Nested = Field(Nested(), description="more")
    either: int | str = Field(1, description="a number or a name")


DEEP = "[" * 3000 + "]" * 3000
SCHEMA = Config.model_json_schema()


def resolve(*settings: str) -> dict[str, Any]:
    return resolve_config(SCHEMA, [parse_settings(settings).method], owner="toy/shift")


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("text=1e-5", "text", "1e-5"),
        ("text=a=b", "text", "a=b"),
        ("text=", "text", ""),
        ("maybe=true", "maybe", "true"),
        ("rate=1e-5", "rate", 1e-5),
        ("rate=2", "rate", 2.0),
        ("ratio=3", "ratio", 3.0),
        ("rate=inf", "rate", float("inf")),
        ("count=7", "count", 7),
        ("on=true", "on", True),
        ("sizes=[4, 5]", "sizes", [4, 5]),
        ("weights=[1, 2]", "weights", [1.0, 2.0]),
        ('nested={"depth": 3}', "nested", {"depth": 3, "scale": 1.0}),
        ("nested={depth = 3}", "nested", {"depth": 3, "scale": 1.0}),
        ("nested.depth=4", "nested", {"depth": 4, "scale": 1.0}),
        ("either=5", "either", 5),
        ("either=five", "either", "five"),
    ],
)
def test_a_setting_is_read_by_the_type_of_its_field(setting: str, key: str, value: Any) -> None:
    resolved = resolve(setting)
    assert resolved[key] == value
    assert type(resolved[key]) is type(value)
    Config.model_validate(resolved)


def test_resolved_without_settings_is_what_pydantic_dumps() -> None:
    assert resolve_config(SCHEMA, [], owner="x") == Config().model_dump(mode="json")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("counts=3", "no option 'counts'; did you mean 'count'"),
        ("count=0", "'count' is 0; allowed: an integer >= 1 and <= 9"),
        ("count=1.5", "'count' is 1.5; allowed: an integer"),
        ("count=x", "'x' is not integer"),
        ("count=true", "'count' is True; allowed: an integer"),
        ("rate=0", "allowed: a number > 0"),
        ("rate=-inf", "allowed: a number > 0"),
        ("on=yes", "'yes' is not boolean"),
        ("sizes=3", "'sizes' is 3; allowed: a list"),
        ("nested.dept=3", "no option 'nested.dept'; did you mean 'depth'"),
        ("nested.depth=0", "'nested.depth' is 0"),
    ],
)
def test_wrong_settings_name_the_option_and_what_is_allowed(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")) as caught:
        resolve(setting)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("setting", ["count", "=3", "metric.fder=3", "metric.fder.=3"])
def test_settings_without_key_or_value_are_refused(setting: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        parse_settings([setting])


def test_settings_go_to_method_dataset_and_metric() -> None:
    overrides = parse_settings(["a=1", "method.b=2", "dataset.c=3", "metric.hits.k=4", "a=5"])
    assert {name: value.text for name, value in overrides.method.items()} == {"a": "5", "b": "2"}
    assert overrides.dataset["c"].text == "3"
    assert overrides.metric["hits"]["k"].text == "4"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[metod]\n", "unknown table .metod.; did you mean 'method'"),
        (b"method = 3\n", "must be a table"),
        (b"[method\n", "config.toml"),
        (b"\xff\xfe", "config.toml"),
        (b"[metric]\nfder = 3\n", "metric.fder. must be a table"),
    ],
)
def test_faulty_config_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_config_file(file)


def test_missing_config_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_config_file(tmp_path / "none.toml")


def test_later_layers_win_table_by_table() -> None:
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}, "d": {"e": 1}}) == {
        "a": {"b": 9, "c": 2},
        "d": {"e": 1},
    }


def test_a_config_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "notepad.toml"
    file.write_bytes(b"\xef\xbb\xbf[method]\nsteps = 3\n")
    assert read_config_file(file).method == {"steps": 3}


def test_nesting_without_end_is_wrong_usage_and_no_bug(tmp_path: Path) -> None:
    file = tmp_path / "deep.toml"
    file.write_text(f"[method]\nsizes = {DEEP}\n")
    with pytest.raises(UsageError, match=r"--config .*deep\.toml: arrays or tables are nested too deeply"):
        read_config_file(file)
    with pytest.raises(InputError, match="option 'sizes': lists or tables are nested too deeply"):
        resolve(f"sizes={DEEP}")


def test_a_path_with_a_zero_character_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="cannot be the path of a file"):
        read_config_file(Path("a\0.toml"))


def test_a_table_in_place_of_a_number_is_shown_as_it_was_given() -> None:
    with pytest.raises(InputError, match=r"option 'count' is \{'x': 1\}; allowed: an integer"):
        resolve("count.x=1")
