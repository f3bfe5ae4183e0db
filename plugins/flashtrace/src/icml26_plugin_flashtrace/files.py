"""Files for the user: written whole or not at all, and InputError where the place will not take one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from icml26 import InputError


def write_whole(path: Any, write: Callable[[Path], object]) -> None:
    """``write`` a file beside ``path``, then put it there; what stood there before stays until the new one is whole.

    Raises InputError naming the path and the reason: a missing folder, a folder in its place, no permission, a full disk.
    """
    target = _target(path)
    half = target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
    try:
        try:
            write(half)
            half.replace(target)
        finally:
            half.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"{target} cannot be written: {error}") from error


def _target(path: Any) -> Path:
    """Where to write: the file itself where ``path`` is a link to it, never a folder, a device or a pipe."""
    try:
        target = Path(path).resolve() if Path(path).name else None
        if target is not None and target.exists() and not target.is_file():
            raise InputError(f"{target} is a folder or no ordinary file: name a file")
        missing = target is not None and not target.parent.is_dir()
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{path!r} names no file that can be written: {error}") from error
    if target is None:
        raise InputError(f"{str(path)!r} names no file")
    if missing:
        raise InputError(f"{target} cannot be written: there is no folder {target.parent}")
    return target


def make_folder(path: Path, name: str) -> None:
    """The folder ``path`` with its parents; InputError naming the option when it cannot be made or written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        writable = os.access(path, os.W_OK | os.X_OK)
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: the folder {str(path)!r} cannot be made: {error}") from error
    if not writable:
        raise InputError(f"{name}: the folder {path} cannot be written to")
