"""The allow-lists: what a name, a revision, a URL or a path in a registry may look like.

Each check returns the value (in normal form) or raises ValueError.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from urllib.parse import SplitResult, urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from icml26.names import name_problem, task_problem

DISTRIBUTION_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"
REVISION_PATTERN = r"^([0-9a-f]{40}|[0-9a-f]{64})$"
SUBDIRECTORY_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$"

RESERVED_NAMES = frozenset(("core", "icml26"))
_URL_PATH = re.compile(r"[A-Za-z0-9._~/%+-]*")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def shown(value: object, limit: int = 60) -> str:
    """A hostile value, quoted for a message: no control characters, cut at ``limit``."""
    text = ascii(value) if isinstance(value, str) else ascii(str(value))
    return text if len(text) <= limit else text[: limit - 2] + "…'"


def plugin_name(value: str) -> str:
    """A plugin's (or registry's) short name: kebab-case, at most 40 characters, portable as a file name."""
    entry_name(value)
    if value in RESERVED_NAMES:
        raise ValueError(f"{shown(value)} is a reserved name")
    return value


def entry_name(value: str) -> str:
    """The name of a method or dataset; it need not be free as a plugin's name."""
    _raise(name_problem(value), value)
    return value


def task_name(value: str) -> str:
    """A task's name, ``field.noun``."""
    _raise(task_problem(value), value)
    return value


def distribution_name(value: str) -> str:
    """A distribution's name in normal form: a bare PEP 508 name, no version, URL, extra or option."""
    if not re.fullmatch(DISTRIBUTION_PATTERN, value) or len(value) > 100:
        raise ValueError(
            f"{shown(value)} is not a bare distribution name: letters, digits, '.', '_' and '-' are allowed "
            "(no version, option, path or URL)"
        )
    name = str(canonicalize_name(value))
    if name == "icml26":
        raise ValueError("'icml26' is the core itself, not a plugin")
    return name


def version_specifier(value: str) -> str:
    """A version specifier such as ``">=0.2,<1"``."""
    try:
        return str(SpecifierSet(value))
    except InvalidSpecifier as error:
        raise ValueError(f"{shown(value)} is not a version specifier such as '>=0.2'") from error


def sha256_hex(value: str) -> str:
    """A sha256 in lower-case hex."""
    if not re.fullmatch(SHA256_PATTERN, value):
        raise ValueError(f"{shown(value)} is not a sha256 in 64 lower-case hex digits")
    return value


def commit(value: str) -> str:
    """A full commit id; branches, tags and short ids move or are ambiguous."""
    if not re.fullmatch(REVISION_PATTERN, value):
        raise ValueError(
            f"{shown(value)} is not a full commit id (40 hex digits); branches, tags and short ids are refused"
        )
    return value


def relative_path(value: str) -> str:
    """A relative path of plain segments that stays below its root."""
    if not re.fullmatch(SUBDIRECTORY_PATTERN, value) or ".." in value.split("/") or len(value) > 200:
        raise ValueError(
            f"{shown(value)} is not a plain relative folder such as 'plugins/name' (no '..', no leading '/')"
        )
    return value


def wheel_file(value: str) -> str:
    """The file name of a wheel."""
    try:
        parse_wheel_filename(value)
    except InvalidWheelFilename as error:
        raise ValueError(f"{shown(value)} is not the file name of a wheel") from error
    if not re.fullmatch(r"[A-Za-z0-9._+!-]+", value) or value.startswith("-"):
        raise ValueError(f"{shown(value)} is not the file name of a wheel")
    return value


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def web_url(value: str) -> str:
    """An ``https://`` URL (``http://`` on this machine only), without credentials, control characters or options."""
    _plain_url(value, schemes=("https", "http"))
    return value


def git_url(value: str) -> str:
    """The URL of a git repository: ``https://`` (``http://`` on this machine only) or ``ssh://git@host/…``."""
    parts = _plain_url(value, schemes=("https", "http", "ssh"))
    if parts.query or parts.fragment:
        raise ValueError(
            f"{shown(value)} has a query or a fragment; give the subdirectory and revision in their own keys"
        )
    if not _URL_PATH.fullmatch(parts.path) or parts.path in ("", "/"):
        raise ValueError(f"{shown(value)} has no plain repository path")
    return value


def printable(value: str, limit: int = 500) -> str:
    """Text for people: no control, format or unassigned characters (they could rewrite a terminal), bounded."""
    if len(value) > limit:
        raise ValueError(f"text of {len(value)} characters; at most {limit} are allowed")
    if any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn") for char in value):
        raise ValueError(f"{shown(value)} has control or invisible characters")
    return value


def _raise(problem: str | None, value: str) -> None:
    if problem is not None:
        raise ValueError(problem.replace(repr(value), shown(value)))


def _plain_url(value: str, schemes: tuple[str, ...]) -> SplitResult:
    if len(value) > 500 or not value.isascii() or re.search(r"[\s\x00-\x20\x7f\\\"'<>`{}|^]", value):
        raise ValueError(f"{shown(value)} is not a plain URL (blanks, quotes, control or non-ASCII characters)")
    try:
        parts = urlsplit(value)
        host = parts.hostname or ""
        _ = parts.port  # raises ValueError when it is no port
    except ValueError as error:
        raise ValueError(f"{shown(value)} is not a URL: {error}") from error
    if parts.scheme not in schemes:
        raise ValueError(f"{shown(value)}: scheme {shown(parts.scheme or 'none')} is refused; use https://")
    if parts.scheme == "http" and not is_loopback(host):
        raise ValueError(f"{shown(value)} is not encrypted; use https://")
    if not (_HOST.fullmatch(host) or is_loopback(host)):
        raise ValueError(f"{shown(value)} has no plain host name")
    if parts.password is not None or (parts.username is not None and (parts.scheme, parts.username) != ("ssh", "git")):
        raise ValueError(
            f"{shown(value)} carries credentials; leave them to git's or the installer's own configuration"
        )
    return parts
