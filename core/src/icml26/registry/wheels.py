"""Whether a downloaded file is the wheel that a registry entry promises, before any installer sees it."""

from __future__ import annotations

import configparser
import zipfile
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name, parse_wheel_filename

from icml26.errors import EnvironmentError_
from icml26.registry.rules import shown

_METADATA_LIMIT = 4 << 20


@dataclass(frozen=True, slots=True)
class WheelFacts:
    """What a wheel says about itself."""

    distribution: str
    version: str
    plugin: str


def check_hash(path: Path, sha256: str, promised: str | None) -> None:
    """Raise EnvironmentError_ unless the content is the promised one; a page in place of a wheel is named as such."""
    with path.open("rb") as file:
        head = file.read(512).lstrip()
    if head[:1] == b"<":
        raise EnvironmentError_(
            f"{path.name}: the server sent an HTML or XML page in place of a wheel; nothing was installed"
        )
    if promised is not None and sha256 != promised:
        raise EnvironmentError_(
            f"{path.name}: wrong sha256, nothing was installed (expected {promised}, got {sha256}). "
            "The file was changed after its release: ask the maintainers before you trust it"
        )


def check_wheel(path: Path, distribution: str, plugin: str) -> WheelFacts:
    """The facts of a wheel; raises EnvironmentError_ unless it is one of ``distribution`` with the entry point ``plugin``."""
    file_version = str(parse_wheel_filename(path.name)[1])
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            for name in names:
                if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name:
                    raise EnvironmentError_(f"{path.name}: member {shown(name)} points outside the wheel; refused")
            metadata = HeaderParser().parsestr(_member(archive, path.name, "METADATA"))
            entry_points = _member(archive, path.name, "entry_points.txt", optional=True)
    # RuntimeError is zipfile's for an encrypted member, and a kind of it that for a compression it does not know
    except (zipfile.BadZipFile, UnicodeDecodeError, RuntimeError, EOFError) as error:
        raise EnvironmentError_(f"{path.name}: not a readable wheel ({error})") from error
    name, version = str(metadata.get("Name", "")), str(metadata.get("Version", ""))
    if canonicalize_name(name) != distribution:
        raise EnvironmentError_(f"{path.name}: inside it is {shown(name)}, not {distribution}; refused")
    if version != file_version and version.replace("-", "_") != file_version:
        raise EnvironmentError_(f"{path.name}: inside it is version {shown(version)}; refused")
    if plugin not in _points(entry_points, path.name):
        raise EnvironmentError_(
            f"{path.name}: it has no entry point {plugin!r} in group 'icml26', so it is not that plugin; refused"
        )
    return WheelFacts(distribution, version, plugin)


def _member(archive: zipfile.ZipFile, wheel: str, name: str, *, optional: bool = False) -> str:
    found = [
        item
        for item in archive.infolist()
        if item.filename.count("/") == 1 and item.filename.endswith(f".dist-info/{name}")
    ]
    if not found and optional:
        return ""
    if len(found) != 1 or found[0].file_size > _METADATA_LIMIT:
        raise EnvironmentError_(f"{wheel}: not a wheel ({len(found)} usable {name} files in it)")
    return archive.read(found[0]).decode("utf-8")


def _points(text: str, wheel: str) -> dict[str, str]:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise EnvironmentError_(f"{wheel}: its entry_points.txt cannot be read ({error})") from error
    return dict(parser["icml26"]) if parser.has_section("icml26") else {}
