"""What every defence starts from: checked data, windows, a seeded forecaster, and model selection on validation data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from icml26.errors import InputError
from torch import nn

from icml26_plugin_timeguard.fitted import FittedForecaster
from icml26_plugin_timeguard.forecasters import FORECASTERS, Build, build_seeded, factory
from icml26_plugin_timeguard.settings import Training, check_series
from icml26_plugin_timeguard.trainer import BACKCASTER, FORECASTER, Optimisation, Trainer, stream_seed
from icml26_plugin_timeguard.windows import Scaler, WindowSet, backcast_windows, forecast_windows, n_windows


@contextmanager
def threads_for_width(width: int, threads: int) -> Iterator[None]:
    """Let torch use ``threads`` threads for inputs of ``width`` values or more than 1,024, else one; restored afterwards.

    A step of a narrow network takes less time than two threads need to agree, and far less on a busy machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads if width > 1024 else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Session:
    """Checked training (and validation) series with everything that turns them into trainers."""

    train: np.ndarray
    val: np.ndarray | None
    seq_len: int
    pred_len: int
    training: Training
    build: Build
    scaler: Scaler
    seed: int
    device: str
    custom: bool = False

    @classmethod
    def open(
        cls,
        train: np.ndarray,
        val: np.ndarray | None,
        seq_len: int,
        pred_len: int,
        training: Training,
        *,
        seed: int,
        device: str = "cpu",
        build: Build | None = None,
    ) -> Session:
        """Check the data and options; ``build`` overrides the named forecaster with the user's own factory.

        Raises InputError before any training for bad series, lengths, or an unknown forecaster.
        """
        if seq_len < 1 or pred_len < 1:
            raise InputError(f"seq_len={seq_len} and pred_len={pred_len} must be at least 1.")
        train = check_series(train, "the training part")
        if n_windows(len(train), seq_len, pred_len) < 1:
            raise InputError(
                f"The training part has {len(train)} steps, fewer than seq_len + pred_len = {seq_len + pred_len}."
            )
        if (train == train[0]).all():
            raise InputError("Every channel of the training part is constant: there is nothing to forecast.")
        if val is not None:
            val = check_series(val, "the validation part", train.shape[1])
        if training.model_selection == "val" and (val is None or n_windows(len(val), seq_len, pred_len) < 1):
            raise InputError(
                "model_selection='val' needs a validation part of at least "
                f"seq_len + pred_len = {seq_len + pred_len} steps; give one or use model_selection='last'."
            )
        if build is None and training.forecaster not in FORECASTERS:
            raise InputError(
                f"forecaster={training.forecaster!r} is unknown; built in: {', '.join(sorted(FORECASTERS))}."
            )
        scaler = Scaler.fit(train, training.normalize)
        chosen = build or factory(training.forecaster, training.forecaster_options)
        return cls(train, val, seq_len, pred_len, training, chosen, scaler, seed, device, build is not None)

    @property
    def n_windows(self) -> int:
        """Number N of training windows."""
        return n_windows(len(self.train), self.seq_len, self.pred_len)

    @property
    def dtype(self) -> torch.dtype:
        """Floating type of the network and its data."""
        return torch.float64 if self.training.dtype == "float64" else torch.float32

    @property
    def optimisation(self) -> Optimisation:
        """How epochs are run."""
        return Optimisation(lr=self.training.lr, batch_size=self.training.batch_size, amp=self.training.amp)

    def windows(self, series: np.ndarray) -> WindowSet:
        """Forecasting windows of a series, scaled as the training part."""
        return forecast_windows(series, self.scaler, self.seq_len, self.pred_len, device=self.device, dtype=self.dtype)

    def window_set(self, history: np.ndarray, future: np.ndarray) -> WindowSet:
        """Given windows (n, L_in, C) and (n, L_out, C), physical, scaled as the training part."""
        like = self.windows(self.train)

        def tensor(values: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(self.dtype).to(self.device)

        return WindowSet(tensor(self.scaler.normalize(history)), tensor(future), like.mean, like.std)

    def module(self, *, stream: int = FORECASTER) -> nn.Module:
        """A fresh network with this session's initial weights; the backcaster has swapped lengths."""
        lengths = (self.seq_len, self.pred_len) if stream == FORECASTER else (self.pred_len, self.seq_len)
        seed = stream_seed(self.seed, stream, 0)
        try:
            module = build_seeded(self.build, *lengths, self.train.shape[1], seed)
        except TypeError as error:
            raise InputError(f"The forecaster cannot be built with these options: {error}.") from None
        return module.to(device=self.device, dtype=self.dtype)

    def trainer(self, series: np.ndarray | None = None) -> Trainer:
        """A trainer of a fresh forecaster on ``series`` (default: the training part)."""
        windows = self.windows(self.train if series is None else series)
        return Trainer(self.module(), windows, self.optimisation, seed=self.seed)

    def backcaster(self) -> Trainer:
        """A trainer that predicts time-flipped histories from time-flipped futures."""
        windows = backcast_windows(
            self.train, self.scaler, self.seq_len, self.pred_len, device=self.device, dtype=self.dtype
        )
        return Trainer(self.module(stream=BACKCASTER), windows, self.optimisation, seed=self.seed, stream=BACKCASTER)

    def keeper(self, trainer: Trainer, validation: WindowSet | None = None) -> Keeper:
        """Model selection for a trainer, as the training settings say.

        ``validation`` replaces the validation part's windows, for forecasters that are deployed on changed inputs.
        """
        if self.training.model_selection == "last":
            return Keeper(trainer, None)
        if validation is None and self.val is not None:
            validation = self.windows(self.val)
        return Keeper(trainer, validation)

    def fitted(self, module: nn.Module) -> FittedForecaster:
        """The network as a forecaster of physical values."""
        return FittedForecaster(
            module.eval(),
            self.scaler,
            self.seq_len,
            self.pred_len,
            self.train.shape[1],
            forecaster=None if self.custom else self.training.forecaster,
            forecaster_options={} if self.custom else dict(self.training.forecaster_options),
        )


class Keeper:
    """Keeps the weights of the epoch with the lowest MAE on ``validation``, or without it those of the last epoch.

    It sees the validation part only, which holds no trigger that we know of: nothing of the test enters.
    """

    def __init__(self, trainer: Trainer, validation: WindowSet | None) -> None:
        self.trainer = trainer
        self._windows = validation
        self.best = float("inf")
        self.best_epoch = 0
        self._state: dict[str, torch.Tensor] | None = None

    def observe(self) -> float | None:
        """Judge the current weights; returns the validation MAE, None under ``last``."""
        if self._windows is None:
            self.best_epoch = self.trainer.epochs_done
            return None
        score = window_mae(self.trainer.forecast, self.trainer.model, self._windows)
        if score < self.best:
            self.best, self.best_epoch = score, self.trainer.epochs_done
            self._state = {name: value.detach().clone() for name, value in self.trainer.model.state_dict().items()}
        return score

    def finish(self) -> nn.Module:
        """The chosen network."""
        if self._state is not None:
            self.trainer.model.load_state_dict(self._state)
        return self.trainer.model

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"best": self.best, "best_epoch": self.best_epoch, "state": self._state}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""
        self.best, self.best_epoch, self._state = state["best"], state["best_epoch"], state["state"]


@torch.no_grad()
def window_mae(forecast: Callable[[torch.Tensor], torch.Tensor], model: nn.Module, windows: WindowSet) -> float:
    """Mean absolute error over all windows, physical units, in eval mode."""
    model.eval()
    total, count = 0.0, 0
    for index in torch.arange(len(windows), device=windows.history.device).split(1024):
        error = (forecast(windows.history[index]) - windows.future[index]).abs()
        total += float(error.mean()) * len(index)
        count += len(index)
    return total / count
