"""What the task's datasets hand over and its methods return. Imports the standard library and numpy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Inputs:
    """``observations``: float64 of shape (n,)."""

    observations: np.ndarray


@dataclass(frozen=True)
class Truth:
    """``mean``: the mean of the distribution without outliers."""

    mean: float


@dataclass(frozen=True)
class Output:
    """``mean``: the estimate."""

    mean: float
