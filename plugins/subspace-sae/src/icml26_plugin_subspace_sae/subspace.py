"""The active subspace: the leading principal directions of de-meaned rows, and how many of them to take."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from icml26.errors import InputError

from icml26_plugin_subspace_sae.rank import StreamingCovariance, effective_rank, variance_directions

Dimensions = int | float | str

_HOW = (
    "a number of directions (384), a share of the width ('0.5d'), a share of the variance (0.99 or '99%'), "
    "or 'auto' for the effective rank"
)


@dataclass(frozen=True)
class ActiveSubspace:
    """``basis`` (d, q) float32, orthonormal columns in order of variance; ``singular_values`` (d,) of the de-meaned rows."""

    basis: np.ndarray
    singular_values: np.ndarray

    @property
    def q(self) -> int:
        """Number of directions."""
        return self.basis.shape[1]


def n_directions(q: Dimensions, singular_values: np.ndarray) -> int:
    """How many directions ``q`` means for a spectrum (d,), descending; InputError for what is no q or out of range."""
    width = len(singular_values)
    if isinstance(q, bool):
        raise InputError(f"q={q!r} is no number of directions: give {_HOW}.")
    text = str(q).strip().lower()
    if text == "auto":
        return min(max(round(effective_rank(singular_values)), 1), width)
    match = re.fullmatch(r"([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*(d|%)?", text)
    if match is None:
        raise InputError(f"q={q!r} is no number of directions: give {_HOW}.")
    value, unit = float(match[1]), match[2]
    if unit == "d":
        count = round(value * width)
    elif unit == "%" or (0 < value < 1):
        share = value / 100 if unit == "%" else value
        if not 0 < share <= 1:
            raise InputError(f"q={q!r} must be a share of the variance above 0 and at most 1.")
        count = variance_directions(singular_values, share)
    elif value != int(value):
        raise InputError(f"q={q!r} is no whole number of directions: give {_HOW}.")
    else:
        count = int(value)
    if not 1 <= count <= width:
        raise InputError(f"q={q!r} means {count} directions, but must be between 1 and the width, {width}.")
    return count


def active_subspace(rows: np.ndarray, q: Dimensions = "auto", *, name: str = "activations") -> ActiveSubspace:
    """The q leading principal directions of rows (n, d).

    Raises InputError for rows that are not finite or constant, for n - 1 < q, and when the rows span fewer than q directions:
    the rest of the basis would be noise.
    """
    rows = np.asarray(rows)
    if rows.ndim != 2:
        raise InputError(f"{name} must have shape (rows, dimensions), not {rows.shape}.")
    covariance = StreamingCovariance(rows.shape[1], name)
    covariance.update(rows)
    spectrum = covariance.spectrum()
    values = spectrum.singular_values
    count = n_directions(q, values)
    if count > len(rows) - 1:
        raise InputError(
            f"q={q!r} means {count} directions, but {len(rows)} rows span at most {len(rows) - 1} about their mean: "
            f"give at least {10 * rows.shape[1]} rows (ten a dimension) or a smaller q."
        )
    # Directions below the rounding of float32 activations are not in the data.
    rank = int((values > values[0] * 4 * np.finfo(np.float32).eps * np.sqrt(len(values))).sum())
    if count > rank:
        raise InputError(f"q={q!r} means {count} directions, but these {name} span only {rank}: choose q <= {rank}.")
    return ActiveSubspace(np.ascontiguousarray(spectrum.top(count), dtype=np.float32), values)
