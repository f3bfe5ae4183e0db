"""The Random attack: one fixed random offset vector per attacked channel as the trigger."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RandomTrigger:
    """Trigger = last value before it + ``offsets`` (trigger steps, k), physical units, |offset| <= eps sd."""

    offsets: np.ndarray

    @classmethod
    def draw(cls, rng: np.random.Generator, n_steps: int, n_channels: int, bound: float) -> RandomTrigger:
        """Offsets uniform in [-bound, bound]."""
        return cls(rng.uniform(-bound, bound, (n_steps, n_channels)))

    def __call__(self, before: np.ndarray) -> np.ndarray:
        """Triggers (n, trigger steps, k) for the steps before them (n, before, k); absolute physical values."""
        return before[:, -1:, :] + self.offsets
