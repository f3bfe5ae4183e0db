"""Progress on standard error: one line that is redrawn on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from typing import TextIO

_REDRAW_SECONDS = 0.1
_LINE_SECONDS = 10.0
_WIDTH = 24


class ProgressBar:
    """A reporter for one run after the other; ``close`` leaves the terminal's line clean."""

    def __init__(self, stream: TextIO, *, title: str = "", live: bool | None = None) -> None:
        self.stream = stream
        self.title = title
        self.live = stream.isatty() if live is None else live
        self._drawn = 0
        self._last = float("-inf")
        self._label = ""
        self._values: dict[str, float] = {}

    def progress(self, label: str, done: int, total: int | None) -> None:
        """Draw, at most ten times a second (a line every ten seconds where lines cannot be redrawn)."""
        now = time.monotonic()
        finished = total is not None and done >= total
        fresh = label != self._label
        if fresh:
            self._label = label
            self._values = {}
        pause = _REDRAW_SECONDS if self.live else _LINE_SECONDS
        if not (finished or (fresh and self.live)) and now - self._last < pause:
            return
        if not self.live and fresh and not finished:
            return
        self._last = now
        self._write(f"{self.title}{': ' if self.title and label else ''}{label} {self._bar(done, total)}{self._tail()}")

    def log(self, name: str, value: float, step: int | None) -> None:
        """Show the newest value of up to two curves beside the bar."""
        self._values.pop(name, None)
        self._values[name] = value
        while len(self._values) > 2:
            self._values.pop(next(iter(self._values)))

    def note(self, text: str) -> None:
        """A line of words that stays."""
        self.close()
        self.stream.write(text + "\n")
        self.stream.flush()

    def close(self) -> None:
        """Wipe the live line."""
        if self.live and self._drawn:
            self.stream.write("\r" + " " * self._drawn + "\r")
            self.stream.flush()
        self._drawn = 0

    def _bar(self, done: int, total: int | None) -> str:
        if total is None:
            return f"{done}"
        if not self.live:
            return f"{done}/{total}"
        filled = round(_WIDTH * done / total) if total else _WIDTH
        return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {done}/{total}"

    def _tail(self) -> str:
        return "".join(f"  {name} {value:.4g}" for name, value in self._values.items())

    def _write(self, text: str) -> None:
        if self.live:
            self.stream.write("\r" + text.ljust(self._drawn))
            self._drawn = len(text)
        else:
            self.stream.write(text + "\n")
        self.stream.flush()
