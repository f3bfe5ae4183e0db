"""Outputs on disk: the forecaster as safetensors and JSON, the pool as npz, nothing pickled."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
from icml26.errors import InputError

from icml26_plugin_timeguard.fitted import FittedForecaster
from icml26_plugin_timeguard.task import Inputs, Output, Pool

POOL, INFO = "pool.npz", "info.json"


def save_output(output: Output, folder: Path) -> None:
    """Write ``output`` into ``folder``."""
    forecaster = output.forecaster
    assert isinstance(forecaster, FittedForecaster)
    forecaster.save(folder)
    if output.pool is not None:
        pool = output.pool
        with (folder / POOL).open("wb") as file:
            np.savez_compressed(
                file, initial=pool.initial, final=pool.final, rejections=pool.rejections, rounds=np.int64(pool.rounds)
            )
    (folder / INFO).write_text(json.dumps(output.info, indent=2) + "\n", encoding="utf-8")


def export_mask(inputs: Inputs, pool: Pool, path: Path) -> None:
    """Write the masks (C, N) with channel names, and the first step and time of each window, for use elsewhere."""
    n = pool.final.shape[1]
    arrays: dict[str, np.ndarray] = {
        "initial": pool.initial,
        "final": pool.final,
        "rejections": pool.rejections,
        "channels": np.array(inputs.channels),
        "first_step": np.arange(n),
    }
    if inputs.timestamps is not None:
        arrays["first_time"] = inputs.timestamps[:n]
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    part.replace(path)


def load_output(folder: Path) -> Output:
    """Read what :func:`save_output` wrote; InputError for a damaged folder."""
    folder = Path(folder)
    forecaster = FittedForecaster.load(folder)
    pool = None
    try:
        if (folder / POOL).exists():
            with np.load(folder / POOL, allow_pickle=False) as data:
                pool = Pool(data["initial"], data["final"], data["rejections"], int(data["rounds"]))
        info = json.loads((folder / INFO).read_text(encoding="utf-8"))
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{folder} holds no complete output of this task: {error}") from None
    return Output(forecaster, pool, info)
