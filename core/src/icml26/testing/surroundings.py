"""What a run does to the world around it: files written elsewhere, connections, the global random state."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icml26.home import cache_folder

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.mkdir": 0,
    "os.remove": 0,
    "os.rmdir": 0,
    "os.rename": 1,
    "os.link": 1,
    "os.symlink": 1,
    "os.truncate": 0,
}
_CONNECTIONS = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")


@dataclass(slots=True)
class Seen:
    """What was seen: paths outside the allowed folders, addresses, and global random generators that moved."""

    written: list[str] = field(default_factory=list)
    connections: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)


class Surroundings:
    """Watches through an audit hook, which Python cannot remove: one for each instance, idle outside ``watched``."""

    def __init__(self) -> None:
        self._seen: Seen | None = None
        self._allowed: tuple[str, ...] = ()
        self._hooked = False

    @contextlib.contextmanager
    def watched(self, folder: Path) -> Iterator[Seen]:
        """Watch while a run is made whose own folder is ``folder``; its working and temporary folders are below it."""
        if not self._hooked:
            sys.addaudithook(self._hook)
            self._hooked = True
        work, temporary = folder / ".cwd", folder / ".tmp"
        for place in (work, temporary):
            place.mkdir(parents=True, exist_ok=True)
        seen = Seen()
        self._allowed = tuple(str(path) for path in (*_caches(), folder.resolve()))
        before, directory, own_temporary = _random_states(), Path.cwd(), tempfile.tempdir
        os.chdir(work)
        tempfile.tempdir = str(temporary)
        self._seen = seen
        try:
            yield seen
        finally:
            self._seen = None
            tempfile.tempdir = own_temporary
            os.chdir(directory)
        seen.written += [f"{path.relative_to(work)} (in the working folder)" for path in work.rglob("*")]
        after = _random_states()
        seen.moved += [name for name, state in before.items() if after[name] != state]

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        seen = self._seen
        if seen is None:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING and isinstance(path, str | bytes | os.PathLike):
                self._note(seen, path)
        elif event in _CHANGES:
            path = arguments[_CHANGES[event]]
            if isinstance(path, str | bytes | os.PathLike):
                self._note(seen, path)
        elif event in _CONNECTIONS:
            address = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
            if not _is_local(address) and len(seen.connections) < 20:
                seen.connections.append(str(address))

    def _note(self, seen: Seen, path: Any) -> None:
        text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - resolving symbolic links here would call the hook again
        if (
            not text.startswith((*self._allowed, "/dev/", "/proc/"))
            and "__pycache__" not in text
            and len(seen.written) < 20
        ):
            seen.written.append(text)


def _caches() -> list[Path]:
    """Folders in which libraries keep what can be deleted at any time."""
    named = [
        os.environ.get(name) for name in ("XDG_CACHE_HOME", "MPLCONFIGDIR", "NUMBA_CACHE_DIR", "HF_HOME", "TORCH_HOME")
    ]
    folders = [Path(name).absolute() for name in named if name]
    # matplotlib makes this folder when it is first imported, whoever imports it.
    configs = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config").absolute()
    return [
        *folders,
        configs / "matplotlib",
        Path.home() / ".cache",
        Path.home() / "Library" / "Caches",
        cache_folder().absolute(),
    ]


def _is_local(address: Any) -> bool:
    if not isinstance(address, tuple):
        text = address.decode("ascii", "replace") if isinstance(address, bytes) else str(address or "localhost")
        return text.startswith("/") or text in ("localhost", "127.0.0.1", "::1", "")
    return str(address[0]) in ("localhost", "127.0.0.1", "::1")


def _random_states() -> dict[str, str]:
    """The states of the global generators that are loaded, as text to compare."""
    states = {"random": repr(hash(random.getstate()))}
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        kind, keys, position, *rest = numpy.random.get_state()
        states["numpy.random"] = repr((kind, hash(keys.tobytes()), position, rest))
    torch = sys.modules.get("torch")
    states["torch"] = repr(hash(torch.get_rng_state().numpy().tobytes())) if torch is not None else ""
    return states
