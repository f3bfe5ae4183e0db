"""The commands that only look import nothing heavy: that is what keeps them instant however many plugins there are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from installed import Site

HEAVY = {"typer", "click", "pydantic", "numpy", "pluggy", "rich", "torch", "pandas", "importlib.metadata", "email"}

CODE = """
import contextlib, io, json, sys
from icml26.__main__ import main
with contextlib.redirect_stdout(io.StringIO()):
    code = main({arguments!r})
print(json.dumps([code, sorted(sys.modules)]))
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Two plugins with an index whose code must not run."""
    (tmp_path / "site").mkdir()
    site = Site(tmp_path / "site", tmp_path / "home")
    site.add("one", "raise ValueError", index=True)
    site.add("two", "raise ValueError", index=True)
    return site


def modules_of(site: Site, *arguments: str, **more: str) -> set[str]:
    code = CODE.format(arguments=list(arguments))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=site.variables(**more))
    assert done.returncode == 0, done.stderr
    exit_code, modules = json.loads(done.stdout)
    assert exit_code == 0
    return set(modules)


@pytest.mark.parametrize(
    "arguments",
    [
        ["list-methods"],
        ["list-methods", "--json", "--task", "toys.one", "--plugin=one", "--role", "paper"],
        ["list-datasets"],
        ["list-metrics", "--task=toys.two"],
        ["list-tasks", "--json"],
        ["list-plugins"],
        ["show", "one"],
        ["show", "toys.one", "--json"],
        ["--version"],
        ["--color", "never", "-V"],
    ],
)
def test_looking_imports_nothing_heavy_and_no_plugin(site: Site, arguments: list[str]) -> None:
    modules = modules_of(site, *arguments)
    assert not modules & HEAVY
    assert not {module for module in modules if module.startswith("icml26_plugin_")}


def test_completing_a_name_imports_nothing_heavy_and_no_plugin(site: Site) -> None:
    request = {"_ICML26_COMPLETE": "complete_bash", "COMP_WORDS": "icml26\nrun\no", "COMP_CWORD": "2"}
    modules = modules_of(site, **request)
    assert not modules & HEAVY
    assert not {module for module in modules if module.startswith("icml26_plugin_")}


def test_the_full_command_line_is_seen_to_be_heavy(site: Site) -> None:
    assert modules_of(site, "list-methods", "--json", "--json", "--help") >= {"typer"}
