"""Checks of what users pass: odd values become InputError before any work starts, never a traceback out of numpy or torch."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from icml26 import InputError


def whole_number(value: Any, name: str, low: int, high: int | None = None) -> int:
    """``value`` as an int in low..high; numpy integers, 0-d arrays and 2.0 will do, booleans and texts will not."""
    whole = as_whole(value)
    if whole is None:
        raise InputError(f"{name} must be a whole number from {low} on, not {value!r}")
    if whole < low or (high is not None and whole > high):
        limits = f"at least {low}" if high is None else f"from {low} to {high}"
        raise InputError(f"{name} must be {limits}, not {value!r}")
    return whole


def as_whole(value: Any) -> int | None:
    """The whole number that a value holds, None for everything else, booleans and infinities among it."""
    number = _number(value)
    return None if number is None or not math.isfinite(number) or number != int(number) else int(number)


def real_number(value: Any, name: str, low: float) -> float:
    """``value`` as a finite float of at least ``low``."""
    number = _number(value)
    if number is None or not math.isfinite(number) or not number >= low:
        raise InputError(f"{name} must be at least {low:g} and finite, not {value!r}")
    return float(number)


def flag(value: Any, name: str) -> bool:
    """``value`` as a bool; texts like "no", which would count as true, are refused."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def text(value: Any, name: str) -> str:
    """``value``, when it is a str; bytes, lists of messages and numbers are refused."""
    if not isinstance(value, str):
        raise InputError(f"the {name} must be a text (str), not {type(value).__name__}")
    return value


def words(value: Any, name: str) -> tuple[str, ...]:
    """``value`` as a tuple of texts; one text alone is refused, since it would count as its letters."""
    if isinstance(value, list | tuple | set | frozenset) and all(isinstance(word, str) for word in value):
        return tuple(value)
    raise InputError(f'{name} must be a list of texts, e.g. [",", "."], not {value!r}')


def target_weights(value: Any, count: int) -> np.ndarray:
    """``value`` as (count,) float32 weights, the largest of which is 1; only their ratios matter.

    Raises InputError unless they are ``count`` finite, non-negative numbers, one of them positive.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu().double().numpy()
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biufO":
            raise ValueError(f"they are {array.dtype}")
        weights = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"weights must be numbers, one for each token to explain ({error})") from error
    if weights.shape != (count,):
        raise InputError(f"weights have shape {weights.shape}; there are {count} tokens to explain")
    if not np.isfinite(weights).all() or (weights < 0).any() or not (weights > 0).any():
        raise InputError("weights of the answer's tokens must be finite, non-negative, and not all zero")
    return np.asarray(weights / weights.max(), dtype=np.float32)


def _number(value: Any) -> int | float | None:
    """The number that a value holds; None for everything that is none."""
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        if getattr(value, "ndim", 1) != 0:
            return None
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real | np.number):
        return None
    if isinstance(value, numbers.Integral):
        return int(value)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
