from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path

import pytest
from icml26.errors import InputError
from icml26.registry.generate import generate, main, project_entry
from icml26.registry.reader import read_registry


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    make_plugin(tmp_path / "plugins" / "second", "second")
    make_plugin(tmp_path / "plugins" / "first", "first")
    return tmp_path


def make_plugin(folder: Path, name: str, **index: object) -> None:
    package = folder / "src" / f"icml26_plugin_{name}"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "icml26-plugin-{name}"\nversion = "0.1.0"\ndescription = "A \\"{name}\\" plugin"\n'
        'license = "Apache-2.0"\nauthors = [{ name = "Ada" }]\n'
        f'[project.entry-points.icml26]\n{name} = "icml26_plugin_{name}.plugin"\n'
    )
    document = {
        "schema": "icml26.index/1",
        "core_api": 1,
        "methods": [
            {"name": "none", "task": "field.noun", "role": "baseline", "paper": None},
            {
                "name": name,
                "task": "field.noun",
                "role": "paper",
                "paper": {"title": "On {x} and 'y'", "arxiv": "2601.1"},
            },
        ],
        "datasets": [{"name": "toy", "task": "regression.tabular"}],
        "tasks": [{"name": "field.noun"}],
    } | index
    (package / "icml26-index.json").write_text(json.dumps(document))


def test_the_registry_is_made_of_the_plugins_own_data(repository: Path) -> None:
    assert main([str(repository)]) == 0
    registry = read_registry(repository / "registry.toml", "icml26")
    assert not registry.rejected and not registry.warnings
    first, second = registry.plugins
    assert (first.name, second.name) == ("first", "second")
    assert first.distribution == "icml26-plugin-first" and first.summary == 'A "first" plugin'
    assert first.methods == ("none", "first") and first.datasets == ("toy",)
    assert first.tasks == ("field.noun", "regression.tabular")
    assert first.paper is not None and first.paper.title == "On {x} and 'y'" and first.paper.arxiv == "2601.1"
    assert first.maintainers == ("Ada",) and first.license == "Apache-2.0"


def test_check_sees_a_change(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(repository)]) == 0
    assert main([str(repository), "--check"]) == 0
    make_plugin(repository / "plugins" / "third", "third")
    assert main([str(repository), "--check"]) == 1
    assert '+name = "third"' in capsys.readouterr().err


def test_hashes_of_released_wheels_are_written_and_kept(repository: Path) -> None:
    wheels = repository / "dist"
    wheels.mkdir()
    (wheels / "icml26_plugin_first-0.1.0-py3-none-any.whl").write_bytes(b"wheel")
    main([str(repository), "--wheels", str(wheels)])
    main([str(repository)])
    document = tomllib.loads((repository / "registry.toml").read_text())
    assert document["plugin"][0]["wheels"] == [
        {"file": "icml26_plugin_first-0.1.0-py3-none-any.whl", "sha256": hashlib.sha256(b"wheel").hexdigest()}
    ]


def test_a_plugin_without_an_index_is_named(tmp_path: Path) -> None:
    make_plugin(tmp_path, "lone")
    (tmp_path / "src" / "icml26_plugin_lone" / "icml26-index.json").unlink()
    with pytest.raises(InputError, match=r"icml26-index\.json is missing; write it: icml26 check-plugin"):
        project_entry(tmp_path)


def test_two_plugins_of_one_name_are_refused(repository: Path) -> None:
    text = (repository / "plugins/second/pyproject.toml").read_text()
    (repository / "plugins/second/pyproject.toml").write_text(text.replace('second = "icml26', 'first = "icml26'))
    with pytest.raises(InputError, match="stands 2 times"):
        generate(repository)
