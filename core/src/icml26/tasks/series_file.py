"""Reading the user's time series: CSV, Parquet, or an array of an NPZ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from icml26.dataset import DatasetConfig
from icml26.errors import InputError
from icml26.tasks.columns import Columns, file_kind, open_columns
from icml26.tasks.npz_series import load_series_columns
from icml26.tasks.series import Series
from icml26.tasks.timestamps import parse_timestamps

Impute = Literal["previous", "linear"]

_TEXT_ADVICE = "correct it, set timestamp to the column if it holds times, or choose the channels with columns"


def read_series(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    timestamp: str | None = None,
    timestamp_format: str | None = None,
    impute: Impute | None = None,
    array: str | None = None,
    feature: int | None = None,
    delimiter: str | None = None,
    encoding: str = "utf-8",
) -> Series:
    """Read a series, a row a time step.

    ``columns`` are the channels, in this order (default: all but ``timestamp``). ``timestamp`` names the column (in an
    NPZ: the array) of instants in ISO 8601, in ``timestamp_format`` (of ``strptime``), or of numbers. ``impute`` fills
    missing cells: "previous" repeats the last value (nothing of the future is used), "linear" draws a line over the
    steps between the neighbours and repeats at the ends. An NPZ holds the values in ``array`` (default: ``data``, or the
    only array of two or more dimensions), (T, C) or (T, C, F) with ``feature`` choosing one of F.
    Raises InputError, with column and line, for everything that cannot be used as it stands.
    """
    path = Path(path)
    if columns is not None:
        check_channels(columns, timestamp)
    if impute not in (None, "previous", "linear"):
        raise InputError(f"impute must be 'previous' or 'linear', got {impute!r}")
    texts = [] if timestamp is None else [timestamp]
    if file_kind(path) == "npz":
        found = load_series_columns(path, array, feature, columns, timestamp)
    else:
        if array is not None or feature is not None:
            raise InputError(f"{path}: array and feature are for .npz files; choose channels with columns")
        file = open_columns(path, delimiter=delimiter, encoding=encoding, text_advice=_TEXT_ADVICE)
        file.require(texts, "timestamp")
        file.require(columns or (), "columns")
        channels = [name for name in file.names if name not in texts] if columns is None else list(columns)
        if not channels:
            raise InputError(f"{path}: no column is left as a channel beside the timestamp {timestamp!r}")
        found = file.read(channels, texts)
    stamps = None if timestamp is None else parse_timestamps(found, timestamp, timestamp_format)
    values, imputed = _filled(found, impute)
    return Series(values, found.number_names, stamps, imputed)


def check_channels(columns: Sequence[str], timestamp: str | None) -> None:
    """Raise InputError for an empty list of channels, one listed twice, or the timestamp among them."""
    if not columns:
        raise InputError("columns is an empty list; leave it out to use all columns")
    for name in columns:
        if list(columns).count(name) > 1:
            raise InputError(f"column {name!r} is listed twice in columns")
        if name == timestamp:
            raise InputError(f"column {name!r} is both the timestamp and a channel")


def _filled(found: Columns, impute: Impute | None) -> tuple[np.ndarray, tuple[int, ...]]:
    missing = np.isnan(found.numbers)
    values = found.numbers.copy()
    if impute is None:
        found.refuse_missing("fill it in, or set impute='previous' or impute='linear'")
        return values, (0,) * values.shape[1]
    steps = np.arange(len(values))
    for channel, name in enumerate(found.number_names):
        holes = missing[:, channel]
        if holes.all():
            raise InputError(f"{found.path}: column {name!r} has no value at all; leave it out of columns")
        if impute == "previous" and holes[0]:
            raise InputError(
                f"{found.place(0, name)}: the first value is missing, so there is no previous one; set impute='linear' or "
                "remove the rows before the first value"
            )
        if impute == "previous":
            values[:, channel] = values[np.maximum.accumulate(np.where(holes, 0, steps)), channel]
        elif holes.any():
            values[holes, channel] = np.interp(steps[holes], steps[~holes], values[~holes, channel])
    return values, tuple(int(count) for count in missing.sum(axis=0))


class SeriesFileConfig(DatasetConfig):
    """Options of a dataset that reads the user's series; ``read()`` reads it. Mark ``files=("path",)`` in the spec."""

    path: Path = Field(description="The file: .csv, .tsv (also .gz), .parquet or .npz; a row is a time step")
    columns: tuple[str, ...] | None = Field(
        default=None, description="The channels; default: all columns but the timestamp"
    )
    timestamp: str | None = Field(default=None, description="The column (in an .npz: the array) of timestamps")
    timestamp_format: str | None = Field(
        default=None, description="How timestamps are written, e.g. '%d.%m.%Y %H:%M'; default: ISO 8601"
    )
    impute: Impute | None = Field(
        default=None, description="Fill missing values with the previous one or along a line; default: refuse them"
    )
    array: str | None = Field(default=None, description="The array of an .npz that holds the values")
    feature: int | None = Field(default=None, ge=0, description="Which one to take of an .npz array's third dimension")
    delimiter: str | None = Field(
        default=None, description="What separates cells of a text file: one character, or 'tab'"
    )
    encoding: str = Field(default="utf-8", description="The text encoding of a CSV file")

    @model_validator(mode="after")
    def _one_role_each(self) -> SeriesFileConfig:
        try:
            if self.columns is not None:
                check_channels(self.columns, self.timestamp)
        except InputError as error:
            raise ValueError(str(error)) from None
        return self

    def read(self) -> Series:
        """Read the series; raises InputError as ``read_series`` does."""
        return read_series(
            self.path,
            columns=self.columns,
            timestamp=self.timestamp,
            timestamp_format=self.timestamp_format,
            impute=self.impute,
            array=self.array,
            feature=self.feature,
            delimiter=self.delimiter,
            encoding=self.encoding,
        )
