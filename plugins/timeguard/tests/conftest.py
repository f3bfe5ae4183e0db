"""Small problems that the tests share."""

from __future__ import annotations

import numpy as np
import pytest
from icml26 import Problem
from icml26_plugin_timeguard.problem import AttackSettings, SeriesData, Windowing, build_problem
from icml26_plugin_timeguard.synthetic import synthetic_traffic
from icml26_plugin_timeguard.task import Inputs, Truth


def traffic(steps: int = 600, channels: int = 4, seed: int = 0) -> SeriesData:
    values = synthetic_traffic(np.random.default_rng(seed), steps, channels)
    return SeriesData(values, tuple(f"sensor {i}" for i in range(channels)))


@pytest.fixture(scope="session")
def small() -> Problem[Inputs, Truth]:
    """600 steps of 4 channels with a Random attack; 337 training windows."""
    return build_problem(traffic(), Windowing(), AttackSettings(), np.random.default_rng(7))
