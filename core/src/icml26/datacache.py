"""Folders that a costly ``Dataset.load`` fills once: built under a lock, marked ready last."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from icml26.context import FolderCache
from icml26.errors import EnvironmentError_, PluginError
from icml26.home import cache_folder
from icml26.keys import digest

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def folder_cache(dataset: str, config: Mapping[str, Any], revision: str, seed: int) -> FolderCache:
    """What ``ctx.cached`` does for a dataset: folders of its name, its config (files as content hashes), revision and seed.

    With ``seeded=False`` the seed is left out, so that all seeds share one folder; another config or revision never does.
    """
    with_seed = digest([dataset, config, revision, seed])
    without = digest([dataset, config, revision])

    def cache(name: str, build: Callable[[Path], None], seeded: bool = True) -> Path:
        return cached_folder(with_seed if seeded else without, name, build)

    return cache


def cached_folder(key: str, name: str, build: Callable[[Path], None], *, root: Path | None = None) -> Path:
    """The folder ``<cache>/data/<key>/<name>``, filled by ``build(folder)`` when it is not ready yet.

    A build that was killed leaves no ready mark and is done again. Raises EnvironmentError_ when the cache cannot be
    written.
    """
    if not _NAME.fullmatch(name):
        raise PluginError(f"ctx.cached: name {name!r} must match {_NAME.pattern}")
    home = (root or cache_folder()) / "data" / key
    folder, ready = home / name, home / f"{name}.ready"
    if ready.exists():
        return folder
    try:
        home.mkdir(parents=True, exist_ok=True)
        (home / f"{name}.lock").touch()
    except OSError as error:
        raise EnvironmentError_(
            f"the cache {home} cannot be written ({error}); set ICML26_HOME to another folder"
        ) from error
    with _locked(home / f"{name}.lock"):
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
            ready.touch()
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except ImportError:  # Windows
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]
        yield
    finally:
        os.close(descriptor)
