"""Methods of ``forecasting.backdoor-defense``: thin adapters over the native API."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from icml26 import Method, Problem, RunContext

from icml26_plugin_timeguard import storage
from icml26_plugin_timeguard.checkpoint import Checkpoint, check_writable
from icml26_plugin_timeguard.configs import LossPoolConfig, PlainConfig, TimeGuardConfig, WindowConfig
from icml26_plugin_timeguard.session import Session, threads_for_width
from icml26_plugin_timeguard.settings import Training
from icml26_plugin_timeguard.task import Inputs, Output, Pool, Truth
from icml26_plugin_timeguard.timeguard import guard, train_plainly


def open_session(inputs: Inputs, training: Training, ctx: RunContext) -> Session:
    """The session of a run. Every method of one run seed gets the same initial weights and batches."""
    return Session.open(
        inputs.train, inputs.val, inputs.seq_len, inputs.pred_len, training, seed=ctx.torch_seed(), device=ctx.device
    )


def threads_for(session: Session, ctx: RunContext) -> AbstractContextManager[None]:
    """Threads that suit the network: all of the run's for wide inputs, one for narrow ones."""
    return threads_for_width(session.seq_len * session.train.shape[1], ctx.threads)


def fixed_pool(kept: np.ndarray) -> Pool:
    """A pool (C, N) that was chosen once, as the table and the figures take it."""
    return Pool(kept, kept, (~kept).astype(np.int32), 1)


class ForecastMethod(Method[Inputs, Output]):
    """What all methods share: figures, and storage without pickle."""

    def visualize(self, problem: Problem[Inputs, Truth], output: Output, ctx: RunContext) -> None:
        """Draw the forecasts and, for methods that select units, what was thrown out; list the latter as CSV."""
        from icml26_plugin_timeguard import figures, suspicious

        figures.forecast_figure(problem, output, ctx.artifact("forecast.png"))
        if output.pool is not None:
            figures.pool_figure(problem, output.pool, ctx.artifact("thrown-out-units.png"))
            suspicious.write_csv(problem.inputs, output.pool, ctx.artifact("suspicious-units.csv"))

    def save(self, output: Output, folder: Path) -> None:
        """Write the forecaster (safetensors and JSON) and the pool (npz)."""
        storage.save_output(output, folder)

    @classmethod
    def load(cls, folder: Path) -> Output:
        """Read what :meth:`save` wrote."""
        return storage.load_output(folder)


class PlainTraining(ForecastMethod):
    """Plain training on the untrusted series."""

    class Config(PlainConfig):
        """Options of plain training."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Train on everything."""
        session = open_session(inputs, self.config.training(self.config.epochs), ctx)
        with threads_for(session, ctx):
            return Output(train_plainly(session, progress=ctx.progress, log=ctx.log))


class OracleClean(ForecastMethod):
    """Plain training on the series as it was before the attack: the ceiling of every defence."""

    class Config(PlainConfig):
        """Options of plain training."""

    def run(self, inputs: Inputs, ctx: RunContext, truth: Truth) -> Output:  # type: ignore[override]
        """Train on the clean training part, scaled as the untrusted one."""
        session = open_session(inputs, self.config.training(self.config.epochs), ctx)
        assert truth.clean_train is not None
        with threads_for(session, ctx):
            return Output(train_plainly(session, truth.clean_train, progress=ctx.progress, log=ctx.log))


class OracleMask(ForecastMethod):
    """Plain training on the untrusted series with every poisoned unit masked: what a perfect pool would give."""

    class Config(PlainConfig):
        """Options of plain training."""

    def run(self, inputs: Inputs, ctx: RunContext, truth: Truth) -> Output:  # type: ignore[override]
        """Train on the units that the attacker did not touch."""
        session = open_session(inputs, self.config.training(self.config.epochs), ctx)
        assert truth.attack is not None
        clean = ~truth.attack.poisoned
        with threads_for(session, ctx):
            return Output(train_plainly(session, mask=clean, progress=ctx.progress, log=ctx.log), fixed_pool(clean))


class TimeGuard(ForecastMethod):
    """Channel-wise pool training."""

    class Config(TimeGuardConfig):
        """TimeGuard's options."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Train on the units that the pool trusts."""
        config = self.config
        session = open_session(inputs, config.training(config.warmup_epochs + config.rounds), ctx)
        checkpoint = None if config.checkpoint is None else Checkpoint(config.checkpoint)
        if config.export_mask is not None:
            check_writable(config.export_mask)
        with threads_for(session, ctx):
            result = guard(session, config.pool(), progress=ctx.progress, log=ctx.log, checkpoint=checkpoint)
        for warning in result.warnings:
            ctx.logger.warning(warning)
        pool = Pool(result.initial_pool, result.pool, result.rejections, config.rounds)
        if config.export_mask is not None:
            storage.export_mask(inputs, pool, config.export_mask)
        info: dict[str, Any] = {"selected_epoch": result.selected_epoch, "warnings": list(result.warnings)}
        return Output(result.forecaster, pool, info)


class LossPool(TimeGuard):
    """Pure small-loss pools per channel."""

    class Config(LossPoolConfig):
        """TimeGuard's options with the distance criteria off."""


class WindowPool(TimeGuard):
    """Pools of whole windows."""

    class Config(WindowConfig):
        """TimeGuard's options with window-level criteria."""
