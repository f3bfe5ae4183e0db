"""The user's time series. The reader (``read_series``, ``SeriesFileConfig``) is loaded when it is first used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from icml26.errors import InputError

if TYPE_CHECKING:
    from icml26.tasks.series_file import SeriesFileConfig as SeriesFileConfig
    from icml26.tasks.series_file import read_series as read_series

_READERS = ("SeriesFileConfig", "read_series")
__all__ = ["Series", "SeriesFileConfig", "read_series"]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """``values`` (T, C) finite float64, a row a time step; ``channels`` names the C columns, all different.

    ``timestamps`` (T,) strictly increasing: datetime64[us] in UTC where the file says so, or float64 in the file's unit.
    ``imputed`` counts the filled cells of each channel. Raises InputError where this does not hold.
    """

    values: np.ndarray
    channels: tuple[str, ...]
    timestamps: np.ndarray | None = None
    imputed: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        values, stamps = self.values, self.timestamps
        if not isinstance(values, np.ndarray) or values.dtype != np.float64 or values.ndim != 2 or 0 in values.shape:
            shown = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            raise InputError(f"the values of a series must be a float64 array of shape (T, C), not empty; got {shown}")
        if len(self.channels) != values.shape[1] or len(set(self.channels)) != values.shape[1]:
            raise InputError(f"{values.shape[1]} channels need as many different names, got {self.channels}")
        if not np.isfinite(values).all():
            row, channel = (int(index) for index in np.argwhere(~np.isfinite(values))[0])
            raise InputError(f"step {row}, channel {self.channels[channel]!r}: {values[row, channel]} is not finite")
        if stamps is not None:
            if stamps.shape != values.shape[:1] or stamps.dtype not in (np.dtype("M8[us]"), np.dtype("f8")):
                raise InputError(
                    f"timestamps must be datetime64[us] or float64, one a step; got {stamps.dtype} {stamps.shape}"
                )
            if not (stamps[1:] > stamps[:-1]).all():
                raise InputError("timestamps must increase from step to step")

    @property
    def step(self) -> np.timedelta64 | float | None:
        """The distance between neighbouring timestamps where it is the same everywhere, else None.

        Numbers count as the same within a relative 1e-9 of the range.
        """
        if self.timestamps is None or len(self.timestamps) < 2:
            return None
        steps = np.diff(self.timestamps)
        if steps.dtype.kind == "m":
            return steps[0] if (steps == steps[0]).all() else None
        span = float(self.timestamps[-1] - self.timestamps[0])
        return float(np.median(steps)) if np.ptp(steps) <= 1e-9 * span else None


def __getattr__(name: str) -> Any:
    if name in _READERS:
        return getattr(importlib.import_module("icml26.tasks.series_file"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
