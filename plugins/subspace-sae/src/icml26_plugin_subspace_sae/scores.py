"""What is measured of a dictionary on a stream of held-out rows: pure functions on arrays, one pass in blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from icml26_plugin_subspace_sae.task import Dictionary

BLOCK = 2048


@dataclass(frozen=True)
class StreamStats:
    """Counts and sums over one stream of ``rows`` rows.

    ``fired`` (m,) int64 rows in which each feature is not zero; ``active`` their sum; ``error`` sum ||y - ŷ||²; ``variance``
    sum ||y - mean(y)||²; ``power`` sum ||y||², y the targets.
    """

    rows: int
    fired: np.ndarray
    active: int
    error: float
    variance: float
    power: float

    @property
    def dead_fraction(self) -> float:
        """Share of features that never fired."""
        return float((self.fired == 0).mean())

    @property
    def l0(self) -> float:
        """Mean number of active features a row."""
        return self.active / self.rows

    @property
    def fvu(self) -> float:
        """Fraction of variance unexplained: sum ||y - ŷ||² / sum ||y - mean(y)||²; 1 for the mean, above 1 for worse."""
        return self.error / self.variance

    @property
    def normalised_mse(self) -> float:
        """Sum ||y - ŷ||² / sum ||y||²: 1 for reconstructing zero."""
        return self.error / self.power

    @property
    def rates(self) -> np.ndarray:
        """Share of rows (m,) in which each feature fires."""
        rates: np.ndarray = self.fired / self.rows
        return rates


def stream_stats(sae: Dictionary, activations: np.ndarray, targets: np.ndarray | None = None) -> StreamStats:
    """Encode and decode ``activations`` (n, d) in blocks; compare with ``targets`` (n, d_out), the activations when None."""
    wanted = activations if targets is None else targets
    if len(wanted) != len(activations):
        raise ValueError(f"{len(activations)} activations and {len(wanted)} targets do not pair up")
    if len(activations) == 0:
        raise ValueError("there are no rows to score on")
    mean = _mean(wanted)
    fired: np.ndarray | None = None
    error = variance = power = 0.0
    for start in range(0, len(activations), BLOCK):
        # A copy: rows of a memory map are read-only, which torch warns about.
        x = np.array(activations[start : start + BLOCK], dtype=np.float32)
        codes = sae.encode(x)
        y = np.asarray(wanted[start : start + BLOCK], dtype=np.float64)
        found = np.count_nonzero(codes, axis=0)
        fired = found if fired is None else fired + found
        error += float(((y - sae.decode(codes, x)) ** 2).sum())
        variance += float(((y - mean) ** 2).sum())
        power += float((y**2).sum())
    assert fired is not None
    return StreamStats(len(activations), fired.astype(np.int64), int(fired.sum()), error, variance, power)


def _mean(rows: np.ndarray) -> np.ndarray:
    total = np.zeros(rows.shape[1])
    for start in range(0, len(rows), BLOCK):
        total += np.asarray(rows[start : start + BLOCK], dtype=np.float64).sum(axis=0)
    return total / len(rows)


def subspace_shares(decoder: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """||Uᵀw||² / ||w||² of each decoder row w (m, d), U = ``basis`` (d, q) with orthonormal columns; 0 for a zero row."""
    rows = np.asarray(decoder, dtype=np.float64)
    total = (rows**2).sum(axis=1)
    inside = ((rows @ basis) ** 2).sum(axis=1)
    return np.divide(inside, total, out=np.zeros_like(total), where=total > 0)


def best_cosines(features: np.ndarray, learned: np.ndarray) -> np.ndarray:
    """Largest cosine (n_f,) of each true feature (n_f, d) with any learned direction (m, d), at least -1; 0 without any."""
    if len(learned) == 0:
        return np.zeros(len(features))
    true, found = _unit(features), _unit(learned)
    blocks: Iterable[np.ndarray] = (
        (true[start : start + BLOCK] @ found.T).max(axis=1) for start in range(0, len(true), BLOCK)
    )
    return np.concatenate(list(blocks))


def _unit(rows: np.ndarray) -> np.ndarray:
    array = np.asarray(rows, dtype=np.float64)
    norm = np.linalg.norm(array, axis=1, keepdims=True)
    unit: np.ndarray = array / np.where(norm > 0, norm, 1.0)
    return unit


def point_biserial(values: np.ndarray, group: np.ndarray) -> float | None:
    """Pearson correlation of ``values`` (m,) with the booleans ``group`` (m,); None when either does not vary."""
    values = np.asarray(values, dtype=np.float64)
    centred = values - values.mean()
    indicator = group.astype(np.float64) - group.mean()
    # Rounding alone must not make a correlation: shares that are all 1 differ by 1e-16 or, from float32 decoders, 1e-7.
    if np.abs(centred).max() <= 1e-6 * max(float(np.abs(values).max()), 1e-30) or group.all() or not group.any():
        return None
    return float((centred @ indicator) / np.sqrt((centred @ centred) * (indicator @ indicator)))


def loss_recovered(loss: float, *, original: float, ablated: float) -> float:
    """(CE_ablated - CE) / (CE_ablated - CE_original): 1 when nothing is lost, 0 as bad as ablation; may leave [0, 1]."""
    span = ablated - original
    if not span > 0:
        raise ValueError(
            f"ablating the activation does not raise the loss ({ablated} against {original}): nothing to recover"
        )
    return (ablated - loss) / span
