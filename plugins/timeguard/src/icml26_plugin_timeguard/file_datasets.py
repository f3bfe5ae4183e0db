"""Datasets from files: the user's own series, and the paper's real ones from the user's copy."""

from __future__ import annotations

from typing import Literal

from icml26 import Dataset, Problem, RunContext
from icml26.tasks.series import SeriesFileConfig
from pydantic import Field

from icml26_plugin_timeguard.datasets import ATTACK_HELP, AttackConfig, planted
from icml26_plugin_timeguard.problem import SeriesData
from icml26_plugin_timeguard.task import Inputs, Truth


class SeriesFile(Dataset[Inputs, Truth]):
    """A series from the user's file; without an attack there is nothing to be right about but the clean error."""

    class Config(SeriesFileConfig, AttackConfig):
        """File, windows, and an attack to plant if wanted."""

        attack: Literal["random", "backtime", "none"] = Field(
            "none", description="Plant an attack in the training part to try the defences, or take the file as it is."
        )
        max_steps: int | None = Field(None, ge=30, description="Use only the first steps of the series.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Read the file and plant the attack, if one is asked for."""
        config = self.config
        read = config.read()
        timestamps = None if read.timestamps is None else read.timestamps[: config.max_steps]
        return planted(SeriesData(read.values[: config.max_steps], read.channels, timestamps), config, ctx)


class DatedFile(SeriesFile):
    """A file of the Time-Series-Library (Weather, ETTm1): a ``date`` column and numeric ones; attacked."""

    class Config(SeriesFile.Config):
        """File, windows and attack."""

        timestamp: str | None = Field("date", description="The column of timestamps; null when columns leaves it out.")
        attack: Literal["random", "backtime", "none"] = Field("random", description=ATTACK_HELP)


class Pems(SeriesFile):
    """PEMS03 traffic flow: an NPZ whose array ``data`` is (steps, sensors, 1); attacked."""

    class Config(SeriesFile.Config):
        """File, windows and attack."""

        attack: Literal["random", "backtime", "none"] = Field("random", description=ATTACK_HELP)
