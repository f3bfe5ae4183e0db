"""What the contest's datasets, methods and metrics exchange."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Inputs:
    """Noisy draws around an unknown mean."""

    draws: np.ndarray


@dataclass(frozen=True)
class Truth:
    """The mean."""

    mean: float


@dataclass(frozen=True)
class Output:
    """A guess and what it cost."""

    guess: float
    cost: float
