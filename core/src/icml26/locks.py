"""A lock between processes on a file beside a folder; the system frees it when its holders are gone, however they ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from icml26.errors import EnvironmentError_


class FolderLock:
    """One holder's view of the lock: shared or exclusive, and never both."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """The open descriptor, to be inherited by a child that must keep the lock."""
        assert self._descriptor is not None, "the lock is not held"
        return self._descriptor

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Wait for the lock and hold it alone."""
        self._take(shared=False, wait=True)
        try:
            yield
        finally:
            self.release()

    def try_exclusive(self) -> bool:
        """Hold the lock alone if that is possible now."""
        return self._take(shared=False, wait=False)

    def share(self) -> None:
        """Wait for the lock and hold it beside others."""
        self._take(shared=True, wait=True)

    def release(self) -> None:
        """Let go; harmless when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _take(self, *, shared: bool, wait: bool) -> bool:
        try:
            import fcntl
        except ImportError as error:
            raise EnvironmentError_("environments of their own need Linux or macOS; on Windows use WSL") from error
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise EnvironmentError_(f"{self.path} cannot be opened ({error.strerror or error})") from error
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True
