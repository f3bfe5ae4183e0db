"""Embedding of sample units in which Euclidean geometry is weighted Pearson correlation (Section "distances")."""

from __future__ import annotations

from typing import Literal

import numpy as np

Metric = Literal["euclidean", "one_minus_r"]


def forecast_weights(seq_len: int, pred_len: int, sigma: float = 2.0) -> np.ndarray:
    """Gaussian weights (L_in + L_out,) centred on the first forecast step, index L_in; they sum to 1."""
    steps = np.arange(seq_len + pred_len, dtype=np.float64)
    weights = np.exp(-0.5 * ((steps - seq_len) / sigma) ** 2)
    return weights / weights.sum()


def embed(units: np.ndarray, weights: np.ndarray, metric: Metric = "euclidean") -> np.ndarray:
    """Embed units (..., n) so that ||U|| = 1 and <U_a, U_b> is their weighted Pearson correlation; float32.

    A constant unit has no correlation. Under ``euclidean`` it becomes the zero vector (distance 0 to its like and 1 to
    all else, as in the authors' code); under ``one_minus_r`` it gets a coordinate of its own, so that 1 - r is
    0 to its like and 1 to all else. Hence shape (..., n) or (..., n + 1).
    """
    values = units.astype(np.float64, copy=False)
    centred = values - (values @ weights)[..., None]
    variance = (centred**2) @ weights
    # A constant unit leaves only rounding in `centred`; measured against its magnitude it is still constant.
    scale = np.abs(values).max(axis=-1)
    constant = variance <= (8 * np.finfo(np.float64).eps * scale) ** 2
    spread = np.sqrt(variance)
    embedded = centred / (spread[..., None] + 1e-12) * np.sqrt(weights)
    embedded[constant] = 0.0
    if metric == "one_minus_r":
        embedded = np.concatenate([embedded, constant[..., None].astype(np.float64)], axis=-1)
    return embedded.astype(np.float32)


def embed_channel(values: np.ndarray, seq_len: int, pred_len: int, sigma: float, metric: Metric) -> np.ndarray:
    """Embeddings (N, n) of all windows of one channel (T,)."""
    units = np.lib.stride_tricks.sliding_window_view(values, seq_len + pred_len)
    return embed(units, forecast_weights(seq_len, pred_len, sigma), metric)
