"""Shared by the core's tests: this folder is importable, and nothing is written to the user's folders."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from arena_environment import Arena

sys.path.insert(0, str(Path(__file__).parent))

# A shell's background jobs ignore SIGINT, and so would every child that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICML26_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session")
def lab_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment in which the lab plugin is installed."""
    from lab_environment import make_environment

    return str(make_environment(tmp_path_factory.mktemp("lab") / "environment"))


@pytest.fixture(scope="session")
def arena_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the arena plugin."""
    from arena_environment import make_environment

    return make_environment(tmp_path_factory.mktemp("arena") / "environment")


@pytest.fixture
def arena(arena_python: Path, tmp_path: Path) -> Arena:
    """The command line in that environment with an empty home."""
    from arena_environment import Arena

    return Arena(arena_python, tmp_path / "home")
