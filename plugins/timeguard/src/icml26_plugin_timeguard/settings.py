"""Every hyper-parameter of the defence and of training, with the paper's defaults, and the checks that precede training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from icml26.errors import InputError

from icml26_plugin_timeguard.criteria import quantile_count
from icml26_plugin_timeguard.embedding import Metric
from icml26_plugin_timeguard.neighbours import Fallback
from icml26_plugin_timeguard.windows import Normalize, n_windows

T = TypeVar("T")
Selection = Literal["val", "last"]
Stage2 = Literal["drls", "loss", "fixed"]


class Progress(Protocol):
    """Wraps an iterable and reports how far it is."""

    def __call__(self, iterable: Iterable[T], label: str = "", total: int | None = None) -> Iterator[T]: ...


class Log(Protocol):
    """Takes one point of a curve."""

    def __call__(self, name: str, value: float, step: int | None = None) -> None: ...


def silent(iterable: Iterable[T], label: str = "", total: int | None = None) -> Iterator[T]:
    """Progress that shows nothing."""
    yield from iterable


def forget(name: str, value: float, step: int | None = None) -> None:
    """A log that keeps nothing."""


@dataclass(frozen=True)
class Training:
    """How a forecaster is trained, whatever the defence.

    ``epochs`` counts all epochs of the forecaster (T_1 + T_2 for TimeGuard); ``forecaster`` names a built-in network with
    ``forecaster_options``. ``model_selection``: ``val`` keeps the epoch with the lowest MAE on the validation
    part, ``last`` the last epoch; test data and triggers are never looked at.
    """

    forecaster: str = "mlp"
    forecaster_options: dict[str, Any] = field(default_factory=dict)
    lr: float = 1e-4
    batch_size: int = 64
    epochs: int = 100
    normalize: Normalize = "global"
    model_selection: Selection = "val"
    dtype: Literal["float32", "float64"] = "float32"
    amp: bool = False


@dataclass(frozen=True)
class PoolSettings:
    """The paper's hyper-parameters. Symbols: alpha, beta, K, K_max, pi, sigma, T_b, T_1, T_2.

    ``use_rcf``, ``use_ndf``, ``stage2`` and ``unit`` are the ablations: ``stage2="loss"`` drops the distance gate, ``"fixed"``
    keeps the Stage I pool, ``unit="window"`` averages every criterion over channels and selects whole windows.
    """

    alpha: float = 0.2
    beta: float = 0.5
    k: int = 20
    k_max: int = 64
    pi: float = 1.25
    sigma: float = 2.0
    backcast_epochs: int = 10
    warmup_epochs: int = 10
    rounds: int = 90
    lr_stage2_factor: float = 1.0
    reset_optimizer: bool = True
    metric: Metric = "euclidean"
    fallback: Fallback = "exact"
    use_rcf: bool = True
    use_ndf: bool = True
    stage2: Stage2 = "drls"
    unit: Literal["channel", "window"] = "channel"
    max_graph_mb: float = 2048.0

    def check(self, n_steps: int, seq_len: int, pred_len: int) -> None:
        """Raise InputError naming the option that does not fit a training part of ``n_steps`` steps."""
        if not 0 < self.alpha <= self.beta <= 1:
            raise InputError(f"alpha={self.alpha} and beta={self.beta} must satisfy 0 < alpha <= beta <= 1.")
        if self.pi < 1:
            raise InputError(f"pi={self.pi} must be at least 1: the gate keeps pi * gamma of the units to choose from.")
        if self.k_max < self.k:
            raise InputError(f"k_max={self.k_max} must be at least k={self.k}.")
        needed = seq_len + pred_len + self.k + 1
        if n_steps < needed:
            raise InputError(
                f"The training part has {n_steps} steps; seq_len={seq_len}, pred_len={pred_len} and k={self.k} need {needed}."
            )
        n = n_windows(n_steps, seq_len, pred_len)
        if self.k >= n:
            raise InputError(f"k={self.k} must be below the number of training windows, {n}.")
        if quantile_count(n, self.alpha) < 1:
            raise InputError(f"alpha={self.alpha} of {n} training windows selects none of them: raise alpha.")


def check_series(values: np.ndarray, name: str, n_channels: int | None = None) -> np.ndarray:
    """``values`` as float64 (T, C); InputError for another shape, text, NaN or infinity, naming channel and step."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not numeric: {error}.") from None
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"{name} must have shape (steps, channels), not {array.shape}.")
    if n_channels is not None and array.shape[1] != n_channels:
        raise InputError(f"{name} has {array.shape[1]} channels, the training part has {n_channels}.")
    bad = ~np.isfinite(array)
    if bad.any():
        step, channel = (int(i[0]) for i in np.nonzero(bad))
        raise InputError(
            f"{name} holds {int(bad.sum())} values that are not finite, the first in channel {channel} at step {step}: "
            "fill the gaps first (option impute of csv-series) or leave the channel out."
        )
    return array
