"""Schedules of the learning rate and of k (section 9)."""

from __future__ import annotations

import math
from typing import Literal


def n_steps_of(length: float, steps: int) -> int:
    """Steps that ``length`` means: a count, or below 1 a share of all ``steps``."""
    return round(length * steps) if length < 1 else int(length)


def lr_factor(step: int, steps: int, *, warmup: int, cooldown: int, final: float) -> float:
    """min(1, (t + 1) / T_w, r_end + (1 - r_end) (T - t) / T_c) at step t of T, counted from 0."""
    factor = 1.0
    if warmup > 0:
        factor = min(factor, (step + 1) / warmup)
    if cooldown > 0:
        factor = min(factor, final + (1 - final) * (steps - step) / cooldown)
    return factor


def annealed_k(
    step: int, *, k: int, initial_k: int, warmup: int, schedule: Literal["linear", "exponential"] = "linear"
) -> int:
    """k_t = ceil(k0 + (k - k0) min(1, t / T_k)); exponential lets the share be (1 - e^(-3 t / T_k)) / (1 - e^-3)."""
    share = 1.0 if warmup <= 0 else min(1.0, step / warmup)
    if schedule == "exponential":
        share = (1 - math.exp(-3 * share)) / (1 - math.exp(-3))
    # Rounding must not lift an exact k to k + 1.
    return max(k, math.ceil(initial_k + (k - initial_k) * share - 1e-9))
