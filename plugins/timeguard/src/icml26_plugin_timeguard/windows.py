"""Stride-1 windows of a training series and the scaler that normalises them.

A *sample unit* is a pair (window t, channel c); masks over units are boolean arrays of shape (C, N).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from icml26.errors import InputError

Normalize = Literal["global", "per_channel"]


@dataclass(frozen=True)
class Scaler:
    """Affine normalisation x_n = (x - mean) / std; ``mean`` and ``std`` have shape (1,) or (C,), physical units."""

    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def fit(cls, values: np.ndarray, how: Normalize = "global") -> Scaler:
        """Fit on a training series (T, C): one scalar for all (the paper's choice) or one pair a channel.

        Raises InputError for a constant series (or channel), which cannot be scaled.
        """
        if how == "global":
            mean, std = values.mean(keepdims=True).reshape(1), values.std(keepdims=True).reshape(1)
            if not std[0] > 0:
                raise InputError(
                    "The training series is constant (standard deviation 0): there is nothing to forecast."
                )
        else:
            mean, std = values.mean(axis=0), values.std(axis=0)
            if not (std > 0).all():
                flat = np.flatnonzero(~(std > 0)).tolist()
                raise InputError(
                    f"Channels {flat} are constant in the training part, so normalize='per_channel' cannot scale them: "
                    "leave them out or use normalize='global'."
                )
        return cls(mean.astype(np.float64), std.astype(np.float64))

    def normalize(self, values: np.ndarray) -> np.ndarray:
        """Physical (..., C) to normalised."""
        return (values - self.mean) / self.std


def n_windows(n_steps: int, seq_len: int, pred_len: int) -> int:
    """Number of stride-1 windows N = T - L_in - L_out + 1 (0 when the series is too short)."""
    return max(0, n_steps - seq_len - pred_len + 1)


def sliding(values: np.ndarray, length: int) -> np.ndarray:
    """Read-only view (T - length + 1, length, C) of all windows of a series (T, C)."""
    return np.lib.stride_tricks.sliding_window_view(values, length, axis=0).transpose(0, 2, 1)


@dataclass(frozen=True)
class WindowSet:
    """All (history, future) pairs of a series, indexed by window, without copying the series.

    ``history`` (N, L_in, C) and ``future`` (N, L_out, C) are strided views; ``history`` is normalised,
    ``future`` is physical (losses are in physical units).
    """

    history: torch.Tensor
    future: torch.Tensor
    mean: torch.Tensor
    std: torch.Tensor

    def __len__(self) -> int:
        return self.history.shape[0]

    @property
    def n_channels(self) -> int:
        return self.history.shape[2]


def _unfold(series: torch.Tensor, length: int) -> torch.Tensor:
    return series.unfold(0, length, 1).transpose(1, 2)


def _tensor(values: np.ndarray, device: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(dtype).to(device)


def forecast_windows(
    values: np.ndarray,
    scaler: Scaler,
    seq_len: int,
    pred_len: int,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> WindowSet:
    """Windows of a physical series (T, C) for forecasting: normalised history to physical future."""
    n = n_windows(len(values), seq_len, pred_len)
    normalised = _tensor(scaler.normalize(values), device, dtype)
    physical = _tensor(values, device, dtype)
    return WindowSet(
        history=_unfold(normalised, seq_len)[:n],
        future=_unfold(physical, pred_len)[seq_len : seq_len + n],
        mean=_tensor(scaler.mean, device, dtype),
        std=_tensor(scaler.std, device, dtype),
    )


def backcast_windows(
    values: np.ndarray,
    scaler: Scaler,
    seq_len: int,
    pred_len: int,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> WindowSet:
    """Windows for the backcaster: the time-flipped future predicts the time-flipped history (Stage I, RCF).

    Window t here is window t of :func:`forecast_windows`: flipping the whole series turns futures into histories,
    and reversing the window axis restores the order.
    """
    flipped = forecast_windows(values[::-1], scaler, pred_len, seq_len, device=device, dtype=dtype)
    return WindowSet(flipped.history.flip(0), flipped.future.flip(0), flipped.mean, flipped.std)
