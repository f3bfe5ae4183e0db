"""What core's distributions carry from the root of the repository."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from icml26 import carried as module
from icml26.carried import carried
from icml26.errors import EnvironmentError_
from icml26.registry.target import find_uv

CORE = Path(__file__).parents[2]


def test_an_editable_install_reads_the_repository() -> None:
    assert carried("registry.toml") == CORE.parent / "registry.toml"
    assert (carried("plugin-template") / "pyproject.toml.jinja").is_file()


def test_an_installation_without_them_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_PACKAGE", tmp_path / "lib" / "site-packages" / "icml26")
    with pytest.raises(EnvironmentError_, match="reinstall it"):
        carried("registry.toml")


def test_sdist_and_the_wheel_made_from_it_carry_the_whole_template(tmp_path: Path) -> None:
    uv = find_uv()
    assert uv is not None
    subprocess.run([uv, "build", "--quiet", "--out-dir", str(tmp_path), str(CORE)], check=True)
    template = [path for path in (CORE.parent / "plugin-template").rglob("*") if path.is_file()]
    wanted = {"registry.toml", "copier.yml", *(str(path.relative_to(CORE.parent)) for path in template)}
    assert any(name.endswith(".github/workflows/ci.yml") for name in wanted) and "plugin-template/.gitignore" in wanted
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"icml26/_carried/{name}" for name in wanted} <= names
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        root = archive.getnames()[0].split("/")[0]
        assert {f"{root}/_carried/{name}" for name in wanted} <= set(archive.getnames())
