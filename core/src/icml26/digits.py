"""Numbers for people: as many digits as they deserve. Every table, on a terminal, in Markdown or in a report, writes them so."""

from __future__ import annotations

import math

from icml26.statistics import Estimate

MISSING = "–"


def number(value: float | int | None) -> str:
    """Four significant digits, ``–`` for None, thin spaces never: numbers can be copied."""
    if value is None:
        return MISSING
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e6):
        return str(int(value)) if math.isfinite(value) else str(value)
    return f"{value:.4g}"


def spread(estimate: Estimate) -> tuple[str, str]:
    """The value and ``± half width`` with as many decimals as the interval deserves; the second is empty without one."""
    half = _half(estimate)
    decimals = _decimals(estimate, half)
    if half is None:
        return number(estimate.value), ""
    if decimals is None:
        return f"{estimate.value:.4g}", f"± {half:.2g}"
    return f"{estimate.value:.{decimals}f}", f"± {half:.{decimals}f}"


def plus_minus(cell: Estimate | str) -> str:
    """``11.42 ± 0.31``, ``0.5`` without an interval, ``–`` without a value."""
    return MISSING if isinstance(cell, str) else " ".join(part for part in spread(cell) if part)


def bounded(estimate: Estimate) -> str:
    """``2.31 [1.90, 2.80]``, ``2.31`` without an interval."""
    value, _ = spread(estimate)
    if estimate.low is None or estimate.high is None:
        return value
    decimals = _decimals(estimate, _half(estimate))
    form = ".4g" if decimals is None else f".{decimals}f"
    return f"{value} [{estimate.low:{form}}, {estimate.high:{form}}]"


def _half(estimate: Estimate) -> float | None:
    """Half the width of the interval; None where there is none to speak of."""
    if estimate.low is None or estimate.high is None:
        return None
    half = (estimate.high - estimate.low) / 2
    return half if half > 0 and math.isfinite(half) else None


def _decimals(estimate: Estimate, half: float | None) -> int | None:
    """Decimals that show two digits of the half width; None where a power of ten is shorter."""
    if half is None or abs(estimate.value) >= 1e6:
        return None
    decimals = 1 - math.floor(math.log10(half))
    return decimals if 0 <= decimals <= 6 else None
