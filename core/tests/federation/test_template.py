from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from builders import commit_all, git, install_editable
from icml26.carried import carried
from icml26.errors import EnvironmentError_, UsageError
from icml26.names import name_problem
from icml26.new_plugin import ANSWERS_FILE, LICENSES, Answers, new_plugin
from test_cli import Environment, environment  # noqa: F401 - a fixture

ODD_TITLE = 'On "quotes", {{ braces }}, {% blocks %}, \\back & ünï’s 🙂'


def answers(name: str = "odd-name", **changes: str) -> Answers:
    return Answers(name, **({"title": "A Paper", "author": "Ada"} | changes))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("my_method", "'my-method' would do"),
        ("My Method", "'my-method' would do"),
        ("ünï", "not kebab-case"),
        ("icml26", "reserved"),
        ("core", "reserved"),
        ("con", "reserved"),
        ("sample-mean", "reserved"),
        ("-x", "'x' would do"),
        ("../x", "'x' would do"),
        ("a" * 41, "longer than 40"),
        ("", "not kebab-case"),
        ("a\nb", "'a-b' would do"),
    ],
)
def test_a_name_that_gives_no_project_is_refused_in_one_line(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(hint)) as caught:
        answers(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"title": ""},
        {"title": "two\nlines"},
        {"title": "bell\a"},
        {"author": " "},
        {"license": "GPL"},
        {"task": "noun"},
        {"task": "Field.noun"},
        {"arxiv": "a b"},
    ],
)
def test_other_answers_are_checked(changes: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        answers(**changes)


@pytest.mark.parametrize("name", ["3d-net", "class", "numpy", "import-os", "a", "x" * 40])
@pytest.mark.parametrize("license_", LICENSES)
def test_odd_answers_give_a_project_that_parses(name: str, license_: str, tmp_path: Path) -> None:
    title = ODD_TITLE if license_ == "MIT" else "It's one 'apostrophe' after another"
    author = 'Ada "L" O’Neil \\ {{ x }}'
    folder = new_plugin(answers(name, title=title, author=author, license=license_), tmp_path / "project")
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["description"] == title and project["authors"] == [{"name": author}]
    assert project["license"] == license_ and project["name"] == f"icml26-plugin-{name}"
    for path in folder.rglob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"))
    module = ast.parse((folder / "src" / answers(name).module / "plugin.py").read_text(encoding="utf-8"))
    assert title in {node.value for node in ast.walk(module) if isinstance(node, ast.Constant)}
    index = json.loads((folder / "src" / answers(name).module / "icml26-index.json").read_text(encoding="utf-8"))
    assert index["methods"][0]["paper"]["title"] == title
    tomllib.loads((folder / "src" / answers(name).module / "recipes" / f"{name}.toml").read_text(encoding="utf-8"))
    licence = (folder / "LICENSE").read_text(encoding="utf-8")
    assert (
        author in licence
        and {"MIT": "MIT License", "BSD-3-Clause": "BSD 3", "Apache-2.0": "Apache"}[license_] in licence
    )
    left_over = [path for path in folder.rglob("*") if "{{" in str(path.relative_to(folder)) or path.suffix == ".jinja"]
    assert left_over == []


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="not an empty folder"):
        new_plugin(answers(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_template_that_is_none_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "no-template").mkdir()
    (tmp_path / "no-template" / "copier.yml").write_text(f"_tasks: ['touch {tmp_path}/ran']\n")
    with pytest.raises(EnvironmentError_, match="gave no project"):
        new_plugin(answers(), tmp_path / "project", template=str(tmp_path / "no-template"))
    assert not (tmp_path / "project").exists()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("options", "ok"),
    [
        ({"name": "fine-name", "title": "T", "author": "A"}, True),
        ({"name": "my_method", "title": "T", "author": "A"}, False),
        ({"name": "ünï", "title": "T", "author": "A"}, False),
        ({"name": "core", "title": "T", "author": "A"}, False),
        ({"name": "fine\n", "title": "T", "author": "A"}, False),
        ({"name": "fine", "title": "T\nT", "author": "A"}, False),
        ({"name": "fine", "title": "T", "author": ""}, False),
        ({"name": "fine", "title": "T", "author": "A", "task": "nodot"}, False),
        ({"name": "fine", "title": "T", "author": "A", "license": "WTFPL"}, False),
    ],
)
def test_copier_alone_asks_and_checks_the_same(
    options: dict[str, str], ok: bool, template: Path, tmp_path: Path
) -> None:
    data = [part for key, value in options.items() for part in ("--data", f"{key}={value}")]
    done = copier("copy", "--defaults", "--quiet", *data, str(template), str(tmp_path / "project"))
    assert (done.returncode == 0) == ok, done.stderr
    assert (tmp_path / "project" / "pyproject.toml").exists() == ok


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """A git repository with the template, tagged v0.1.0."""
    folder = tmp_path / "template"
    folder.mkdir()
    shutil.copyfile(carried("copier.yml"), folder / "copier.yml")
    shutil.copytree(carried("plugin-template"), folder / "plugin-template")
    commit_all(folder)
    git(folder, "tag", "v0.1.0")
    return folder


def copier(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "copier", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def change_template(template: Path) -> None:
    """Version 0.2.0: another lint rule, a new file, one file gone."""
    pyproject = template / "plugin-template" / "pyproject.toml.jinja"
    pyproject.write_text(pyproject.read_text().replace('"BLE"]', '"BLE", "N"]'))
    (template / "plugin-template" / "CONTRIBUTING.md.jinja").write_text("# How to contribute to {{ name }}\n")
    commit_all(template)
    git(template, "tag", "v0.2.0")


@pytest.mark.parametrize("began", ["with a repository", "with the carried template"])
def test_later_changes_of_the_template_arrive_and_the_authors_stay(began: str, template: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    if began == "with a repository":
        new_plugin(answers(), project, template=str(template))
    else:
        new_plugin(answers(), project)
        text = (project / ANSWERS_FILE).read_text()
        (project / ANSWERS_FILE).write_text(text.replace("_src_path: icml26", f"_src_path: {template}"))
    commit_all(project)
    readme, pyproject = project / "README.md", project / "pyproject.toml"
    readme.write_text(readme.read_text() + "\nMy own words.\n")
    pyproject.write_text(pyproject.read_text().replace('version = "0.1.0"', 'version = "0.7.0"'))
    (project / "CHANGELOG.md").unlink()
    commit_all(project)
    change_template(template)
    done = copier("update", "--defaults", "--quiet", folder=project)
    assert done.returncode == 0, done.stderr
    assert "My own words." in readme.read_text()
    assert 'version = "0.7.0"' in pyproject.read_text() and '"BLE", "N"]' in pyproject.read_text()
    assert (project / "CONTRIBUTING.md").read_text() == "# How to contribute to odd-name\n"
    assert not (project / "CHANGELOG.md").exists(), "what the author deleted came back"
    assert "_commit: v0.2.0" in (project / ANSWERS_FILE).read_text()
    assert "<<<<<<<" not in pyproject.read_text()


def test_a_generated_plugin_lists_runs_tests_and_checks_itself(
    environment: Environment,  # noqa: F811
    tmp_path: Path,
) -> None:
    project = tmp_path / "project"
    options = ("--title", ODD_TITLE, "--author", "Ada", "--task", "means.robust", "-o", str(project))
    assert environment("new-plugin", "odd-name", *options).stdout == f"{project}\n"
    install_editable(environment.site, project)
    assert "odd-name" in environment("list-methods").stdout
    described = environment.json("info", "odd-name")["plugin"]
    assert described["registry"] is None and described["methods"] == ["odd-name", "sample-mean"]  # type: ignore[index]
    assert "means.robust" in environment("list-tasks").stdout
    record = environment.json("run", "odd-name", "--smoke", "--quiet")["records"][0]  # type: ignore[index]
    assert record["status"] == "succeeded"
    report = environment.json("check-plugin", "odd-name")
    failed = [check for check in report["checks"] if check["outcome"] != "passed"]  # type: ignore[attr-defined]
    assert failed == []
    tests = subprocess.run(
        [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env=environment.variables,
        capture_output=True,
        text=True,
    )
    assert tests.returncode == 0, tests.stdout
    assert re.search(r"\d+ passed", tests.stdout)


def test_new_plugin_needs_no_terminal_when_all_is_said(environment: Environment, tmp_path: Path) -> None:  # noqa: F811
    refused = environment("new-plugin", "odd-name", code=2)
    assert "--title is missing" in refused.stderr
    refused = environment("new-plugin", "odd_name", "--title", "T", "--author", "A", code=2)
    assert refused.stderr.count("\n") == 1 and "'odd-name' would do" in refused.stderr


def test_the_template_refuses_what_the_library_refuses() -> None:
    import yaml

    questions = yaml.safe_load(carried("copier.yml").read_text())
    assert not {"_tasks", "_migrations", "_jinja_extensions"} & set(questions)
    assert questions["license"]["choices"] == list(LICENSES)
    assert name_problem("x" * 40) is None and name_problem("x" * 41) is not None
