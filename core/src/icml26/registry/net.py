"""Bounded downloads: an allow-listed scheme at every redirect, a size limit, a deadline."""

from __future__ import annotations

import hashlib
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from icml26 import __version__
from icml26.errors import EnvironmentError_
from icml26.registry.rules import web_url

TIMEOUT_SECONDS = 30.0
TOTAL_SECONDS = 900.0
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Response:
    """A downloaded body and where it came from after redirects."""

    body: bytes
    url: str
    content_type: str


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        try:
            web_url(newurl)
        except ValueError as error:
            raise EnvironmentError_(f"{req.full_url} redirects to an address that is refused: {error}") from error
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(url: str, *, limit: int, accept: str = "*/*") -> Response:
    """The body at ``url``, at most ``limit`` bytes; raises EnvironmentError_."""
    with _opened(url, accept) as (response, start):
        parts = []
        size = 0
        for chunk in _chunks(response, url, limit, start):
            size += len(chunk)
            parts.append(chunk)
        return Response(b"".join(parts), response.url, response.headers.get_content_type())


def download(url: str, target: Path, *, limit: int) -> str:
    """Write the body at ``url`` to ``target`` and return its sha256 in hex; raises EnvironmentError_."""
    sha = hashlib.sha256()
    with _opened(url, "*/*") as (response, start), target.open("wb") as file:
        for chunk in _chunks(response, url, limit, start):
            sha.update(chunk)
            file.write(chunk)
    return sha.hexdigest()


@contextmanager
def _opened(url: str, accept: str) -> Iterator[tuple[Any, float]]:
    try:
        web_url(url)
    except ValueError as error:
        raise EnvironmentError_(str(error)) from error
    opener = urllib.request.build_opener(_CheckedRedirects)
    request = urllib.request.Request(url, headers={"User-Agent": f"icml26/{__version__}", "Accept": accept})
    try:
        with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
            yield response, time.monotonic()
    except urllib.error.HTTPError as error:
        raise EnvironmentError_(f"{url}: the server answered {error.code} {error.reason}") from error
    except (HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise EnvironmentError_(f"{url}: cannot be fetched ({reason})") from error


def _chunks(response: Any, url: str, limit: int, start: float) -> Iterator[bytes]:
    size = 0
    promised = response.headers.get("Content-Length")
    while chunk := response.read(_CHUNK):
        size += len(chunk)
        if size > limit:
            raise EnvironmentError_(f"{url}: more than {limit / 2**20:.0f} MB; refused")
        if time.monotonic() - start > TOTAL_SECONDS:
            raise EnvironmentError_(f"{url}: not finished after {TOTAL_SECONDS:.0f} s; refused")
        yield chunk
    # http.client does not mind when read(n) meets the end early.
    if promised is not None and promised.isdigit() and size < int(promised):
        raise EnvironmentError_(f"{url}: the connection ended after {size} of {promised} bytes; try again")
