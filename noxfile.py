"""Sessions of nox: ``nox`` alone runs what CI runs; ``nox -l`` lists the rest."""

from __future__ import annotations

import os
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PLUGINS = sorted(path.name for path in (ROOT / "plugins").iterdir() if (path / "pyproject.toml").is_file())

nox.options.default_venv_backend = "uv"
nox.options.sessions = ["lint", "types", "tests_core", "tests_plugin"]
nox.options.error_on_missing_interpreters = True
nox.needs_version = ">=2024.10"

if "PIP_FIND_LINKS" in os.environ:
    os.environ.setdefault("UV_FIND_LINKS", os.environ["PIP_FIND_LINKS"])


def install(session: nox.Session, *what: str) -> None:
    """Install with the repository's constraints, which pin torch to its CPU build."""
    session.install("-c", str(ROOT / "constraints.txt"), *what)


@nox.session
def lint(session: nox.Session) -> None:
    """Lint and format."""
    install(session, "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Types of the core and of every plugin."""
    install(session, "mypy", "numpy", "pydantic", "typer", "pluggy", "nox", "-e", "core")
    session.run("mypy", "core/src")
    for name in PLUGINS:
        session.run("mypy", f"plugins/{name}/src", env={"MYPYPATH": f"plugins/{name}/src"})


@nox.session
def tests_core(session: nox.Session) -> None:
    """The core's tests."""
    install(session, "-e", "core[test,data,dask,slurm]")
    session.run("pytest", "-q", "core/tests", *session.posargs)


@nox.session
@nox.parametrize("plugin", PLUGINS, ids=PLUGINS)
def tests_plugin(session: nox.Session, plugin: str) -> None:
    """A plugin's own tests, in an environment that holds the core and this plugin alone."""
    install(session, "-e", "core[test,data]", "-e", f"plugins/{plugin}[test]")
    session.chdir(f"plugins/{plugin}")
    session.run("pytest", "-q", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """The slow tests of the core or of one plugin: ``nox -s slow -- timeguard``."""
    names = session.posargs or ["core"]
    for name in names:
        folder = "core" if name == "core" else f"plugins/{name}"
        install(session, "-e", "core[test,data,dask,slurm]", *([] if name == "core" else ["-e", f"{folder}[test]"]))
        session.run("pytest", "-q", "-m", "slow", folder)
