"""Synthetic traffic: daily and weekly cycles shared by groups of channels, plus autoregressive noise."""

from __future__ import annotations

import numpy as np

PERIOD = 96
WEEK = 7 * PERIOD


def ar1(rng: np.random.Generator, n_steps: int, coefficient: float, sd: float) -> np.ndarray:
    """A stationary AR(1) path (n_steps,) with innovations of standard deviation ``sd``."""
    noise = rng.normal(0.0, sd, n_steps)
    path = np.empty(n_steps)
    level = rng.normal(0.0, sd / np.sqrt(1.0 - coefficient**2))
    for step in range(n_steps):
        level = coefficient * level + noise[step]
        path[step] = level
    return path


def synthetic_traffic(
    rng: np.random.Generator, n_steps: int = 3600, n_channels: int = 10, n_groups: int = 4
) -> np.ndarray:
    """A clean series (n_steps, n_channels) in vehicles an interval, global standard deviation about 60.

    Channel noise is kept well below the attacker's pattern (0.22 global sd): where the pattern drowns, the attack cannot be
    learnt and there is nothing to defend.
    """
    time = np.arange(n_steps)
    bases = []
    for _ in range(n_groups):
        daily, half_day, weekly = rng.uniform(0.0, 2.0 * np.pi, 3)
        base = np.sin(2 * np.pi * time / PERIOD + daily)
        base += 0.5 * np.sin(4 * np.pi * time / PERIOD + half_day)
        base += 0.25 * np.sin(2 * np.pi * time / WEEK + weekly)
        bases.append(base + ar1(rng, n_steps, 0.95, 0.03))
    channels = []
    for channel in range(n_channels):
        level, amplitude = rng.uniform(180.0, 260.0), rng.uniform(60.0, 140.0)
        own = ar1(rng, n_steps, 0.8, 0.03) + rng.normal(0.0, 0.009, n_steps)
        channels.append(level + amplitude * (0.8 * bases[channel % n_groups] + own))
    return np.stack(channels, axis=1)
