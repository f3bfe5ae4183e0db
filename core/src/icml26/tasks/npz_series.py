"""The values of a time series in a NumPy archive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from icml26.errors import InputError
from icml26.tasks.columns import Columns, check_names, nearest
from icml26.tasks.npz_columns import NAME_KEYS, array_texts, column_names, load_npz


def load_series_columns(
    path: Path, array: str | None, feature: int | None, columns: Sequence[str] | None, timestamp: str | None
) -> Columns:
    """The chosen channels as numbers and the timestamp array as texts; see ``read_series``."""
    arrays = load_npz(path)
    key = _values_key(path, arrays, array, timestamp)
    values = _two_dimensional(path, key, arrays[key], feature)
    given = next((name for name in NAME_KEYS if name in arrays and name not in (key, timestamp)), None)
    if given is None:
        names = [f"c{index}" for index in range(values.shape[1])]
    else:
        names = column_names(path, key, values.shape[1], given, arrays[given])
    check_names(path, names)
    for name in columns or ():
        if name not in names:
            raise InputError(f"{path}: there is no channel {name!r} (columns); {nearest(name, names)}")
    chosen = names if columns is None else list(columns)
    numbers = values[:, [names.index(name) for name in chosen]].astype(np.float64)
    found = Columns(path, "row", np.arange(1, len(values) + 1), tuple(chosen), numbers, {})
    found.refuse_infinite()
    if timestamp is not None:
        stamps = arrays[_existing(path, arrays, timestamp, "timestamp")]
        if stamps.shape != (len(values),):
            raise InputError(f"{path}: {timestamp!r} has shape {stamps.shape}, {key!r} has {len(values)} rows")
        found.texts[timestamp] = array_texts(path, timestamp, stamps)
    return found


def _values_key(path: Path, arrays: dict[str, np.ndarray], array: str | None, timestamp: str | None) -> str:
    if array is not None:
        return _existing(path, arrays, array, "array")
    if "data" in arrays:
        return "data"
    candidates = [key for key, value in arrays.items() if value.ndim >= 2]
    if not candidates:
        candidates = [key for key, value in arrays.items() if value.ndim == 1 and key not in (*NAME_KEYS, timestamp)]
    if len(candidates) != 1:
        shapes = ", ".join(f"{key} {value.shape}" for key, value in arrays.items()) or "nothing"
        raise InputError(f"{path}: which array holds the values? set array= (the file holds {shapes})")
    return candidates[0]


def _existing(path: Path, arrays: dict[str, np.ndarray], key: str, option: str) -> str:
    if key not in arrays:
        raise InputError(f"{path}: there is no array {key!r} ({option}); {nearest(key, list(arrays))}")
    return key


def _two_dimensional(path: Path, key: str, values: np.ndarray, feature: int | None) -> np.ndarray:
    if values.dtype.kind not in "fiub":
        raise InputError(f"{path}: {key!r} has the type {values.dtype}; the values of a series must be real numbers")
    if 0 in values.shape:
        raise InputError(f"{path}: {key!r} is empty: its shape is {values.shape}")
    if values.ndim == 3:
        if feature is None and values.shape[2] > 1:
            raise InputError(
                f"{path}: {key!r} has shape {values.shape}; set feature= to one of 0 … {values.shape[2] - 1}"
            )
        if feature is not None and not 0 <= feature < values.shape[2]:
            raise InputError(f"{path}: feature={feature}, but {key!r} has shape {values.shape}")
        return values[:, :, feature or 0]
    if feature is not None:
        raise InputError(f"{path}: feature= chooses along a third dimension, but {key!r} has shape {values.shape}")
    if values.ndim == 1:
        return values[:, None]
    if values.ndim != 2:
        raise InputError(f"{path}: {key!r} has shape {values.shape}; a series has shape (T, C) or (T, C, F)")
    return values
