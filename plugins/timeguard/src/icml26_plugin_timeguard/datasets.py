"""Datasets of ``forecasting.backdoor-defense``: adapters that read or make a series and plant the attack."""

from __future__ import annotations

from typing import Literal

from icml26 import Dataset, Problem, RunContext
from icml26.dataset import DatasetConfig
from pydantic import Field

from icml26_plugin_timeguard.problem import AttackSettings, SeriesData, Windowing, build_problem
from icml26_plugin_timeguard.synthetic import synthetic_traffic
from icml26_plugin_timeguard.task import Inputs, Truth


class WindowConfig(DatasetConfig):
    """Window lengths and the split by time."""

    seq_len: int = Field(12, ge=1, le=4096, description="History length L_in in steps (paper: 12).")
    pred_len: int = Field(12, ge=1, le=4096, description="Forecast length L_out in steps (paper: 12).")
    val_fraction: float = Field(
        0.2, gt=0, lt=1, description="Share of the steps for validation, after the training part."
    )
    test_fraction: float = Field(0.2, gt=0, lt=1, description="Share of the steps for testing, at the end.")

    def windowing(self) -> Windowing:
        """As the native API takes it."""
        return Windowing(self.seq_len, self.pred_len, self.val_fraction, self.test_fraction)


class AttackConfig(WindowConfig):
    """The planted attack."""

    attack: Literal["random", "backtime", "none"] = Field(
        "random", description="Trigger: a fixed random offset, BackTime's learnt one, or none (then there is no MAE_P)."
    )
    pattern: Literal["cone", "up_trend", "up_and_down"] = Field("cone", description="Shape of the attacker's target.")
    alpha_s: float = Field(0.3, gt=0, le=1, description="Share of the channels that are attacked (eta_S; paper: 0.3).")
    alpha_t: float = Field(0.03, gt=0, le=1, description="Injections as a share of the windows (eta_T; paper: 0.03).")
    eps: float = Field(0.2, gt=0, description="Bound of the trigger in global standard deviations (paper: 0.2).")
    attacked_channels: tuple[int, ...] | None = Field(
        None, description="Ids of the attacked channels instead of a draw."
    )
    clean_fraction: float = Field(
        0.05, ge=0, le=1, description="Share of trusted clean windows handed to defences that need them; 0: none."
    )

    def settings(self) -> AttackSettings:
        """As the native API takes it."""
        return AttackSettings(self.attack, self.pattern, self.alpha_s, self.alpha_t, self.eps, self.attacked_channels)


class SyntheticTraffic(Dataset[Inputs, Truth]):
    """Synthetic traffic flow with a planted backdoor."""

    class Config(AttackConfig):
        """Size of the series, windows and attack."""

        steps: int = Field(3600, ge=100, description="Length of the series in steps.")
        channels: int = Field(10, ge=1, description="Number of channels (sensors).")
        groups: int = Field(4, ge=1, description="Groups of channels that share a daily and weekly course.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Make the series and plant the attack, from ``ctx.rng`` alone."""
        config = self.config
        values = synthetic_traffic(ctx.rng, config.steps, config.channels, config.groups)
        series = SeriesData(values, tuple(f"sensor {i}" for i in range(config.channels)))
        return build_problem(
            series, config.windowing(), config.settings(), ctx.rng, clean_fraction=config.clean_fraction
        )
