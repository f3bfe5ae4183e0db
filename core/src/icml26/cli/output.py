"""What every command prints, and how: data on standard output, words on standard error, colours only where they can be seen.

Imports nothing heavy, since the list commands start here.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, TextIO

from icml26.errors import EnvironmentError_, UsageError

COLOR_CHOICES = ("auto", "always", "never")

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_ASCII = str.maketrans(
    {"–": "-", "—": "-", "…": "...", "×": "x", "±": "+/-", "→": "->", "≤": "<=", "≥": ">=", "²": "^2", "·": "-"}
)
_GAP = 2
_NARROW = 24


class GlobalOptions(NamedTuple):
    """Options that every command understands, wherever they stand on the command line."""

    color: str = "auto"
    traceback: bool = False


def split_global_options(arguments: Sequence[str]) -> tuple[GlobalOptions, list[str]]:
    """Take ``--color WHEN`` and ``--traceback`` out of the arguments; raises UsageError for another WHEN.

    ``ICML26_COLOR`` and ``ICML26_TRACEBACK`` are the defaults.
    """
    color = os.environ.get("ICML26_COLOR") or "auto"
    traceback = os.environ.get("ICML26_TRACEBACK", "") not in ("", "0")
    rest: list[str] = []
    items = iter(arguments)
    for item in items:
        if item == "--":
            rest += [item, *items]
        elif item == "--traceback":
            traceback = True
        elif item == "--color":
            color = next(items, "")
        elif item.startswith("--color="):
            color = item.partition("=")[2]
        else:
            rest.append(item)
    if color not in COLOR_CHOICES:
        raise UsageError(f"--color {color!r}: one of {', '.join(COLOR_CHOICES)} is expected")
    return GlobalOptions(color, traceback), rest


def secure_descriptors() -> None:
    """Open the null device on standard descriptors that are closed, so that no file of ours gets their numbers."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - lives as long as the process


class Output:
    """The two streams of one command. ``console()`` gives the current one."""

    def __init__(
        self, options: GlobalOptions | None = None, *, stdout: TextIO | None = None, stderr: TextIO | None = None
    ) -> None:
        self.options = options or GlobalOptions()
        self.stdout = stdout or sys.stdout
        self.stderr = stderr or sys.stderr
        for stream in (self.stdout, self.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="replace")
        self.terminal = self.stdout.isatty()
        self._closed = False

    @property
    def width(self) -> int:
        """Columns of the terminal: ``COLUMNS``, else what it says, else 80."""
        with contextlib.suppress(ValueError):
            columns = int(os.environ.get("COLUMNS", ""))
            if columns > 0:
                return columns
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return os.get_terminal_size(self.stdout.fileno()).columns or 80
        return 80

    def write(self, text: str) -> None:
        """Data on standard output, with a newline at the end. A reader that went away is no error."""
        if not _is_unicode(self.stdout):
            text = text.translate(_ASCII)
        self._put(text if text.endswith("\n") else text + "\n")

    def json(self, command: str, body: Mapping[str, Any]) -> None:
        """The one JSON document of a command: ``{"schema": "icml26.<command>/1", …}``, strict; indented on a terminal."""
        document = {"schema": f"icml26.{command}/1", **body}
        indent = 1 if self.terminal else None
        text = json.dumps(document, indent=indent, ensure_ascii=False, allow_nan=False)
        try:
            text.encode(self.stdout.encoding or "ascii")
        except UnicodeEncodeError:
            text = json.dumps(document, indent=indent, ensure_ascii=True, allow_nan=False)
        self._put(text + "\n")

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Aligned columns with a header on a terminal, tab-separated rows elsewhere.

        Nothing is ever cut: the last column (prose) is wrapped, under the others when the terminal is narrow.
        """
        cells = [[plain(cell) for cell in row] for row in rows]
        if not self.terminal:
            if cells:
                self.write("\n".join("\t".join(row) for row in cells))
            return
        if cells:
            self.write("\n".join(self._aligned(list(header), cells)))

    def note(self, text: str) -> None:
        """Words on standard error."""
        self._say(text)

    def warn(self, text: str) -> None:
        """One warning line on standard error."""
        self._say(f"{self.style('warning:', 'yellow', stream=self.stderr)} {plain(text)}")

    def error(self, text: str) -> None:
        """An error on standard error."""
        self._say(f"{self.style('error:', 'red', 'bold', stream=self.stderr)} {text}")

    def style(self, text: str, *styles: str, stream: TextIO | None = None) -> str:
        """``text`` in colours, where the stream (standard output by default) shows them."""
        if not self.colored(stream or self.stdout):
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"

    def colored(self, stream: TextIO) -> bool:
        """Whether colours go to a stream: ``--color``, then ``NO_COLOR``, ``FORCE_COLOR``, ``TERM=dumb``, a terminal."""
        if self.options.color != "auto":
            return self.options.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
            return True
        return os.environ.get("TERM") != "dumb" and stream.isatty()

    def finish(self) -> None:
        """Flush what is left; raises EnvironmentError_ when standard output cannot take it."""
        self._put("")
        with contextlib.suppress(OSError, ValueError):
            self.stderr.flush()

    def abandon(self) -> None:
        """Point standard output at the null device, so that the interpreter's own last flush stays quiet."""
        self._closed = True
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, self.stdout.fileno())
            os.close(sink)

    def _put(self, text: str) -> None:
        if self._closed:
            return
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except BrokenPipeError:
            self.abandon()
        except (OSError, ValueError) as error:
            self.abandon()
            reason = getattr(error, "strerror", None) or error
            raise EnvironmentError_(f"standard output cannot be written ({reason})") from error

    def _say(self, text: str) -> None:
        if not _is_unicode(self.stderr):
            text = text.translate(_ASCII)
        # Nobody can be told that standard error itself is gone.
        with contextlib.suppress(OSError, ValueError):
            self.stderr.write(text + "\n")
            self.stderr.flush()

    def _aligned(self, header: list[str], rows: list[list[str]]) -> list[str]:
        widths = [max(map(display_width, column)) for column in zip(*[header, *rows], strict=True)][:-1]
        indent = sum(width + _GAP for width in widths)
        room = self.width - indent
        below = room < _NARROW
        lines = []
        for number, row in enumerate([header, *rows]):
            cells = [cell + " " * (width - display_width(cell)) for cell, width in zip(row[:-1], widths, strict=True)]
            if number == 0:
                cells = [self.style(cell, "bold") for cell in cells]
            elif cells:
                cells[0] = self.style(cells[0], "cyan")
            first = (" " * _GAP).join(cells)
            prose = wrapped(row[-1], self.width - 4 if below else room)
            if number == 0:
                prose = [self.style(part, "bold") for part in prose]
            if below:
                lines += [first.rstrip(), *(f"    {part}" for part in prose if part and number)]
            else:
                lines.append((first + " " * _GAP + prose[0] if cells else prose[0]).rstrip())
                lines += [" " * indent + part for part in prose[1:]]
        return lines


def console() -> Output:
    """The output of the command that runs; one on the process's own streams when none was set."""
    current = _CONSOLE.get(None)
    return current if current is not None else Output()


def set_console(output: Output) -> None:
    """Make ``output`` the one that ``console()`` gives."""
    _CONSOLE.set(output)


def plain(text: str) -> str:
    """One line of text without control characters, which would break tables, and terminals."""
    if text.isprintable():
        return text
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def display_width(text: str) -> int:
    """Columns that a text takes on a terminal: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def wrapped(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` columns, broken between words; a longer word keeps its line to itself."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if line and display_width(longer) > width:
            lines.append(line)
            line = word
        else:
            line = longer
    return [*lines, line]


def _is_unicode(stream: TextIO) -> bool:
    return (getattr(stream, "encoding", None) or "ascii").lower().startswith("utf")


_CONSOLE: ContextVar[Output] = ContextVar("icml26.console")
