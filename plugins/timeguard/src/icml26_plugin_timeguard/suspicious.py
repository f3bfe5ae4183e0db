"""The units that a defence threw out, as a table for people who want to look at their data."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from icml26_plugin_timeguard.task import Inputs, Pool

COLUMNS = (
    "channel",
    "window",
    "first_step",
    "forecast_step",
    "first_time",
    "forecast_time",
    "rejected_rounds",
    "rounds",
)


def suspicious_rows(inputs: Inputs, pool: Pool) -> Iterator[tuple[Any, ...]]:
    """One row per unit outside the final pool, most often rejected first; times are empty without timestamps.

    ``first_step`` is where the window's history begins, ``forecast_step`` where its future begins, both counted from the
    start of the series.
    """
    channels, windows = np.nonzero(~pool.final)
    order = np.lexsort((windows, channels, -pool.rejections[channels, windows]))
    for channel, window in zip(channels[order].tolist(), windows[order].tolist(), strict=True):
        future = window + inputs.seq_len
        yield (
            inputs.channels[channel],
            window,
            window,
            future,
            _time(inputs, window),
            _time(inputs, future),
            int(pool.rejections[channel, window]),
            pool.rounds,
        )


def _time(inputs: Inputs, step: int) -> str:
    if inputs.timestamps is None:
        return ""
    stamp = inputs.timestamps[step]
    return str(np.datetime_as_string(stamp, unit="s")) if stamp.dtype.kind == "M" else repr(float(stamp))


def write_csv(inputs: Inputs, pool: Pool, path: Path) -> None:
    """Write :func:`suspicious_rows` under :data:`COLUMNS` to ``path``, replacing it only when complete."""
    part = path.with_name(path.name + ".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(suspicious_rows(inputs, pool))
    part.replace(path)
