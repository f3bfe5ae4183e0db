"""Texts of a timestamp column as instants or numbers that increase."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from icml26.errors import InputError
from icml26.tasks.columns import Columns, shorten


def parse_timestamps(columns: Columns, name: str, form: str | None) -> np.ndarray:
    """(T,) datetime64[us], or float64 where the first cell is a number and no ``form`` (of ``strptime``) is given.

    Instants with a time zone become UTC. Raises InputError, with the line, for a cell that cannot be read, for zones in
    some cells only, and for timestamps that occur twice or decrease.
    """
    cells = columns.texts[name]
    if "" in cells:
        raise InputError(
            f"{columns.place(cells.index(''), name)}: the timestamp is missing; fill it in or remove the row"
        )
    if form is None and _as_number(cells[0]) is not None:
        stamps = _numbers(columns, name, cells)
    else:
        stamps = _instants(columns, name, cells, form)
    _refuse_disorder(columns, name, stamps, cells)
    return stamps


def looks_like_date(cell: str) -> bool:
    """Whether a text is a date or an instant in ISO 8601."""
    try:
        datetime.fromisoformat(cell)
    except ValueError:
        return False
    return True


def _as_number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if np.isfinite(value) and "_" not in cell else None


def _numbers(columns: Columns, name: str, cells: list[str]) -> np.ndarray:
    stamps = np.empty(len(cells))
    for row, cell in enumerate(cells):
        value = _as_number(cell)
        if value is None:
            raise InputError(
                f"{columns.place(row, name)}: {shorten(cell)} is no number, while the first timestamp is one"
            )
        stamps[row] = value
    return stamps


def _instants(columns: Columns, name: str, cells: list[str], form: str | None) -> np.ndarray:
    stamps = np.empty(len(cells), dtype="M8[us]")
    zoned: bool | None = None
    for row, cell in enumerate(cells):
        try:
            instant = datetime.fromisoformat(cell) if form is None else datetime.strptime(cell, form)
            if zoned is None:
                zoned = instant.tzinfo is not None
            elif zoned is not (instant.tzinfo is not None):
                raise InputError(f"{columns.place(row, name)}: some timestamps have a time zone and others have none")
            stamps[row] = instant.astimezone(UTC).replace(tzinfo=None) if zoned else instant
        except (ValueError, OverflowError):
            wanted = "an ISO 8601 date (2016-07-01 00:00:00)" if form is None else f"a date like {form!r}"
            raise InputError(
                f"{columns.place(row, name)}: {shorten(cell)} is not {wanted}; correct it or set timestamp_format"
            ) from None
    return stamps


def _refuse_disorder(columns: Columns, name: str, stamps: np.ndarray, cells: list[str]) -> None:
    order = np.argsort(stamps, kind="stable")
    same = np.flatnonzero(stamps[order][1:] == stamps[order][:-1])
    if len(same):
        first, second = int(order[same[0]]), int(order[same[0] + 1])
        raise InputError(
            f"{columns.place(second, name)}: the timestamp {cells[second]} stands also in {columns.unit} "
            f"{columns.lines[first]}; keep one of them"
        )
    back = np.flatnonzero(stamps[1:] < stamps[:-1])
    if len(back):
        row = int(back[0]) + 1
        raise InputError(
            f"{columns.place(row, name)}: the timestamp {cells[row]} is earlier than the one before it; sort the file by time"
        )
