"""What all attacks share: attacked channels, non-overlapping places, the written blocks and the units they poison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from icml26.errors import InputError

from icml26_plugin_timeguard.windows import n_windows

PATTERNS: dict[str, tuple[float, ...]] = {
    "cone": (0.1278, 0.1748, 0.2787, 0.3853, 0.2787, 0.1748, 0.1278),
    "up_trend": (0.1405, 0.2064, 0.2705, 0.2835, 0.2949, 0.3495, 0.3567),
    "up_and_down": (0.10, 0.1687, 0.2851, 0.09601, -0.0230, -0.0916, -0.2402),
}


@dataclass(frozen=True)
class Layout:
    """Shape of one injected block: ``before`` steps are read, ``trigger`` + ``pattern`` written, ``gap`` left free."""

    trigger: int = 4
    pattern: int = 7
    before: int = 6
    gap: int = 8

    @property
    def block(self) -> int:
        """Steps written by one injection."""
        return self.trigger + self.pattern

    def check(self, seq_len: int, pred_len: int) -> None:
        """Raise InputError when trigger or pattern do not fit the windows."""
        if self.trigger + self.before > seq_len:
            raise InputError(
                f"trigger ({self.trigger} steps) and the {self.before} steps before it do not fit into seq_len={seq_len}: "
                f"use seq_len >= {self.trigger + self.before}."
            )
        if self.pattern > pred_len:
            raise InputError(
                f"The target pattern has {self.pattern} steps but pred_len={pred_len}: use pred_len >= {self.pattern}."
            )


@dataclass(frozen=True)
class Injection:
    """A poisoned training series and how it came about.

    ``series`` (T, C); ``starts`` (n,) first trigger steps, ascending; ``channels`` (k,) attacked channel ids, ascending;
    ``pattern`` (pattern steps,) in physical units.
    """

    series: np.ndarray
    starts: np.ndarray
    channels: np.ndarray
    pattern: np.ndarray


def attacked_channels(
    rng: np.random.Generator, n_channels: int, alpha_s: float, channels: tuple[int, ...] | None = None
) -> np.ndarray:
    """Sorted ids of the attacked channels: those given, else max(1, round(C alpha_s)) drawn without replacement."""
    if channels is not None:
        wrong = [c for c in channels if not 0 <= c < n_channels]
        if wrong or len(set(channels)) != len(channels) or not channels:
            raise InputError(
                f"attacked_channels={list(channels)} must be distinct ids from 0 to {n_channels - 1}"
                + (f"; out of range: {wrong}." if wrong else ".")
            )
        return np.array(sorted(channels))
    count = max(1, round(n_channels * alpha_s))
    return np.sort(rng.choice(n_channels, size=count, replace=False))


def n_injections(n_steps: int, seq_len: int, pred_len: int, alpha_t: float) -> int:
    """ceil(alpha_t N) injections for the N windows of the series."""
    return max(1, int(np.ceil(alpha_t * n_windows(n_steps, seq_len, pred_len) - 1e-9)))


def free_places(ranked: np.ndarray, n_steps: int, layout: Layout, limit: int | None = None) -> np.ndarray:
    """Greedily keep the starts of ``ranked`` (best first) whose block and gap are inside the series and still free.

    Stops after ``limit`` places when given.
    """
    span = layout.block + layout.gap
    taken = np.zeros(n_steps, dtype=bool)
    kept: list[int] = []
    for start in ranked.tolist():
        if start <= layout.before or start + span > n_steps or taken[start : start + span].any():
            continue
        taken[start : start + span] = True
        kept.append(start)
        if limit is not None and len(kept) >= limit:
            break
    return np.array(kept, dtype=np.int64)


def draw_places(rng: np.random.Generator, ranked: np.ndarray, n_steps: int, layout: Layout, count: int) -> np.ndarray:
    """``count`` sorted starts drawn from the best free places of ``ranked`` (the authors keep twice as many to draw from).

    Raises InputError, saying how many fit, when the series is too short for ``count`` blocks.
    """
    places = free_places(ranked, n_steps, layout, limit=2 * count + 1)
    if len(places) < count:
        raise InputError(
            f"alpha_t asks for {count} injections of {layout.block + layout.gap} steps each, but only {len(places)} fit into "
            f"{n_steps} training steps: lower alpha_t."
        )
    return np.sort(rng.choice(places, size=count, replace=False))


def write_blocks(
    series: np.ndarray, starts: np.ndarray, channels: np.ndarray, triggers: np.ndarray, pattern: np.ndarray
) -> np.ndarray:
    """A copy of ``series`` with x[b:b+4] = trigger and x[b+4:b+11] = x[b-1] + pattern on the attacked channels.

    ``triggers`` (n, trigger steps, k) physical, absolute values; ``pattern`` (pattern steps,) physical.
    """
    poisoned = series.copy()
    n_trigger, n_pattern = triggers.shape[1], len(pattern)
    for start, trigger in zip(starts, triggers, strict=True):
        anchor = series[start - 1, channels]
        poisoned[start : start + n_trigger, channels] = trigger
        poisoned[start + n_trigger : start + n_trigger + n_pattern, channels] = anchor + pattern[:, None]
    return poisoned


def poisoned_units(
    starts: np.ndarray, channels: np.ndarray, n_channels: int, n_steps: int, seq_len: int, pred_len: int, layout: Layout
) -> np.ndarray:
    """Boolean (C, N): units with a whole trigger in the history and pattern steps left in the future.

    An injection poisons the windows whose future begins 0 to pattern - 1 steps into the pattern.
    """
    count = n_windows(n_steps, seq_len, pred_len)
    windows = np.zeros(count, dtype=bool)
    for shift in range(min(layout.pattern, seq_len - layout.trigger + 1)):
        index = starts + layout.trigger + shift - seq_len
        windows[index[(index >= 0) & (index < count)]] = True
    mask = np.zeros((n_channels, count), dtype=bool)
    mask[channels] = windows
    return mask
