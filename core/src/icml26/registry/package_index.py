"""Find a distribution's wheel on a package index (the "simple" interface, HTML or JSON: PEP 503, 592, 691)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from icml26.errors import EnvironmentError_
from icml26.registry import net
from icml26.registry.rules import shown

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.5, text/html;q=0.2"
_PAGE_LIMIT = 64 << 20


@dataclass(frozen=True, slots=True)
class Link:
    """One file of a project: ``sha256`` is what the index says it is, if it says so."""

    file: str
    url: str
    sha256: str | None = None
    requires_python: str | None = None
    yanked: bool = False


@dataclass(slots=True)
class Candidates:
    """The usable wheels of a project and why the others are not."""

    wheels: list[tuple[Version, int, Link]] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)

    def best(self) -> Link | None:
        """The newest version, and of it the most specific wheel."""
        return max(self.wheels, key=lambda item: (item[0], -item[1]))[2] if self.wheels else None


def project_links(index_url: str, distribution: str) -> list[Link] | None:
    """All files of a project on an index, None when the index does not have it; raises EnvironmentError_."""
    url = f"{index_url.rstrip('/')}/{canonicalize_name(distribution)}/"
    try:
        response = net.fetch(url, limit=_PAGE_LIMIT, accept=_ACCEPT)
    except EnvironmentError_ as error:
        if "answered 404" in str(error):
            return None
        raise
    if response.content_type.endswith("json"):
        return _json_links(response)
    parser = _Anchors()
    parser.feed(response.body.decode("utf-8", "replace"))
    return [_html_link(urljoin(response.url, href), attributes) for href, attributes in parser.found]


def choose(
    links: Iterable[Link],
    distribution: str,
    *,
    specifier: str | None = None,
    allowed: Sequence[str] | None = None,
    python: str | None = None,
) -> Candidates:
    """The wheels that this Python can use; ``allowed`` names the only files that may be taken, ``specifier`` the versions."""
    tags = {tag: rank for rank, tag in enumerate(sys_tags())}
    wanted = SpecifierSet(specifier or "")
    candidates = Candidates()
    pre_releases: list[tuple[Version, int, Link]] = []
    for link in links:
        try:
            project, version, _, wheel_tags = parse_wheel_filename(link.file)
        except InvalidWheelFilename:
            continue
        if project != canonicalize_name(distribution):
            continue
        reason = _unusable(link, version, wheel_tags, tags, wanted, allowed, python)
        if reason is not None:
            candidates.passed_over.append(f"{link.file}: {reason}")
            continue
        rank = min(tags[tag] for tag in wheel_tags if tag in tags)
        (pre_releases if version.is_prerelease else candidates.wheels).append((version, rank, link))
    candidates.wheels = candidates.wheels or pre_releases
    return candidates


def _unusable(
    link: Link,
    version: Version,
    wheel_tags: frozenset[Tag],
    tags: dict[Tag, int],
    wanted: SpecifierSet,
    allowed: Sequence[str] | None,
    python: str | None,
) -> str | None:
    import platform

    if link.yanked:
        return "yanked"
    if allowed is not None and link.file not in allowed:
        return "not among the released files that the registry lists"
    if not wanted.contains(version, prereleases=True):
        return f"the registry asks for {wanted}"
    if not any(tag in tags for tag in wheel_tags):
        return "made for another Python or platform"
    try:
        needs = SpecifierSet(link.requires_python or "")
    except InvalidSpecifier:
        return f"its requires-python {shown(link.requires_python)} is not a specifier"
    running = python or platform.python_version()
    return None if needs.contains(running, prereleases=True) else f"needs Python {needs}, this is {running}"


def _json_links(response: net.Response) -> list[Link]:
    try:
        files = json.loads(response.body)["files"]
        return [
            Link(
                str(item["filename"]),
                urljoin(response.url, str(item["url"])),
                (item.get("hashes") or {}).get("sha256"),
                item.get("requires-python"),
                bool(item.get("yanked")),
            )
            for item in files
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EnvironmentError_(f"{response.url}: not a package index in JSON ({error!r})") from error


def _html_link(url: str, attributes: dict[str, str | None]) -> Link:
    address, fragment = urldefrag(url)
    sha256 = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment)
    return Link(
        unquote(address.rsplit("/", 1)[-1]),
        address,
        sha256.group(1) if sha256 else None,
        attributes.get("data-requires-python"),
        "data-yanked" in attributes,
    )


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        href = attributes.get("href")
        if tag == "a" and href:
            self.found.append((href, attributes))
