"""Named columns of a user's file, each cell with its place in it; one reader for each format stands behind ``open_columns``."""

from __future__ import annotations

import difflib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from icml26.errors import InputError

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq", ".npz")


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What was read. ``numbers`` is (n, k) float64 with NaN for a missing cell and no infinities; ``texts`` has "" for one.

    ``lines`` (n,) are 1-based and counted as ``unit`` says: "line" of a text file (the header is line 1), else "row".
    """

    path: Path
    unit: str
    lines: np.ndarray
    number_names: tuple[str, ...]
    numbers: np.ndarray
    texts: dict[str, list[str]]

    def place(self, row: int, column: str) -> str:
        """Where a cell stands, for messages."""
        return f"{self.path}: {self.unit} {self.lines[row]}, column {column!r}"

    def number(self, name: str) -> np.ndarray:
        """One column of numbers, (n,)."""
        return self.numbers[:, self.number_names.index(name)]

    def refuse_infinite(self) -> None:
        """Raise InputError for the first infinite number."""
        infinite = np.argwhere(np.isinf(self.numbers))
        if len(infinite):
            row, column = (int(index) for index in infinite[0])
            place, value = self.place(row, self.number_names[column]), self.numbers[row, column]
            raise InputError(f"{place}: {value} is not finite; correct the value")

    def refuse_missing(self, advice: str) -> None:
        """Raise InputError for the first missing cell, numbers before texts; ``advice`` says what to do."""
        holes = np.argwhere(np.isnan(self.numbers))
        if len(holes):
            row, column = (int(index) for index in holes[0])
            raise InputError(f"{self.place(row, self.number_names[column])}: the value is missing; {advice}")
        for name, cells in self.texts.items():
            if "" in cells:
                raise InputError(f"{self.place(cells.index(''), name)}: the value is missing; {advice}")


class ColumnFile(ABC):
    """An open file of named columns, all of one length."""

    unit = "row"
    text_advice = "correct the file or leave the column out"

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path = path
        self.names = tuple(names)
        check_names(path, self.names)

    @abstractmethod
    def read(self, numbers: Sequence[str], texts: Sequence[str] = ()) -> Columns:
        """Read these columns as numbers and as texts.

        Raises InputError with the place of the first cell of ``numbers`` that is neither a number nor missing, or is
        infinite, and for files without rows.
        """

    def require(self, names: Sequence[str], option: str) -> None:
        """Raise InputError, with the nearest names, unless the file has all the columns that ``option`` names."""
        for name in names:
            if name not in self.names:
                raise InputError(f"{self.path}: there is no column {name!r} ({option}); {nearest(name, self.names)}")

    def refuse_text(self, line: int, column: str, cell: str) -> InputError:
        """The error for a text where a number is expected."""
        place = f"{self.path}: {self.unit} {line}, column {column!r}"
        return InputError(f"{place}: {shorten(cell)} is not a number; {self.text_advice}")

    def columns(
        self, names: Sequence[str], numbers: np.ndarray, texts: dict[str, list[str]], lines: np.ndarray
    ) -> Columns:
        """The record of what was read, once the file is known to have rows and no infinities."""
        found = Columns(self.path, self.unit, lines, tuple(names), numbers, texts)
        if not len(lines):
            raise InputError(f"{self.path}: the file has column names but no rows")
        found.refuse_infinite()
        return found


def open_columns(
    path: Path, *, delimiter: str | None = None, encoding: str = "utf-8", text_advice: str = ColumnFile.text_advice
) -> ColumnFile:
    """Open a CSV (also gzipped), Parquet or NPZ file by its suffix. Raises InputError when it cannot be used.

    ``text_advice`` ends the message about a text where a number is expected.
    """
    file = _open(path, delimiter, encoding)
    file.text_advice = text_advice
    return file


def _open(path: Path, delimiter: str | None, encoding: str) -> ColumnFile:
    kind = file_kind(path)
    if kind == "parquet":
        from icml26.tasks.parquet_columns import ParquetColumns

        return ParquetColumns(path)
    if kind == "npz":
        from icml26.tasks.npz_columns import NpzColumns

        return NpzColumns(path)
    from icml26.tasks.csv_columns import CsvColumns

    return CsvColumns(path, delimiter or ("\t" if ".tsv" in path.name.lower()[-7:] else ","), encoding)


def file_kind(path: Path) -> str:
    """ "csv", "parquet" or "npz". Raises InputError unless ``path`` is a readable file with a known suffix and content."""
    name = path.name.lower()
    try:
        _check_file(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if name.endswith((".parquet", ".pq")):
        return "parquet"
    return "npz" if name.endswith(".npz") else "csv"


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path}: this is a folder; name a file ({', '.join(SUFFIXES)})")
    if not path.exists():
        beside = [item.name for item in path.parent.iterdir()] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, beside, n=3)
        raise InputError(f"{path}: no such file" + (f"; near it: {', '.join(close)}" if close else ""))
    if not path.name.lower().endswith(SUFFIXES):
        raise InputError(f"{path}: unknown kind of file; supported are {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"{path}: not a regular file; save its content to a file first")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path}: no permission to read it")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")


def check_names(path: Path, names: Sequence[str]) -> None:
    """Raise InputError for columns without a name and for names that occur twice."""
    for position, name in enumerate(names, start=1):
        if not name:
            raise InputError(f"{path}: column {position} has no name (an index that was saved too?); name or remove it")
    seen: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if name in seen:
            raise InputError(f"{path}: columns {seen[name]} and {position} are both named {name!r}; rename one")
        seen[name] = position


def nearest(name: str, names: Sequence[str]) -> str:
    """ "nearest: 'a', 'b'", or the first of all names where none is near."""
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return "nearest: " + ", ".join(map(repr, close))
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return "its columns are " + ", ".join(map(repr, names[:8])) + more


def shorten(cell: str, limit: int = 40) -> str:
    """A cell's text in quotes, cut to ``limit`` characters."""
    return repr(cell if len(cell) <= limit else cell[:limit] + "…")


def label(value: object) -> str:
    """The text of a typed cell used as a category: whole floats as integers, None as missing."""
    if value is None:
        return ""
    if isinstance(value, float | np.floating):
        number = float(value)
        if number != number:
            return ""
        return str(int(number)) if number.is_integer() else repr(number)
    return str(value)
