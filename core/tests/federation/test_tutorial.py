"""Every command of docs/write-a-plugin.md, in its order, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_cli import Environment

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"(?:<!-- (?P<note>[^\n]+) -->\n)?```(?P<kind>\w+)\n(?P<body>.*?)```", re.S)


def steps(page: str) -> Iterator[tuple[str, str, str]]:
    """(note, kind, body) of each fenced block."""
    for match in BLOCK.finditer(page):
        yield match["note"] or "", match["kind"], match["body"]


@pytest.fixture
def shell(tmp_path: Path, folder_of_pip: Path) -> Environment:
    """An environment whose programs ``icml26``, ``pip`` and ``pytest`` are found by a shell."""
    environment = Environment(tmp_path / "environment", tmp_path / "home")
    with (environment.site / "seen.pth").open("a") as file:
        file.write(f"{folder_of_pip}\n")
    for program in ("icml26", "pip", "pytest"):
        script = environment.python.parent / program
        script.write_text(f'#!/bin/sh\nexec "{environment.python}" -m {program} "$@"\n')
        script.chmod(0o755)
    environment.variables["PATH"] = f"{environment.python.parent}{os.pathsep}{os.environ['PATH']}"
    environment.variables["ICML26_INSTALLER"] = "pip"
    (tmp_path / "builtin.toml").write_text("schema = 1\n")
    environment.variables["ICML26_REGISTRY"] = str(tmp_path / "builtin.toml")
    return environment


def test_every_command_of_the_tutorial_works(shell: Environment, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    said: dict[str, str] = {}
    old = ""
    page = (DOCS / "write-a-plugin.md").read_text(encoding="utf-8")
    for note, kind, body in steps(page):
        action, _, target = note.partition(": ")
        if action == "append":
            path = folder / target
            path.write_text(path.read_text() + body)
        elif action == "replace in":
            path, old = folder / target, body
        elif action == "by":
            text = path.read_text()
            assert text.count(old) == 1, f"{old!r} does not stand once in {path.name}"
            path.write_text(text.replace(old, body))
        elif kind == "console":
            for command in re.findall(r"^\$ (.*)$", body, re.M):
                if command.startswith("cd "):
                    folder = folder / command[3:]
                    continue
                done = subprocess.run(
                    command,
                    shell=True,
                    cwd=folder,
                    env=shell.variables,
                    capture_output=True,
                    text=True,
                    stdin=subprocess.DEVNULL,
                )
                assert done.returncode == 0, f"$ {command}\n{done.stdout}\n{done.stderr}"
                said[command] = done.stdout
    assert len(said) >= 19
    assert "robust-mean" in said["icml26 list-methods --task means.robust"]
    assert "median" in said["icml26 bench robust-mean sample-mean median --seeds 0..4"]
    assert "clean" in said["icml26 check-plugin robust-mean"]
    assert "1 plugin good, 0 refused" in said["icml26 registry check registry.toml"]
    assert "installed" in said["icml26 install robust-mean"]


def test_the_commands_of_the_other_pages_exist() -> None:
    from icml26.cli.commands import COMMANDS

    for page in ("registry.md", "environments.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        named = set(re.findall(r"(?:^|`)icml26 ([a-z][a-z-]*)", text, re.M))
        assert named and named <= set(COMMANDS)


def test_the_page_of_the_kit_lists_every_check() -> None:
    from icml26.testing.kit import CHECKS

    text = (DOCS / "conformance.md").read_text(encoding="utf-8")
    for check in CHECKS:
        assert f"| `{check.id}` | {check.severity} | {check.reason} |" in text


def test_the_published_schema_is_the_one_in_use() -> None:
    import json

    from icml26.registry.model import json_schema

    published = json.loads((DOCS / "registry.schema.json").read_text(encoding="utf-8"))
    assert published["properties"] == json_schema()["properties"]
    assert published["$defs"]["PluginEntry"]["required"] == json_schema()["$defs"]["PluginEntry"]["required"]
    assert set(published["$defs"]) == set(json_schema()["$defs"])
