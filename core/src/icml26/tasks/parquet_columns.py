"""Columns of a Parquet file, by pyarrow (extra ``data``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from icml26.errors import InputError
from icml26.tasks.columns import ColumnFile, Columns, label

_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


class ParquetColumns(ColumnFile):
    """A Parquet file; an unnamed index that pandas wrote is left out."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow.parquet as parquet
        except ImportError:
            raise InputError(
                f"{path}: reading Parquet needs pyarrow: pip install 'icml26[data]' (or save the file as CSV)"
            ) from None
        try:
            self._file = parquet.ParquetFile(path)
        except (ValueError, OSError) as error:
            raise _damaged(path, error) from None
        names = [name for name in self._file.schema_arrow.names if not _PANDAS_INDEX.fullmatch(name)]
        if not names:
            raise InputError(f"{path}: the file has no columns")
        super().__init__(path, names)

    def read(self, numbers: Sequence[str], texts: Sequence[str] = ()) -> Columns:
        """Read the columns; integers that float64 cannot hold exactly are refused."""
        try:
            table = self._file.read(columns=[*numbers, *texts], use_threads=False)
        except (ValueError, OSError) as error:
            raise _damaged(self.path, error) from None
        matrix = np.empty((table.num_rows, len(numbers)))
        for index, name in enumerate(numbers):
            matrix[:, index] = self._numbers(name, table.column(name))
        labels = {name: [label(cell) for cell in _plain(table.column(name)).to_pylist()] for name in texts}
        return self.columns(numbers, matrix, labels, np.arange(1, table.num_rows + 1))

    def _numbers(self, name: str, column: Any) -> np.ndarray:
        import pyarrow as pa

        column = _plain(column)
        kind = column.type
        if pa.types.is_null(kind):
            return np.full(len(column), np.nan)
        if pa.types.is_boolean(kind):
            column = column.cast(pa.uint8())
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            row = next((index for index, cell in enumerate(column) if cell.is_valid), 0)
            raise self.refuse_text(row + 1, name, str(column[row].as_py()) if len(column) else str(kind))
        try:
            return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
        except pa.ArrowInvalid as error:
            raise InputError(f"{self.path}: column {name!r}: {error}; float64 cannot hold it exactly") from None


def _plain(column: Any) -> Any:
    """A dictionary-encoded column by its values."""
    import pyarrow as pa

    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]}); is it complete?")
