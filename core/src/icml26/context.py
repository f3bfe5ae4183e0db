"""What a run may use from outside: its random streams, device, progress, log, artifacts. Nothing else is global."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from icml26.errors import PluginError

if TYPE_CHECKING:
    import numpy as np
    import torch

T = TypeVar("T")

#: The index of each consumer of randomness in a run's seed sequence.
STREAM_DATASET, STREAM_METHOD, STREAM_METRIC = 0, 1, 2

_ARTIFACT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9][A-Za-z0-9._-]{0,99})?")


class Reporter(Protocol):
    """Where progress and logged values go; the runner gives one that draws, records or sends."""

    def progress(self, label: str, done: int, total: int | None) -> None:
        """``done`` of ``total`` steps of ``label`` are finished."""

    def log(self, name: str, value: float, step: int | None) -> None:
        """One point of a learning curve."""


class SilentReporter:
    """A reporter that drops everything."""

    def progress(self, label: str, done: int, total: int | None) -> None:
        """Drop it."""

    def log(self, name: str, value: float, step: int | None) -> None:
        """Drop it."""


class FolderCache(Protocol):
    """How ``ctx.cached`` finds a folder and has it built."""

    def __call__(self, name: str, build: Callable[[Path], None], seeded: bool = True) -> Path:
        """The folder ``name`` of this dataset, of this seed or of all seeds."""


class RunContext:
    """The surroundings of one part of a run (dataset, method or metric), with a random stream of its own.

    Attributes: ``seed`` (the run's integer seed), ``device`` (``"cpu"``, ``"cuda"`` or ``"mps"``), ``threads``,
    ``deadline`` (a ``time.monotonic()`` instant or None), ``smoke``, ``logger``.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        stream: int = STREAM_METHOD,
        device: str = "cpu",
        threads: int = 1,
        deadline: float | None = None,
        smoke: bool = False,
        folder: Path | None = None,
        cache: FolderCache | None = None,
        reporter: Reporter | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self._seed = seed
        self._unseeded: str | None = None
        self.stream = stream
        self.device = device
        self.threads = threads
        self.deadline = deadline
        self.smoke = smoke
        self.logger = logger or logging.getLogger("icml26.run")
        self.reporter: Reporter = reporter or SilentReporter()
        self._folder = folder
        self._cache = cache
        self._rng: np.random.Generator | None = None
        self._artifacts: list[str] = []

    @property
    def seed(self) -> int:
        """The run's integer seed."""
        if self._unseeded is not None:
            raise PluginError(
                f"ctx.cached({self._unseeded!r}, seeded=False): the build asked for ctx.seed, ctx.rng or a torch seed, "
                "but what it makes is shared by all seeds; draw from a seed of the config, or leave seeded=True"
            )
        return self._seed

    @property
    def rng(self) -> np.random.Generator:
        """``numpy.random.default_rng((seed, stream))``, made once per context."""
        seed = self.seed
        if self._rng is None:
            import numpy as np

            self._rng = np.random.default_rng((seed, self.stream))
        return self._rng

    def torch_seed(self) -> int:
        """A 63-bit seed for torch, from the same sequence as ``rng``."""
        import numpy as np

        return int(np.random.SeedSequence((self.seed, self.stream)).generate_state(1, "uint64")[0] >> np.uint64(1))

    def torch_generator(self, device: str = "cpu") -> torch.Generator:
        """A fresh torch generator on ``device``, seeded by ``torch_seed()``."""
        seed = self.torch_seed()
        import torch

        return torch.Generator(device=device).manual_seed(seed)

    def progress(self, iterable: Iterable[T], label: str = "", total: int | None = None) -> Iterator[T]:
        """Iterate and report progress; ``total`` defaults to the iterable's length where it has one."""
        if total is None and isinstance(iterable, Sized):
            total = len(iterable)
        self.reporter.progress(label, 0, total)
        for done, item in enumerate(iterable, start=1):
            yield item
            self.reporter.progress(label, done, total)

    def log(self, name: str, value: float, step: int | None = None) -> None:
        """Record one point of a curve, e.g. ``ctx.log("train-loss", 0.3, step=epoch)``."""
        self.reporter.log(name, float(value), None if step is None else int(step))

    def artifact(self, name: str) -> Path:
        """The path under which a file of the run may be written; ``name`` is relative, at most one folder deep."""
        if self._folder is None:
            raise PluginError("this context has no folder for artifacts; they can be written in visualize() of a run")
        if not _ARTIFACT.fullmatch(name) or ".." in name:
            raise PluginError(f"artifact name {name!r} is not a plain file name (letters, digits, '.', '_', '-')")
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name not in self._artifacts:
            self._artifacts.append(name)
        return path

    @property
    def artifacts(self) -> tuple[str, ...]:
        """Names given out by ``artifact`` whose files exist."""
        return tuple(name for name in self._artifacts if self._folder is not None and (self._folder / name).exists())

    def cached(self, name: str, build: Callable[[Path], None], *, seeded: bool = True) -> Path:
        """A folder that ``build(folder)`` fills once for this dataset's config, revision, seed and name; later runs reuse it.

        ``seeded=False`` leaves the seed out: all seeds share the folder. Its build must not depend on the run's seed;
        PluginError, and nothing kept, when it asks for ``seed``, ``rng`` or a torch seed, or draws from ``rng``.
        """
        if self._cache is None:
            raise PluginError("this context has no cache; ctx.cached is for Dataset.load within a run")
        return self._cache(name, build) if seeded else self._cache(name, self._without_seed(name, build), False)

    def _without_seed(self, name: str, build: Callable[[Path], None]) -> Callable[[Path], None]:
        """``build`` with everything closed that follows from the seed."""

        def guarded(folder: Path) -> None:
            before = None if self._rng is None else self._rng.bit_generator.state
            self._unseeded = name
            try:
                build(folder)
                # A generator that was taken out before the call can still have been drawn from.
                if self._rng is not None and self._rng.bit_generator.state != before:
                    self.seed  # noqa: B018 - says why
            finally:
                self._unseeded = None

        return guarded

    def remaining(self) -> float:
        """Seconds until the deadline, ``inf`` without one."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    def for_stream(self, stream: int, **changes: Any) -> RunContext:
        """A context of the same run with another random stream and nothing drawn from it yet."""
        options: dict[str, Any] = {
            "device": self.device,
            "threads": self.threads,
            "deadline": self.deadline,
            "smoke": self.smoke,
            "folder": self._folder,
            "cache": self._cache,
            "reporter": self.reporter,
            "logger": self.logger,
        }
        return RunContext(self.seed, stream=stream, **(options | changes))
