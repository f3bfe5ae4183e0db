"""What a user names as a file may be a pipe that never answers or a device that never ends: it is refused, not waited for."""

from __future__ import annotations

import os
import socket
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from icml26.cli.user_config import read_user_config
from icml26.errors import Icml26Error, InputError, StoreError, UsageError
from icml26.grid import read_bench
from icml26.keys import hash_path
from icml26.recipes import read_recipe
from icml26.records import RunRecord
from icml26.registry.generate import project_entry, wheel_row
from icml26.registry.reader import read_registry
from icml26.registry.sources import added
from icml26.report.curves import read_curves
from icml26.smallfiles import open_regular, read_bytes
from icml26.store import Store
from icml26.strict_toml import read_toml
from icml26.testing.packaging_checks import wheel_is_complete

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")

READERS: dict[str, Callable[[Path], object]] = {
    "toml": read_toml,
    "bench": read_bench,
    "recipe": read_recipe,
    "registry": lambda path: read_registry(path, "mine"),
    "wheel": wheel_row,
    "record": RunRecord.read,
    "files": hash_path,
    "store": lambda path: Store.open(path),
    "store-readonly": lambda path: Store.open(path, readonly=True),
}


def pipe(folder: Path) -> Path:
    path = folder / "pipe"
    os.mkfifo(path)
    return path


def sock(folder: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(folder)
        server.bind("socket")
    return folder / "socket"


def folder(folder: Path) -> Path:
    path = folder / "folder"
    path.mkdir()
    return path


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "make", [pipe, sock, lambda folder: Path("/dev/zero"), folder], ids=["pipe", "socket", "zero", "folder"]
)
def test_what_is_no_file_is_refused_at_once(
    make: Callable[[Path], Path], reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = make(tmp_path)
    if reader == "files" and path.is_dir():
        pytest.skip("a folder of files is legal there")
    started = time.monotonic()
    with pytest.raises(Icml26Error) as told:
        READERS[reader](path)
    assert time.monotonic() - started < 5
    assert isinstance(told.value, UsageError | InputError | StoreError)
    assert path.name in str(told.value)
    assert not any(word in str(told.value) for word in ("Traceback", "errno", "Errno"))


def test_the_users_own_files_are_no_pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICML26_HOME", str(tmp_path))
    from icml26.home import config_folder

    config_folder().mkdir(parents=True, exist_ok=True)
    os.mkfifo(config_folder() / "config.toml")
    with pytest.raises(UsageError, match=r"pipe, socket or device.*mend or remove it"):
        read_user_config()
    os.mkfifo(config_folder() / "registries.toml")
    with pytest.raises(Icml26Error, match="pipe, socket or device"):
        added()


def test_a_project_a_wheel_and_a_curve_may_be_pipes_too(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pyproject.toml")
    with pytest.raises(InputError, match="no readable"):
        project_entry(tmp_path)
    os.mkfifo(tmp_path / "curves.jsonl")
    assert read_curves(tmp_path, "curves.jsonl") == {}
    (problem,) = wheel_is_complete(pipe(tmp_path), "package")
    assert "not a readable wheel" in problem.message


def test_regular_files_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in (0, 1, 65535, 65536, 65537, 300_000):
        path.write_bytes(os.urandom(size))
        assert read_bytes(path) == path.read_bytes()
        assert read_bytes(str(path), limit=size) == path.read_bytes()
    with pytest.raises(OSError, match="at most 0 MB"):
        read_bytes(path, limit=299_999)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_bytes(link) == path.read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("name", "text")
    with open_regular(tmp_path / "a.zip") as file, zipfile.ZipFile(file) as archive:
        assert archive.read("name") == b"text"


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    path = pipe(tmp_path)
    first = os.open(os.devnull, os.O_RDONLY)
    os.close(first)
    with pytest.raises(OSError, match="pipe"):
        read_bytes(path)
    again = os.open(os.devnull, os.O_RDONLY)
    os.close(again)
    assert again == first
