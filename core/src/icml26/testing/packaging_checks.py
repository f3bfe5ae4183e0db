"""Checks of a plugin's metadata, and of a wheel before it is released."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from icml26.index import INDEX_FILE
from icml26.smallfiles import open_regular
from icml26.testing.report import Problem
from icml26.testing.subject import Subject


def metadata_is_complete(subject: Subject) -> Iterator[Problem]:
    """The distribution says what it needs and who may use it, and describes itself."""
    name = subject.plugin.distribution
    facts: Any = metadata.metadata(name)
    if not (facts.get("License-Expression") or facts.get("License")):
        yield Problem(name, "declares no licence", 'license = "Apache-2.0" under [project]')
    if not facts.get("Requires-Python"):
        yield Problem(name, "does not say which Python it needs", 'requires-python = ">=3.11"')
    description = str(facts.get_payload() or facts.get("Description") or "")
    if len(description.strip()) < 50:
        yield Problem(name, "its metadata holds no README", 'readme = "README.md" under [project]')
    if not (Path(subject.plugin.location) / "py.typed").exists():
        yield Problem(
            name, "its package has no py.typed", "add the empty file, so that users' type checkers see its types"
        )


def core_is_required_without_a_cap(subject: Subject) -> Iterator[Problem]:
    """The distribution requires icml26, with a lower bound at most (D13)."""
    name = subject.plugin.distribution
    if canonicalize_name(name) == "icml26":
        return
    requirements = [Requirement(text) for text in metadata.requires(name) or ()]
    own = [item for item in requirements if canonicalize_name(item.name) == "icml26" and item.marker is None]
    if not own:
        yield Problem(name, "does not require icml26", 'dependencies = ["icml26>=0.1.0", ...]')
    for item in own:
        if any(clause.operator in ("<", "<=", "==", "~=", "===") for clause in item.specifier):
            fix = "a lower bound only: core_api says what fits, and a cap blocks every plugin at the next core"
            yield Problem(name, f"caps icml26 ({item.specifier})", fix)


def wheel_is_complete(path: Path, package: str) -> Iterator[Problem]:
    """A wheel holds the licence, the index, py.typed and the README; no tests."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            facts = next(archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    except (OSError, zipfile.BadZipFile, StopIteration, UnicodeDecodeError) as error:
        yield Problem(path.name, f"is not a readable wheel ({error!r})", "build it anew: python -m build")
        return
    if not any(".dist-info/" in name and "LICENSE" in name.upper() for name in names):
        yield Problem(path.name, "holds no LICENSE", 'license-files = ["LICENSE"] under [project]')
    for wanted in (INDEX_FILE, "py.typed"):
        if f"{package}/{wanted}" not in names:
            yield Problem(path.name, f"holds no {package}/{wanted}", "commit the file; git must not ignore it")
    if len(facts.partition("\n\n")[2].strip()) < 50:
        yield Problem(path.name, "its metadata holds no README", 'readme = "README.md" under [project]')
    if any(name.startswith(("tests/", "test/")) for name in names):
        yield Problem(
            path.name, "installs a top-level package of tests", 'packages = ["src/..."] in the build settings'
        )
