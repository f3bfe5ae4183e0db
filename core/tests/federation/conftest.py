from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from icml26.registry.target import Target, find_uv

sys.path.insert(0, str(Path(__file__).parent))

from builders import GitOverHttp


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the loopback URL under which a real HTTP server shows it."""
    folder = tmp_path / "served"
    folder.mkdir()
    yield from _serve(partial(_Quiet, directory=str(folder)), folder)


@pytest.fixture
def git_server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder of repositories and the loopback URL under which git's own HTTP server shows them."""
    folder = tmp_path / "repositories"
    folder.mkdir()
    yield from _serve(type("Handler", (GitOverHttp,), {"root": folder}), folder)


def _serve(handler: Any, folder: Path) -> Iterator[tuple[Path, str]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def folder_of_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site-packages folder with pip in it, for environments that are made without (which is 50 times faster)."""
    folder = tmp_path_factory.mktemp("with-pip")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return next(path.parent for path in folder.rglob("pip") if path.parent.name == "site-packages")


@pytest.fixture(params=["pip", "uv"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """A fresh environment: one with pip, one made by uv without it."""
    uv = find_uv()
    assert uv is not None, "the test extra of icml26 installs uv"
    folder = tmp_path / "environment"
    if request.param == "uv":
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        site = next(folder.rglob("site-packages"))
        (site / "pip.pth").write_text(str(request.getfixturevalue("folder_of_pip")) + "\n")
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    return Target(str(python), request.param, uv)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of the person who runs the tests is read or written."""
    home = tmp_path / "icml26-home"
    monkeypatch.setenv("ICML26_HOME", str(home))
    monkeypatch.delenv("ICML26_REGISTRY", raising=False)
    return home
