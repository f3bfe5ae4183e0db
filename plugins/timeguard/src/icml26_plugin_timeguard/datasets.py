"""Datasets of ``forecasting.backdoor-defense``: adapters that read or make a series and plant the attack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from icml26 import Dataset, Problem, RunContext
from icml26.dataset import DatasetConfig
from pydantic import Field

from icml26_plugin_timeguard.problem import (
    Attacker,
    AttackSettings,
    SeriesData,
    Trigger,
    Windowing,
    build_problem,
    part_sizes,
)
from icml26_plugin_timeguard.synthetic import synthetic_traffic
from icml26_plugin_timeguard.task import Inputs, Truth

if TYPE_CHECKING:
    from icml26_plugin_timeguard.attacks.backtime import BackTimeSettings


ATTACK_HELP = "Trigger: a fixed random offset, BackTime's learnt one, or none (then there is no MAE_P)."


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

    attack: Literal["random", "backtime", "none"] = Field("random", description=ATTACK_HELP)
    pattern: Literal["cone", "up_trend", "up_and_down"] = Field("cone", description="Shape of the attacker's target.")
    alpha_s: float = Field(0.3, gt=0, le=1, description="Share of the channels that are attacked (eta_S; paper: 0.3).")
    alpha_t: float = Field(0.03, gt=0, le=1, description="Injections as a share of the windows (eta_T; paper: 0.03).")
    eps: float = Field(0.2, gt=0, description="Bound of the trigger in global standard deviations (paper: 0.2).")
    attacked_channels: tuple[int, ...] | None = Field(
        None, description="Ids of the attacked channels instead of a draw."
    )
    clean_fraction: float = Field(
        0.05, gt=0, le=1, description="Share of trusted clean windows handed to defences that need them."
    )

    surrogate: Literal["mlp", "dlinear", "itransformer"] = Field(
        "mlp", description="BackTime: the network that the attacker trains against (authors: FEDformer)."
    )
    surrogate_epochs: int = Field(100, ge=1, description="BackTime: epochs of surrogate and trigger in turn.")
    surrogate_warmup: int = Field(10, ge=0, description="BackTime: epochs on clean data before places are chosen.")
    surrogate_lr: float = Field(1e-4, gt=0, description="BackTime: learning rate of the surrogate.")

    def backtime(self) -> BackTimeSettings:
        """As the native API takes it."""
        from icml26_plugin_timeguard.attacks.backtime import BackTimeSettings

        return BackTimeSettings(
            eps=self.eps,
            surrogate=self.surrogate,
            surrogate_lr=self.surrogate_lr,
            surrogate_epochs=self.surrogate_epochs,
            warmup_epochs=self.surrogate_warmup,
        )

    def settings(self) -> AttackSettings:
        """As the native API takes it."""
        return AttackSettings(self.attack, self.pattern, self.alpha_s, self.alpha_t, self.eps, self.attacked_channels)


def planted(series: SeriesData, config: AttackConfig, ctx: RunContext) -> Problem[Inputs, Truth]:
    """The problem on a series with the configured attack; all randomness from ``ctx.rng``."""
    settings, windowing = config.settings(), config.windowing()
    attacker = backtime_attacker(config, ctx) if settings.name == "backtime" else None
    return build_problem(series, windowing, settings, ctx.rng, attacker=attacker, clean_fraction=config.clean_fraction)


def backtime_attacker(config: AttackConfig, ctx: RunContext) -> Attacker:
    """BackTime, whose training is done once per dataset config and seed and then kept in the cache."""
    from icml26_plugin_timeguard.attacks.backtime import BackTime, load_attack, save_attack

    def attack(
        train: np.ndarray, channels: np.ndarray, pattern: np.ndarray, count: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, Trigger]:
        # One draw, whether the attack is trained or read, so that what is drawn later does not depend on the cache.
        seed = int(rng.integers(2**62))
        backtime = BackTime(
            train, channels, pattern, config.seq_len, config.pred_len, config.backtime(), seed=seed, device=ctx.device
        )
        folder = ctx.cached(
            "backtime-1",
            lambda new: save_attack(*backtime.run(count, np.random.default_rng(seed)), new / "attack.npz"),
        )
        return load_attack(backtime, folder / "attack.npz")

    return attack


class SyntheticTraffic(Dataset[Inputs, Truth]):
    """Synthetic traffic flow with a planted backdoor."""

    class Config(AttackConfig):
        """Size of the series, windows and attack."""

        # The paper's 100 epochs at 1e-4 are for ten times the data; here the surrogate must still get to learn the trigger.
        surrogate_epochs: int = Field(30, ge=1, description="BackTime: epochs of surrogate and trigger in turn.")
        surrogate_lr: float = Field(1e-3, gt=0, description="BackTime: learning rate of the surrogate.")
        steps: int = Field(3600, ge=100, description="Length of the series in steps.")
        channels: int = Field(10, ge=1, description="Number of channels (sensors).")
        groups: int = Field(4, ge=1, description="Groups of channels that share a daily and weekly course.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Make the series and plant the attack, from ``ctx.rng`` alone."""
        config = self.config
        values = synthetic_traffic(ctx.rng, config.steps, config.channels, config.groups)
        series = SeriesData(values, tuple(f"sensor {i}" for i in range(config.channels)))
        return planted(series, config, ctx)


class NycWeather(Dataset[Inputs, Truth]):
    """Real hourly weather of New York's three airports, each channel standardised."""

    class Config(AttackConfig):
        """Windows and attack."""

        max_steps: int | None = Field(None, ge=100, description="Use only the first steps of the series.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Read the installed package's file and plant the attack."""
        from icml26_plugin_timeguard.nycflights import nyc_weather, standardised, weather_file

        config = self.config
        values, channels, timestamps = nyc_weather(weather_file())
        values, timestamps = values[: config.max_steps], timestamps[: config.max_steps]
        n_train = part_sizes(len(values), config.windowing())[0]
        series = SeriesData(standardised(values, n_train), channels, timestamps)
        return planted(series, config, ctx)
