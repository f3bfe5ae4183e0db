"""The key of a run: what decides its result, as one sha256 of canonical JSON."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path, PurePath
from typing import Any

from icml26.errors import InputError
from icml26.smallfiles import open_regular

_CHUNK = 1 << 20


def jsonable(value: Any) -> Any:
    """``value`` in strict JSON types: tuples as lists, paths and enums by their value, non-finite floats tagged."""
    if value is None or (isinstance(value, bool | str | int) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return jsonable(value.value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"nonfinite": repr(value)}
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((jsonable(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    if isinstance(value, Iterable):
        return [jsonable(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def from_jsonable(value: Any) -> Any:
    """The inverse of ``jsonable`` for tagged floats; everything else is returned as JSON gave it."""
    if isinstance(value, dict):
        if set(value) == {"nonfinite"}:
            return float(value["nonfinite"])
        return {key: from_jsonable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_jsonable(item) for item in value]
    return value


def canonical(value: Any) -> str:
    """One text for equal values: sorted keys, no spaces, floats by ``repr``, non-finite floats tagged."""
    return json.dumps(jsonable(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(value: Any) -> str:
    """The sha256, in hex, of the canonical text of ``value``."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def hash_path(path: Path) -> str:
    """``sha256:…`` of a file's content, or of a folder's sorted (relative path, sha256) pairs.

    Raises InputError when the path is missing, cannot be read or is a pipe or device (it can be read only once, or has no
    end).
    """
    try:
        path.stat()
        if not path.is_dir() and not path.is_file():
            raise InputError(f"{path}: this is a pipe, socket or device; write what it gives to a file first")
        if path.is_dir():
            parts = sorted(item for item in path.rglob("*") if item.is_file())
            return "sha256:" + digest([[part.relative_to(path).as_posix(), _hash_file(part)] for part in parts])
        return "sha256:" + _hash_file(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file or folder") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:  # a zero character
        raise InputError(f"{str(path)!r} cannot be the path of a file ({error})") from error


def _hash_file(path: Path) -> str:
    sha = hashlib.sha256()
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK):
            sha.update(chunk)
    return sha.hexdigest()


def hash_sources(roots: Iterable[Path]) -> str:
    """The sha256 of all Python and data files below package folders, for editable installs."""
    skipped = {"__pycache__", ".git", "icml26-index.json"}
    entries = []
    for root in sorted(roots):
        for path in sorted(root.rglob("*")):
            if path.is_file() and not skipped & set(path.relative_to(root).parts) and path.suffix != ".pyc":
                entries.append([root.name, path.relative_to(root).as_posix(), _hash_file(path)])
    return digest(entries)


def run_key(
    *,
    method: str,
    config: Mapping[str, Any],
    results_version: int,
    dataset: str,
    dataset_config: Mapping[str, Any],
    revision: str,
    files: Mapping[str, str],
    method_files: Mapping[str, str],
    seed: int,
    device: str,
    smoke: bool,
    sources: Mapping[str, str],
) -> str:
    """The key of a run: names, resolved configs (paths replaced by their content's hash), versions, seed, device kind.

    ``files`` and ``method_files`` map config fields to ``sha256:…``; ``sources`` maps editable distributions to the hash
    of their source files.
    """
    return digest(
        {
            "method": method,
            "config": {**config, **method_files},
            "results_version": results_version,
            "dataset": dataset,
            "dataset_config": {**dataset_config, **files},
            "revision": revision,
            "seed": seed,
            "device": device,
            "smoke": smoke,
            "sources": dict(sources),
        }
    )
