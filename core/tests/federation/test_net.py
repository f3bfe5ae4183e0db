from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from icml26.errors import EnvironmentError_
from icml26.registry import net, package_index


class Handler(BaseHTTPRequestHandler):
    """Answers by path: redirects, a JSON index, a body that ends early, a body without end."""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path[len("/to/") :])
            self.end_headers()
        elif self.path == "/simple/demo/":
            assert "application/vnd.pypi.simple.v1+json" in self.headers["Accept"]
            files = [
                {"filename": "demo-1.0-py3-none-any.whl", "url": "../../files/demo-1.0-py3-none-any.whl", "hashes": {}},
                {"filename": "demo-2.0-py3-none-any.whl", "url": "/two.whl", "hashes": {"sha256": "0" * 64}},
                {"filename": "demo-3.0-py3-none-any.whl", "url": "/three.whl", "hashes": {}, "yanked": "broken"},
                {"filename": "demo-4.0a1-py3-none-any.whl", "url": "/four.whl", "hashes": {}},
                {"filename": "demo-5.0.tar.gz", "url": "/five.tar.gz", "hashes": {}},
                {"filename": "other-9.0-py3-none-any.whl", "url": "/nine.whl", "hashes": {}},
            ]
            self._answer(json.dumps({"files": files}).encode(), "application/vnd.pypi.simple.v1+json")
        elif self.path == "/simple/broken/":
            self._answer(b'{"files": [{"filename": 3}]}', "application/vnd.pypi.simple.v1+json")
        elif self.path == "/short":
            self._answer(b"x" * 10, "text/plain", length=1000)
        elif self.path == "/endless":
            self.send_response(200)
            self.end_headers()
            for _ in range(100):
                self.wfile.write(b"x" * 65536)
        else:
            self.send_error(404)

    def _answer(self, body: bytes, kind: str, length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("http://example.org/x", "redirects to an address that is refused: .*not encrypted"),
        ("ftp://example.org/x", "redirects to an address that is refused: .*scheme 'ftp'"),
        ("file:///etc/hostname", "the server answered 302"),
    ],
)
def test_a_redirect_to_an_address_that_would_be_refused_is_refused(target: str, words: str, url: str) -> None:
    with pytest.raises(EnvironmentError_, match=words):
        net.fetch(f"{url}/to/{target}", limit=1000)


def test_a_redirect_on_this_machine_is_followed(url: str) -> None:
    links = package_index.project_links(f"{url}/to/{url}/simple", "demo")
    assert links is not None and len(links) == 6


def test_a_body_without_end_is_cut_off_and_a_short_one_is_an_error(url: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentError_, match="more than 1 MB"):
        net.download(f"{url}/endless", tmp_path / "file", limit=1 << 20)
    with pytest.raises(EnvironmentError_, match="ended after 10 of 1000 bytes"):
        net.fetch(f"{url}/short", limit=1 << 20)
    with pytest.raises(EnvironmentError_, match="404"):
        net.fetch(f"{url}/nothing", limit=1 << 20)


def test_an_index_in_json_is_read(url: str) -> None:
    links = package_index.project_links(f"{url}/simple", "demo")
    assert links is not None
    best = package_index.choose(links, "demo").best()
    assert best is not None and best.file == "demo-2.0-py3-none-any.whl"
    assert best.url == f"{url}/two.whl" and best.sha256 == "0" * 64
    older = package_index.choose(links, "demo", specifier="<2").best()
    assert older is not None and older.url == f"{url}/files/demo-1.0-py3-none-any.whl"
    asked = package_index.choose(links, "demo", allowed=["demo-4.0a1-py3-none-any.whl"]).best()
    assert asked is not None and asked.file == "demo-4.0a1-py3-none-any.whl"
    assert package_index.project_links(f"{url}/simple", "absent") is None
    with pytest.raises(EnvironmentError_, match="not a package index in JSON"):
        package_index.project_links(f"{url}/simple", "broken")
