"""The live table of a bench on standard error: drawn by the coordinator, redrawn in place on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from typing import TextIO

from icml26.cli.output import display_width, plain
from icml26.coordinator import Notice, Recorded, Waiting
from icml26.executors import Progress, Started
from icml26.experiment import Experiment
from icml26.records import RunRecord

_REDRAW_SECONDS = 0.2
_LINE_SECONDS = 10.0
_ROWS_LEFT_FREE = 6


class LiveTable:
    """Hears what the coordinator says and shows how far the bench is. ``close`` leaves the terminal clean.

    A row is a method, a column a dataset: runs done of all, failures, and the mean so far of the first metric.
    """

    def __init__(
        self, experiment: Experiment, stream: TextIO, *, title: str = "bench", live: bool | None = None
    ) -> None:
        self.stream = stream
        self.title = title
        dumb = os.environ.get("TERM") == "dumb"
        self.live = (stream.isatty() and not dumb) if live is None else live
        self.places: dict[str, list[tuple[str, str]]] = {}
        self.totals: Counter[tuple[str, str]] = Counter()
        for cell in experiment.cells:
            if cell.request is not None:
                self.places.setdefault(cell.request.key, []).append((cell.method, cell.dataset))
                self.totals[cell.method, cell.dataset] += 1
        self.keys = {request.record_id: key for key, request in experiment.requests.items()}
        self.total = len(self.places)
        self.done: Counter[tuple[str, str]] = Counter()
        self.failed: Counter[tuple[str, str]] = Counter()
        self.values: dict[tuple[str, str], list[float]] = {}
        self.finished = self.reused = 0
        self.running: dict[str, str] = {}
        self.started = time.monotonic()
        self._last = float("-inf")
        self._drawn = 0

    def __call__(self, notice: Notice) -> None:
        """Take a notice in and redraw when it is time."""
        if isinstance(notice, Recorded):
            self._recorded(notice.record, notice.reused)
        elif isinstance(notice, Started):
            self.running[notice.id] = ""
        elif isinstance(notice, Progress):
            share = f" {100 * notice.done // notice.total} %" if notice.total else f" {notice.done}"
            self.running[notice.id] = f"{notice.label}{share}".strip()
        elif isinstance(notice, Waiting):
            self.note(f"waiting: {notice.reason}")
        now = time.monotonic()
        if now - self._last >= (_REDRAW_SECONDS if self.live else _LINE_SECONDS):
            self._last = now
            self._draw()

    def note(self, text: str) -> None:
        """A line of words that stays."""
        self._wipe()
        self.stream.write(plain(text) + "\n")
        self.stream.flush()

    def close(self) -> None:
        """Wipe the table and leave one line about what was done."""
        self._wipe()
        if self.total:
            self.stream.write(self._summary() + "\n")
            self.stream.flush()

    def _recorded(self, record: RunRecord, reused: bool) -> None:
        self.finished += 1
        self.reused += reused
        self.running.pop(record.id, None)
        value = next((record.value(key) for key, entry in record.metrics.items() if not entry.get("hidden")), None)
        for place in self.places.get(record.key, ()):
            self.done[place] += 1
            if not record.succeeded:
                self.failed[place] += 1
            elif value is not None:
                self.values.setdefault(place, []).append(value)

    def _summary(self) -> str:
        parts = [f"{self.title}: {self.finished} of {self.total} runs"]
        if self.reused:
            parts.append(f"{self.reused} from the store")
        failures = sum(self.failed.values())
        if failures:
            parts.append(f"{failures} failed")
        elapsed = time.monotonic() - self.started
        parts.append(_clock(elapsed))
        measured = self.finished - self.reused
        if measured > 0 and self.finished < self.total:
            parts.append(f"about {_clock(elapsed / measured * (self.total - self.finished))} left")
        return ", ".join(parts)

    def _draw(self) -> None:
        if not self.live:
            self.stream.write(self._summary() + "\n")
            self.stream.flush()
            return
        size = shutil.get_terminal_size((80, 24))
        lines = [self._summary(), *self._table(size.columns, max(3, size.lines - _ROWS_LEFT_FREE))]
        lines += [f"  {text}" for text in list(self.running.values())[:4] if text]
        self._wipe()
        self.stream.write("".join(_cut(line, size.columns - 1) + "\n" for line in lines))
        self.stream.flush()
        self._drawn = len(lines)

    def _table(self, width: int, height: int) -> list[str]:
        methods = list(dict.fromkeys(method for method, _ in self.totals))
        datasets = list(dict.fromkeys(dataset for _, dataset in self.totals))
        active = [method for method in methods if any(0 < self._share(method, d) < 1 for d in datasets)]
        if len(methods) > height:
            methods = [*active, *(method for method in methods if method not in active)][: height - 1]
        grid = [["", *datasets]] + [[method, *(self._cell(method, d) for d in datasets)] for method in methods]
        widths = [max(display_width(plain(row[i])) for row in grid) for i in range(len(datasets) + 1)]
        shown = 1
        while shown < len(widths) and sum(widths[: shown + 1]) + 2 * shown < width:
            shown += 1
        return ["  ".join(_padded(plain(row[i]), widths[i]) for i in range(shown)) for row in grid]

    def _share(self, method: str, dataset: str) -> float:
        total = self.totals[method, dataset]
        return self.done[method, dataset] / total if total else 0.0

    def _cell(self, method: str, dataset: str) -> str:
        place = (method, dataset)
        total = self.totals[place]
        if not total:
            return "–"
        text = f"{self.done[place]}/{total}"
        if self.failed[place]:
            text += f" ✗{self.failed[place]}"
        values = self.values.get(place)
        return f"{text}  {sum(values) / len(values):.4g}" if values else text

    def _wipe(self) -> None:
        if self.live and self._drawn:
            self.stream.write(f"\x1b[{self._drawn}A\x1b[J")
            self.stream.flush()
        self._drawn = 0


def _padded(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


def _cut(line: str, width: int) -> str:
    while display_width(line) > width:
        line = line[:-1]
    return line


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
