"""The native API: fit on an untrusted array, forecast, look at what was not trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from icml26.errors import InputError

from icml26_plugin_timeguard.checkpoint import Checkpoint
from icml26_plugin_timeguard.fitted import FittedForecaster
from icml26_plugin_timeguard.forecasters import Build
from icml26_plugin_timeguard.session import Session
from icml26_plugin_timeguard.settings import Log, PoolSettings, Progress, Training, forget, silent
from icml26_plugin_timeguard.timeguard import guard


class TimeGuardTrainer:
    """Train a forecaster on an untrusted series (T, C) with TimeGuard.

    ``build(seq_len, pred_len, channels) -> nn.Module`` mapping (B, L_in, C) to (B, L_out, C) on normalised values replaces the
    named ``forecaster``. All fields of :class:`~.settings.PoolSettings` and :class:`~.settings.Training` are keyword options with
    the paper's defaults; for a few thousand steps take ``TimeGuardTrainer.small()``.

    After :meth:`fit`: ``forecaster_``, and the boolean masks ``pool_`` and ``initial_pool_`` (C, N) of trusted units, N windows.
    """

    def __init__(
        self,
        seq_len: int = 12,
        pred_len: int = 12,
        *,
        build: Build | None = None,
        seed: int = 0,
        device: str = "cpu",
        **options: Any,
    ) -> None:
        self.seq_len, self.pred_len, self.build, self.seed, self.device = seq_len, pred_len, build, seed, device
        self.options = options

    @classmethod
    def small(cls, seq_len: int = 12, pred_len: int = 12, **options: Any) -> Self:
        """With the profile for short series: it trains to the end and keeps 80 % of the units."""
        from icml26_plugin_timeguard.plugin import SMALL_POOL

        return cls(seq_len, pred_len, **{**SMALL_POOL, **options})

    def _settings(self) -> tuple[PoolSettings, Training]:
        pool = {f.name for f in fields(PoolSettings)}
        training = {f.name for f in fields(Training)} - {"epochs"}
        unknown = sorted(set(self.options) - pool - training)
        if unknown:
            raise InputError(f"Unknown options {', '.join(unknown)}; known: {', '.join(sorted(pool | training))}.")
        settings = PoolSettings(**{name: value for name, value in self.options.items() if name in pool})
        rest = {name: value for name, value in self.options.items() if name in training}
        return settings, Training(epochs=settings.warmup_epochs + settings.rounds, **rest)

    def fit(
        self,
        train: np.ndarray,
        val: np.ndarray | None = None,
        *,
        checkpoint: Path | str | None = None,
        progress: Progress = silent,
        log: Log = forget,
    ) -> Self:
        """Train on ``train`` (T, C), physical units; ``val`` (T_val, C) serves ``model_selection="val"``.

        ``checkpoint`` names a file that each round is written to and, when it exists, resumed from. Raises InputError for data
        or options that cannot work, before training.
        """
        settings, training = self._settings()
        session = Session.open(
            train, val, self.seq_len, self.pred_len, training, seed=self.seed, device=self.device, build=self.build
        )
        store = None if checkpoint is None else Checkpoint(Path(checkpoint))
        result = guard(session, settings, progress=progress, log=log, checkpoint=store)
        self.forecaster_: FittedForecaster = result.forecaster
        self.pool_, self.initial_pool_ = result.pool, result.initial_pool
        self.rejections_, self.warnings_ = result.rejections, result.warnings
        return self

    def predict(self, history: np.ndarray) -> np.ndarray:
        """Forecasts (n, L_out, C) of histories (n, L_in, C), physical units."""
        return self.forecaster_.predict(history)

    def suspicious_units(self, channels: Sequence[str] | None = None) -> list[tuple[str | int, int, int]]:
        """(channel, first step, rounds rejected) of the units outside the final pool, most often rejected first."""
        found = np.argwhere(~self.pool_)
        counts = self.rejections_[found[:, 0], found[:, 1]]
        order = np.lexsort((found[:, 1], found[:, 0], -counts))
        names: Sequence[str | int] = range(len(self.pool_)) if channels is None else channels
        return [(names[int(c)], int(t), int(n)) for (c, t), n in zip(found[order], counts[order], strict=True)]
