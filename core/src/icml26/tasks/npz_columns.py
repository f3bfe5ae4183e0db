"""Columns of a NumPy archive: 1-D arrays are columns by their key, 2-D arrays one column for each of theirs."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from icml26.errors import InputError
from icml26.tasks.columns import ColumnFile, Columns, label

#: Text arrays of these keys name the columns of the only 2-D array.
NAME_KEYS = ("feature_names", "columns", "channels")


class NpzColumns(ColumnFile):
    """An ``.npz``: ``X`` (n, d) gives the columns ``X0``, ``X1``, … or those in ``feature_names``; ``y`` (n,) gives ``y``."""

    def __init__(self, path: Path) -> None:
        arrays = load_npz(path)
        matrices = [key for key, value in arrays.items() if value.ndim == 2]
        names: list[str] = []
        self._cells: list[np.ndarray] = []
        given = next((key for key in NAME_KEYS if key in arrays and arrays[key].dtype.kind == "U"), None)
        for key, value in arrays.items():
            if key == given:
                continue
            if value.ndim == 1:
                names.append(key)
                self._cells.append(value)
            elif value.ndim == 2:
                if given is not None and len(matrices) == 1:
                    names += column_names(path, key, value.shape[1], given, arrays[given])
                else:
                    names += [f"{key}{index}" for index in range(value.shape[1])]
                self._cells += list(value.T)
        if not names:
            shapes = ", ".join(f"{key} {value.shape}" for key, value in arrays.items()) or "nothing"
            raise InputError(f"{path}: no 1-D or 2-D array in it (it holds {shapes})")
        super().__init__(path, names)

    def read(self, numbers: Sequence[str], texts: Sequence[str] = ()) -> Columns:
        """Pick the columns; raises InputError when their lengths differ."""
        by_name = dict(zip(self.names, self._cells, strict=True))
        first = next(iter([*numbers, *texts]), self.names[0])
        n = len(by_name[first])
        for name in [*numbers, *texts]:
            if len(by_name[name]) != n:
                raise InputError(f"{self.path}: {first!r} has {n} rows, {name!r} has {len(by_name[name])}")
        matrix = np.empty((n, len(numbers)))
        for index, name in enumerate(numbers):
            cells = by_name[name]
            if cells.dtype.kind not in "fiub":
                raise self.refuse_text(1, name, str(cells[0]) if n else str(cells.dtype))
            matrix[:, index] = cells
        labels = {name: array_texts(self.path, name, by_name[name]) for name in texts}
        return self.columns(numbers, matrix, labels, np.arange(1, n + 1))


def array_texts(path: Path, key: str, cells: np.ndarray) -> list[str]:
    """The cells of a 1-D array as texts, instants in ISO 8601, a missing one as "". Raises InputError for other types."""
    if cells.dtype.kind == "M":
        found = np.datetime_as_string(cells, unit="us").tolist()
        return ["" if cell == "NaT" else cell for cell in found]
    if cells.dtype.kind not in "fiubU":
        raise InputError(f"{path}: {key!r} has the type {cells.dtype}; save it as numbers, dates or str")
    return [label(cell) for cell in cells.tolist()]


def load_npz(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an archive, without pickles. Raises InputError when it is damaged or holds Python objects."""
    try:
        opened = np.load(path, allow_pickle=False)
        if isinstance(opened, np.ndarray):
            raise InputError(f"{path}: this is a single array (.npy); save it with numpy.savez")
        with opened as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError, RuntimeError) as error:
        if "allow_pickle" in str(error) or "pickled" in str(error):
            raise InputError(
                f"{path}: not an archive of plain numbers and texts (Python objects are never loaded); save it with numpy.savez"
            ) from None
        raise InputError(f"{path}: the archive is damaged or truncated ({error})") from None
    return arrays


def column_names(path: Path, key: str, width: int, names_key: str, names: np.ndarray) -> list[str]:
    """The names that the array ``names_key`` gives to the ``width`` columns of the array ``key``."""
    if names.shape != (width,):
        raise InputError(f"{path}: {key!r} has {width} columns but {names_key!r} has shape {names.shape}")
    return [str(name).strip() for name in names]
