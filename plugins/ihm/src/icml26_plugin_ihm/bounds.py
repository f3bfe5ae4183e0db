"""Public bounds on rows and labels, and the warning when they were not public."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

XBound = float | Literal["data"]
YBound = float | tuple[float, float] | Literal["data"]

#: Beyond these, squares of values within the bound leave double precision, and a row's norm is no longer known.
SMALLEST, LARGEST = 1e-100, 1e100


class PrivacyLeakWarning(RuntimeWarning):
    """Something was read from private data outside of any mechanism; the stated guarantee does not cover it."""


@dataclass(frozen=True)
class Bounds:
    """Largest row norm and label interval that the mechanisms assume, in the user's units."""

    x: float = 1.0
    y_low: float = -1.0
    y_high: float = 1.0
    from_data: bool = False
    """True when a bound was computed from private data."""

    def label_frame(self, intercept: bool) -> tuple[float, float]:
        """Centre and half width that map labels to [-1, 1].

        Labels are centred only when an intercept can absorb it; otherwise the frame is symmetric about zero.
        """
        if intercept:
            return (self.y_low + self.y_high) / 2.0, (self.y_high - self.y_low) / 2.0
        return 0.0, max(abs(self.y_low), abs(self.y_high))


def _positive_number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number or 'data', got {value!r}")
    number = float(value)
    if not (math.isfinite(number) and number > 0.0):
        raise ValueError(f"{name} must be positive and finite, got {number}")
    return _representable(number, name)


def _representable(number: float, name: str) -> float:
    if not SMALLEST <= number <= LARGEST:
        raise ValueError(f"{name} is {number:g}; between {SMALLEST:g} and {LARGEST:g} is possible: change the unit")
    return number


def _label_interval(y_bound: object) -> tuple[float, float]:
    if isinstance(y_bound, tuple | list):
        if len(y_bound) != 2:
            raise ValueError(f"y_bound must be a number or a pair (low, high), got {y_bound!r}")
        for value in y_bound:
            if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
                raise TypeError(f"y_bound=(low, high) must be two numbers, got {y_bound!r}")
        low, high = float(y_bound[0]), float(y_bound[1])
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"y_bound=(low, high) needs finite low < high, got ({low}, {high})")
        _representable(max(abs(low), abs(high)), "the larger of y_bound")
        _representable(high - low, "the width of y_bound")
        return low, high
    bound = _positive_number(y_bound, "y_bound")
    return -bound, bound


def check_bounds(x_bound: object, y_bound: object) -> None:
    """Refuse bounds that no data could justify (`TypeError`, `ValueError`)."""
    if not (isinstance(x_bound, str) and x_bound == "data"):
        _positive_number(x_bound, "x_bound")
    if isinstance(y_bound, str):
        if y_bound != "data":
            raise ValueError(f"y_bound must be a number, a pair or 'data', got {y_bound!r}")
    else:
        _label_interval(y_bound)


def resolve_bounds(X: NDArray[np.floating], y: NDArray[np.floating], x_bound: XBound, y_bound: YBound) -> Bounds:
    """Bounds as given, or, for "data", read off `X` (n, d) and `y` (n,) with a `PrivacyLeakWarning`."""
    check_bounds(x_bound, y_bound)
    from_data = x_bound == "data" or y_bound == "data"
    if from_data:
        warnings.warn(
            "bounds were computed from the private data; the privacy guarantee does not cover that. "
            "Give x_bound and y_bound from public knowledge.",
            PrivacyLeakWarning,
            stacklevel=3,
        )
    if x_bound == "data":
        largest = float(np.abs(X).max(initial=0.0))
        unit = X.astype(np.float64) / (largest or 1.0)
        x = _representable(
            largest * math.sqrt(float(np.einsum("ij,ij->i", unit, unit).max(initial=0.0))) or 1.0, "x_bound"
        )
    else:
        x = float(x_bound)
    if y_bound == "data":
        largest = _representable(float(np.abs(y).max(initial=0.0)) or 1.0, "y_bound")
        low, high = -largest, largest
    else:
        low, high = _label_interval(y_bound)
    return Bounds(x, low, high, from_data)
