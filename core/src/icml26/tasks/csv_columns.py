"""Columns of delimited text, read with the standard library so that every message can name the line."""

from __future__ import annotations

import csv
import gzip
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import numpy as np

from icml26.errors import InputError
from icml26.tasks.columns import ColumnFile, Columns, check_names, shorten

_MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "?"})
_OTHER_DELIMITERS = {";": "';'", "\t": "'tab'", "|": "'|'"}


class CsvColumns(ColumnFile):
    """A CSV file with a header line; ``delimiter`` is one character or "tab", ``encoding`` a codec of Python."""

    unit = "line"

    def __init__(self, path: Path, delimiter: str, encoding: str) -> None:
        self.path = path
        self.delimiter = "\t" if delimiter == "tab" else delimiter
        self.encoding = "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding
        if len(self.delimiter) != 1 or self.delimiter in '\r\n"':
            raise InputError(f"delimiter must be one character or 'tab', got {delimiter!r}")
        if "\0" in self.encoding:  # not a LookupError like other unknown names
            raise InputError(f"encoding {self.encoding!r} is not known to Python")
        with self._rows() as rows:
            header = next(rows, (1, []))[1]
        names = [cell.strip() for cell in header]
        self._check_header(names)
        super().__init__(path, names)

    def read(self, numbers: Sequence[str], texts: Sequence[str] = ()) -> Columns:
        """Read all rows once, keeping numbers as float64 and the texts' cells as they stand, without outer spaces."""
        number_at = [self.names.index(name) for name in numbers]
        text_at = [self.names.index(name) for name in texts]
        values, lines = array("d"), array("q")
        cells: list[list[str]] = [[] for _ in texts]
        blank = 0
        with self._rows() as rows:
            next(rows)
            for line, row in rows:
                if not row:
                    blank = blank or line
                    continue
                if blank:
                    raise InputError(f"{self.path}: line {blank} is empty, and rows follow it; remove it or fill it in")
                values.extend(self._numbers(line, row, number_at))
                lines.append(line)
                for kept, position in zip(cells, text_at, strict=True):
                    kept.append(row[position].strip())
        matrix = np.frombuffer(values, dtype=np.float64) if values else np.empty(0)
        return self.columns(
            numbers,
            matrix.reshape(len(lines), len(number_at)).copy(),
            dict(zip(texts, cells, strict=True)),
            np.array(lines, dtype=np.int64),
        )

    def _numbers(self, line: int, row: list[str], positions: list[int]) -> list[float]:
        try:
            if "_" not in "".join(row):  # Python reads 1_000 as a number; no file means that
                return [float(row[position]) for position in positions]
        except ValueError:
            pass  # a cell that is missing or no number: found below
        return [self._number(line, position, row[position]) for position in positions]

    def _number(self, line: int, position: int, cell: str) -> float:
        if cell.strip().lower() in _MISSING:
            return float("nan")
        if not _is_number(cell):
            raise self.refuse_text(line, self.names[position], cell)
        return float(cell)

    def _check_header(self, names: list[str]) -> None:
        if not any(names):
            raise InputError(f"{self.path}: line 1 is empty; it must hold the column names")
        if len(names) == 1:
            for other, shown in _OTHER_DELIMITERS.items():
                if other in names[0] and other != self.delimiter:
                    raise InputError(f"{self.path}: line 1 is one column {shorten(names[0])}; set delimiter={shown}?")
        if all(_is_number(name) for name in names) and (
            len(set(names)) < len(names) or not all(name.isdigit() for name in names)
        ):
            raise InputError(f"{self.path}: line 1 holds numbers, not column names; add a line with the names above it")
        check_names(self.path, names)

    @contextmanager
    def _rows(self) -> Iterator[Iterator[tuple[int, list[str]]]]:
        """(line on which it begins, cells) of every row, the header too; failures become InputError with the line."""
        try:
            try:
                with self._open() as file:
                    yield self._split(file)
            except UnicodeError as error:
                raise self._wrong_encoding(error) from None
        except LookupError:
            raise InputError(f"encoding {self.encoding!r} is not known to Python") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{self.path}: the compressed file is damaged or truncated ({error})") from None
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror or error})") from error

    def _open(self) -> IO[str]:
        if self.path.name.lower().endswith(".gz"):
            return cast("IO[str]", gzip.open(self.path, "rt", encoding=self.encoding, newline=""))
        return self.path.open(encoding=self.encoding, newline="")

    def _split(self, file: IO[str]) -> Iterator[tuple[int, list[str]]]:
        last = ""

        def lines() -> Iterator[str]:
            nonlocal last
            for last in file:
                if "\0" in last:
                    raise InputError(
                        f"{self.path}: line {reader.line_num + 1} holds a zero byte: the file is binary, damaged or UTF-16"
                    )
                yield last

        reader = csv.reader(lines(), delimiter=self.delimiter, strict=True, skipinitialspace=True)
        width, start = 0, 1
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise InputError(
                    f"{self.path}: line {start}: {error}; is a quote not closed, or the file truncated?"
                ) from None
            width = width or len(row)
            if row and len(row) != width:
                cut = len(row) < width and not last.endswith(("\n", "\r"))
                raise InputError(
                    f"{self.path}: line {start} has {len(row)} values where the header has {width}"
                    + ("; the file ends within this line: is it truncated?" if cut else "; correct or quote it")
                )
            yield start, row
            start = reader.line_num + 1

    def _wrong_encoding(self, error: UnicodeError) -> InputError:
        opener = gzip.open if self.path.name.lower().endswith(".gz") else Path.open
        advice = "set encoding= to what it was written in, e.g. encoding='cp1252'"
        with opener(self.path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                    return InputError(f"{self.path}: the file is UTF-16; set encoding='utf-16'")
                try:
                    line.decode(self.encoding)
                except UnicodeDecodeError as found:
                    byte = line[found.start]
                    return InputError(
                        f"{self.path}: line {number}: byte 0x{byte:02x} is not {self.encoding.removesuffix('-sig')}; {advice}"
                    )
        return InputError(f"{self.path}: not {self.encoding} ({error}); {advice}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
