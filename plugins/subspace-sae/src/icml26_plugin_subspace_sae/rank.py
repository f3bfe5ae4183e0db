"""How many dimensions activations really use: streaming covariance, its spectrum, and the measures of rank (section 7).

Run as a command, ``python -m icml26_plugin_subspace_sae.rank FILE``, it prints the table of :mod:`.rank_command`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from icml26.errors import InputError

#: Below this many rows a direction, the sample spectrum spreads by itself and measures of rank are biased (section 7: n >= 10 d).
ROWS_PER_DIMENSION = 10


def check_rows(rows: np.ndarray, width: int | None = None, *, first: int = 0, name: str = "activations") -> np.ndarray:
    """``rows`` as float64 (n, d); ``first`` is the index of row 0 in the whole, for messages.

    Raises InputError for another shape, dtypes that are no numbers, another width, and NaN or infinity by row and column; float16
    infinities are named as the overflow that they are.
    """
    array = np.asarray(rows)
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"{name} must have shape (rows, dimensions), not {array.shape}.")
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name} hold {array.dtype}, not real numbers.")
    if width is not None and array.shape[1] != width:
        raise InputError(f"{name} have {array.shape[1]} dimensions where {width} are expected.")
    # float16 squares overflow at 256: nothing is multiplied before this.
    block = array.astype(np.float64)
    bad = ~np.isfinite(block)
    if bad.any():
        row, column = (int(i[0]) for i in np.nonzero(bad))
        raise InputError(
            f"{name} hold {int(bad.sum())} values that are not finite, the first ({block[row, column]}) in row {first + row}, "
            f"dimension {column}: {_cause(array.dtype, block[row, column])}"
        )
    return block


def _cause(dtype: np.dtype[Any], value: float) -> str:
    if dtype == np.float16 and math.isinf(value):
        return "float16 overflows beyond 65504; collect the activations in float32 or bfloat16."
    return "drop those rows, or find out why the model yields them."


@dataclass
class StreamingCovariance:
    """Mean and scatter of rows that pass by, in float64; d² numbers whatever the number of rows.

    ``count`` rows seen; ``mean`` (d,); ``scatter`` (d, d) sum of outer products about the mean. Blocks are de-meaned before they
    are multiplied and merged by the pairwise rule of Chan, Golub and LeVeque, so a large constant offset costs no digits.
    """

    width: int
    name: str = "activations"
    count: int = 0
    mean: np.ndarray = field(init=False)
    scatter: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.mean = np.zeros(self.width)
        self.scatter = np.zeros((self.width, self.width))

    def update(self, rows: np.ndarray) -> None:
        """Add rows (n, d); n may be 0. Raises InputError as :func:`check_rows` does."""
        block = check_rows(rows, self.width, first=self.count, name=self.name)
        if len(block) == 0:
            return
        mean = block.mean(axis=0)
        block -= mean
        with np.errstate(over="ignore", invalid="ignore"):
            scatter = block.T @ block
        if not np.isfinite(scatter).all():
            raise InputError(f"{self.name} are too large: their squares overflow float64. Scale them down.")
        self._add(len(block), mean, scatter)

    def merge(self, other: StreamingCovariance) -> None:
        """Add what ``other`` has seen, e.g. in another process."""
        if other.width != self.width:
            raise InputError(f"{other.name} have {other.width} dimensions, {self.name} {self.width}.")
        self._add(other.count, other.mean, other.scatter)

    def _add(self, count: int, mean: np.ndarray, scatter: np.ndarray) -> None:
        if count == 0:
            return
        total = self.count + count
        shift = mean - self.mean
        self.scatter += scatter + np.outer(shift, shift) * (self.count * count / total)
        self.mean = self.mean + shift * (count / total)
        self.count = total

    def covariance(self) -> np.ndarray:
        """Sample covariance (d, d), divided by n - 1."""
        self._check_count()
        return self.scatter / (self.count - 1)

    def spectrum(self) -> Spectrum:
        """Singular values and principal directions of the de-meaned rows."""
        self._check_count()
        return spectrum_of_scatter(self.scatter, count=self.count, mean=self.mean, name=self.name)

    def _check_count(self) -> None:
        if self.count < 2:
            raise InputError(f"{self.name}: {self.count} rows have no spread; at least 2 are needed.")


@dataclass(frozen=True)
class Spectrum:
    """Spectrum of ``count`` de-meaned rows.

    ``singular_values`` (d,) of the de-meaned matrix, descending; ``directions`` (d, d) orthonormal columns in that order;
    ``mean`` (d,).
    """

    singular_values: np.ndarray
    directions: np.ndarray
    mean: np.ndarray
    count: int

    @property
    def width(self) -> int:
        """Number of dimensions d."""
        return len(self.singular_values)

    def top(self, r: int) -> np.ndarray:
        """Leading ``r`` principal directions (d, r)."""
        return self.directions[:, :r]

    def project(self, rows: np.ndarray, r: int) -> np.ndarray:
        """Rows (n, d) replaced by their mean plus their part in the top ``r`` directions."""
        basis = self.top(r)
        return self.mean + (np.asarray(rows, dtype=np.float64) - self.mean) @ basis @ basis.T


def spectrum_of_scatter(
    scatter: np.ndarray, *, count: int, mean: np.ndarray | None = None, name: str = "activations"
) -> Spectrum:
    """Spectrum of a scatter (or covariance) matrix (d, d) by a symmetric eigendecomposition; InputError without any variance."""
    values, vectors = np.linalg.eigh(scatter)
    values, vectors = values[::-1], vectors[:, ::-1]
    if not values[0] > 0:
        raise InputError(f"{name} are constant: they have no variance, so no rank either.")
    # Rounding of eigh: what lies below is zero, and its square root would pretend to be 1e-8 of the largest value.
    values = np.where(values > len(values) * np.finfo(np.float64).eps * values[0], values, 0.0)
    offset = np.zeros(len(values)) if mean is None else mean.copy()
    return Spectrum(np.sqrt(values), np.ascontiguousarray(vectors), offset, count)


def covariance_of(blocks: Iterable[np.ndarray], name: str = "activations") -> StreamingCovariance:
    """Covariance of blocks (n_i, d) of rows; InputError when there are none."""
    covariance: StreamingCovariance | None = None
    for block in blocks:
        if covariance is None:
            covariance = StreamingCovariance(check_rows(block, name=name).shape[1], name)
        covariance.update(block)
    if covariance is None:
        raise InputError(f"{name} are empty: there are no rows.")
    return covariance


def blocks_of(rows: np.ndarray, size: int = 8192) -> Iterable[np.ndarray]:
    """Slices of at most ``size`` rows, read one at a time from a memory map."""
    if rows.ndim != 2:
        raise InputError(f"activations must have shape (rows, dimensions), not {rows.shape}.")
    return (rows[start : start + size] for start in range(0, len(rows), size))


def effective_rank(singular_values: np.ndarray) -> float:
    """exp(entropy of p), p_i = s_i / sum s: Roy and Vetterli's effective rank, 1 to d."""
    share = _shares(singular_values)
    share = share[share > 0]
    return float(np.exp(-(share * np.log(share)).sum()))


def variance_directions(singular_values: np.ndarray, share: float = 0.99) -> int:
    """Fewest leading directions that hold ``share`` of the variance."""
    if not 0 < share <= 1:
        raise InputError(f"share={share} must be in (0, 1].")
    held = np.cumsum(_shares(np.asarray(singular_values, dtype=np.float64) ** 2))
    return min(int(np.searchsorted(held, share - 1e-12)) + 1, len(held))


def participation_ratio(singular_values: np.ndarray) -> float:
    """(sum lambda)² / sum lambda² with lambda = s²: 1 to d; dominated by the largest directions."""
    share = _shares(np.asarray(singular_values, dtype=np.float64) ** 2)
    return float(1.0 / (share**2).sum())


def _shares(values: np.ndarray) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0 or not np.isfinite(array).all() or (array < 0).any() or not array.any():
        raise InputError("singular values must be a non-empty vector of finite numbers >= 0 that are not all zero.")
    array = array / array.max()
    share: np.ndarray = array / array.sum()
    return share


@dataclass(frozen=True)
class RankReport:
    """Measures of rank of one set of activations, each also as a share of the width d."""

    name: str
    rows: int
    width: int
    effective_rank: float
    directions_99: int
    participation_ratio: float
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """JSON values, shares included."""
        return {
            "name": self.name,
            "rows": self.rows,
            "width": self.width,
            "effective_rank": self.effective_rank,
            "effective_rank_share": self.effective_rank / self.width,
            "directions_99": self.directions_99,
            "directions_99_share": self.directions_99 / self.width,
            "participation_ratio": self.participation_ratio,
            "participation_ratio_share": self.participation_ratio / self.width,
            "warnings": list(self.warnings),
        }


def rank_report(spectrum: Spectrum, name: str = "activations") -> RankReport:
    """All measures of a spectrum; warns when there are fewer than ten rows a dimension."""
    values, width = spectrum.singular_values, spectrum.width
    warnings = []
    if spectrum.count < ROWS_PER_DIMENSION * width:
        warnings.append(
            f"{spectrum.count} rows for {width} dimensions: with fewer than {ROWS_PER_DIMENSION * width} the rank is "
            "underestimated."
        )
    return RankReport(
        name,
        spectrum.count,
        width,
        effective_rank(values),
        variance_directions(values),
        participation_ratio(values),
        tuple(warnings),
    )


if __name__ == "__main__":
    from icml26_plugin_subspace_sae.rank_command import main

    raise SystemExit(main())
