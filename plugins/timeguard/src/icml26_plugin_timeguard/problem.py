"""From a clean series to a problem: split by time, plant the attack in the training part, prepare the attacked test part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from icml26 import Problem
from icml26.errors import InputError

from icml26_plugin_timeguard.attacks import injection
from icml26_plugin_timeguard.attacks.injection import PATTERNS, Injection, Layout
from icml26_plugin_timeguard.attacks.random import RandomTrigger
from icml26_plugin_timeguard.task import Attack, CleanWindows, Inputs, Truth
from icml26_plugin_timeguard.windows import n_windows, sliding

Trigger = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class SeriesData:
    """A series (T, C) with channel names and timestamps (T,) or None."""

    values: np.ndarray
    channels: tuple[str, ...]
    timestamps: np.ndarray | None = None


@dataclass(frozen=True)
class Windowing:
    """Window lengths and the shares of the validation and test parts."""

    seq_len: int = 12
    pred_len: int = 12
    val_fraction: float = 0.2
    test_fraction: float = 0.2


@dataclass(frozen=True)
class AttackSettings:
    """The attacker: ``alpha_s`` of the channels, ``alpha_t`` of the windows, trigger bound ``eps`` in global sd."""

    name: Literal["none", "random", "backtime"] = "random"
    pattern: str = "cone"
    alpha_s: float = 0.3
    alpha_t: float = 0.03
    eps: float = 0.2
    attacked_channels: tuple[int, ...] | None = None


class Attacker(Protocol):
    """Chooses places and learns a trigger on the clean training part."""

    def __call__(
        self, train: np.ndarray, channels: np.ndarray, pattern: np.ndarray, count: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, Trigger]:
        """Starts (count,) and the trigger function (n, before, k) -> (n, trigger steps, k)."""


def random_attacker(settings: AttackSettings, layout: Layout) -> Attacker:
    """Places and offsets at random."""

    def attack(
        train: np.ndarray, channels: np.ndarray, pattern: np.ndarray, count: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, Trigger]:
        starts = injection.draw_places(rng, rng.permutation(len(train)), len(train), layout, count)
        trigger = RandomTrigger.draw(rng, layout.trigger, len(channels), settings.eps * float(train.std()))
        return starts, trigger

    return attack


def part_sizes(total: int, windowing: Windowing) -> tuple[int, int, int]:
    """Steps of the training, validation and test part."""
    n_test = int(np.floor(total * windowing.test_fraction + 1e-9))
    n_val = int(np.floor(total * windowing.val_fraction + 1e-9))
    return total - n_val - n_test, n_val, n_test


def split(series: SeriesData, windowing: Windowing) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training, validation and test part in time order; InputError when one of them holds no window."""
    total = len(series.values)
    n_train, n_val, n_test = part_sizes(total, windowing)
    needed = windowing.seq_len + windowing.pred_len
    for name, size in (("training", n_train), ("validation", n_val), ("test", n_test)):
        if size < needed:
            raise InputError(
                f"The {name} part has {size} of {total} steps; seq_len + pred_len = {needed} are needed: give a longer "
                "series, shorter windows or another val_fraction/test_fraction."
            )
    parts = np.split(series.values, [n_train, n_train + n_val])
    return parts[0].copy(), parts[1].copy(), parts[2].copy()


def build_problem(
    series: SeriesData,
    windowing: Windowing,
    settings: AttackSettings,
    rng: np.random.Generator,
    *,
    attacker: Attacker | None = None,
    clean_fraction: float = 0.05,
    info: dict[str, Any] | None = None,
) -> Problem[Inputs, Truth]:
    """The problem of defending a forecaster on ``series``; without an attack the truth holds the test part only."""
    train, val, test = split(series, windowing)
    timestamps = None if series.timestamps is None else series.timestamps[: len(train)].copy()
    about = {"steps": len(series.values), "channels": series.values.shape[1], **(info or {})}
    common: dict[str, Any] = {"seq_len": windowing.seq_len, "pred_len": windowing.pred_len}
    if settings.name == "none":
        inputs = Inputs(train=train, val=val, channels=series.channels, timestamps=timestamps, **common)
        return Problem(inputs, Truth(test=test, **common), {**about, "attack": "none"})
    layout = Layout()
    injected, trigger = plant(train, windowing, settings, layout, rng, attacker or random_attacker(settings, layout))
    attack = attack_truth(injected, trigger, test, windowing, settings, layout)
    inputs = Inputs(
        train=injected.series,
        val=val,
        channels=series.channels,
        timestamps=timestamps,
        clean=_clean_windows(train, windowing, clean_fraction, rng),
        **common,
    )
    about |= {
        "attack": settings.name,
        "attacked_channels": [series.channels[c] for c in injected.channels],
        "injections": len(injected.starts),
        "poisoned_units": float(attack.poisoned.mean()),
    }
    return Problem(inputs, Truth(test=test, clean_train=train, attack=attack, **common), about)


def plant(
    train: np.ndarray,
    windowing: Windowing,
    settings: AttackSettings,
    layout: Layout,
    rng: np.random.Generator,
    attacker: Attacker,
) -> tuple[Injection, Trigger]:
    """Poison a clean training part; returns it with the trigger function for test time."""
    layout.check(windowing.seq_len, windowing.pred_len)
    if settings.pattern not in PATTERNS:
        raise InputError(f"pattern={settings.pattern!r} is unknown; known: {', '.join(PATTERNS)}.")
    sd = float(train.std())
    if not sd > 0:
        raise InputError("The training part is constant (standard deviation 0): no attack can be planted.")
    pattern = np.array(PATTERNS[settings.pattern]) * sd
    channels = injection.attacked_channels(rng, train.shape[1], settings.alpha_s, settings.attacked_channels)
    count = injection.n_injections(len(train), windowing.seq_len, windowing.pred_len, settings.alpha_t)
    starts, trigger = attacker(train, channels, pattern, count, rng)
    steps = starts[:, None] + np.arange(-layout.before, 0)
    triggers = trigger(train[steps][:, :, channels])
    poisoned = injection.write_blocks(train, starts, channels, triggers, pattern)
    return Injection(poisoned, starts, channels, pattern), trigger


def attack_truth(
    injected: Injection,
    trigger: Trigger,
    test: np.ndarray,
    windowing: Windowing,
    settings: AttackSettings,
    layout: Layout,
) -> Attack:
    """The attacked test part: the last trigger steps of each history are replaced, the target hangs on the step before."""
    seq_len, pred_len = windowing.seq_len, windowing.pred_len
    count = n_windows(len(test), seq_len, pred_len)
    clean_end = seq_len - layout.trigger
    history = sliding(test, seq_len)[:count][:, :, injected.channels]
    before = history[:, clean_end - layout.before : clean_end]
    return Attack(
        name=settings.name,
        channels=injected.channels,
        starts=injected.starts,
        pattern=injected.pattern,
        poisoned=injection.poisoned_units(
            injected.starts, injected.channels, test.shape[1], len(injected.series), seq_len, pred_len, layout
        ),
        trigger=trigger(before),
        target=before[:, -1:, :] + injected.pattern[None, :, None],
    )


def _clean_windows(
    clean_train: np.ndarray, windowing: Windowing, fraction: float, rng: np.random.Generator
) -> CleanWindows | None:
    """Random windows of the training part as they were before the attack, for defences that ask for trusted data."""
    if fraction <= 0:
        return None
    count = n_windows(len(clean_train), windowing.seq_len, windowing.pred_len)
    chosen = np.sort(rng.choice(count, size=max(1, round(fraction * count)), replace=False))
    windows = np.array(sliding(clean_train, windowing.seq_len + windowing.pred_len)[chosen])
    return CleanWindows(windows[:, : windowing.seq_len].copy(), windows[:, windowing.seq_len :].copy())
