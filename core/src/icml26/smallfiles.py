"""Read files that others named: only regular ones, since a pipe or a device may never answer, or never end.

Whole small files take as few system calls as there can be: listing reads three for every plugin.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

_CHUNK = 1 << 16
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read_bytes(path: str | os.PathLike[str], limit: int | None = None) -> bytes:
    """The content of a regular file of at most ``limit`` bytes; raises OSError, whose ``strerror`` says why not."""
    descriptor = _opened(path)
    try:
        if limit is not None and (size := os.fstat(descriptor).st_size) > limit:
            raise OSError(errno.EFBIG, f"{size / 2**20:.0f} MB; at most {limit >> 20} MB are read", os.fspath(path))
        data = os.read(descriptor, _CHUNK)
        if len(data) < _CHUNK:
            return data
        parts = [data]
        while data := os.read(descriptor, _CHUNK):
            parts.append(data)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read_text(path: str | os.PathLike[str], limit: int | None = None, encoding: str = "utf-8") -> str:
    """The text of a regular file, line ends as they are; raises OSError, or UnicodeDecodeError."""
    return read_bytes(path, limit).decode(encoding)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file to read from; raises OSError."""
    return os.fdopen(_opened(path), "rb")


def _opened(path: str | os.PathLike[str]) -> int:
    """A descriptor of a regular file. It is opened without waiting: a named pipe without a writer would never come back."""
    descriptor = os.open(path, _FLAGS)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "this is a folder", os.fspath(path))
    raise OSError(
        errno.EINVAL, "this is a pipe, socket or device; write what it gives to a file first", os.fspath(path)
    )
