"""The run key and its parts."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from enum import Enum
from pathlib import Path

import pytest
import toy
from hypothesis import given
from hypothesis import strategies as st
from icml26.config import parse_settings, read_config_file
from icml26.errors import InputError
from icml26.keys import canonical, from_jsonable, hash_path, hash_sources, jsonable
from icml26.plan import Choice, Planner


def key(config: dict | None = None, dataset: dict | None = None, seed: int = 0, **more: object) -> str:
    plan = Planner(toy.catalog()).plan(
        Choice("shift", config or {}), Choice("numbers", dataset or {}), seed=seed, **more
    )
    assert plan.request is not None
    return plan.request.key


def settings_key(*settings: str) -> str:
    overrides = parse_settings(settings)
    return key(overrides.method, overrides.dataset)


def test_key_ignores_the_order_of_options_and_spelled_out_defaults() -> None:
    assert key({"steps": 4, "rate": 0.5}) == key({"rate": 0.5, "steps": 4})
    assert key({"rate": 1e-3, "kind": "plain", "limit": None}) == key()
    assert key({"shift": 2.0}) == key()  # the value of the recommended profile


@pytest.mark.parametrize("text", ["1e-3", "0.001", "0.1e-2"])
def test_key_is_the_same_however_a_float_is_spelled(text: str) -> None:
    assert settings_key(f"rate={text}") == key({"rate": 0.001})


def test_an_integer_in_a_float_field_is_that_float() -> None:
    assert key({"shift": 1}) == key({"shift": 1.0}) == settings_key("shift=1") == settings_key("shift=1.0")
    assert key({"limit": 3}) == key({"limit": 3.0})


def test_key_is_the_same_from_toml_and_from_set(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[dataset]\nn = 7\n[method]\nrate = 1e-2\nkind = 'square'\n")
    overrides = read_config_file(file)
    assert key(overrides.method, overrides.dataset) == settings_key("kind=square", "dataset.n=7", "rate=0.01")


def test_key_changes_with_seed_config_and_the_last_bit_of_a_float() -> None:
    keys = [key(), key(seed=1), key({"steps": 4}), key({"rate": math.nextafter(1e-3, 1)}), key(dataset={"n": 6})]
    assert len(set(keys)) == len(keys)


def test_key_follows_the_content_of_a_file_and_not_its_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "x.txt", tmp_path / "b" / "other name.txt"
    for path in (first, second):
        path.parent.mkdir()
        path.write_text("1\n2\n")
    assert key(dataset={"path": str(first)}) == key(dataset={"path": str(second)})
    before = key(dataset={"path": str(first)})
    first.write_text("1\n3\n")
    assert key(dataset={"path": str(first)}) != before


def test_relative_paths_start_from_the_given_folder(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("1\n")
    assert key(dataset={"path": "x.txt"}, base=tmp_path) == key(dataset={"path": str(tmp_path / "x.txt")})


def test_key_does_not_depend_on_the_hash_seed() -> None:
    code = "import test_keys; print(test_keys.key({'steps': 4, 'kind': 'square'}))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {key({"steps": 4, "kind": "square"}) + "\n"}


def test_a_missing_file_is_refused_with_the_option_and_path(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"option 'path'.*gone\.txt: no such file"):
        key(dataset={"path": str(tmp_path / "gone.txt")})


def test_a_folder_counts_by_names_and_content(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1")
    before = hash_path(tmp_path)
    (tmp_path / "a.txt").rename(tmp_path / "b.txt")
    assert hash_path(tmp_path) != before


def test_source_hash_sees_code_and_not_caches(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    before = hash_sources([tmp_path])
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("?")
    assert hash_sources([tmp_path]) == before
    (tmp_path / "a.py").write_text("x = 2\n")
    assert hash_sources([tmp_path]) != before


class Colour(Enum):
    RED = "red"


def test_canonical_text_of_paths_enums_tuples_and_floats() -> None:
    value = {"b": (1, 2.5), "a": [Path("x/y"), Colour.RED, math.inf, -math.inf, math.nan]}
    assert canonical(value) == (
        '{"a":["x/y","red",{"nonfinite":"inf"},{"nonfinite":"-inf"},{"nonfinite":"nan"}],"b":[1,2.5]}'
    )


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner)))
def test_json_form_comes_back(value: object) -> None:
    assert repr(from_jsonable(jsonable(value))) == repr(value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match=r"pipe\.csv: this is a pipe, socket or device"):
        hash_path(tmp_path / "pipe.csv")


def test_a_path_with_a_zero_character_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be the path of a file"):
        hash_path(Path("a\0.csv"))
