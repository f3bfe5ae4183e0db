"""Baselines as methods of the task."""

from __future__ import annotations

from icml26 import RunContext
from icml26.errors import InputError

from icml26_plugin_timeguard.baselines import abl, fine_pruning, pdb, spectral
from icml26_plugin_timeguard.configs import AblConfig, FinePruningConfig, PdbConfig, SpectralConfig
from icml26_plugin_timeguard.methods import ForecastMethod, fixed_pool, open_session, threads_for
from icml26_plugin_timeguard.task import CleanWindows, Inputs, Output


def clean_windows(inputs: Inputs, name: str) -> CleanWindows:
    """The trusted windows; InputError when the dataset gives none."""
    if inputs.clean is None or len(inputs.clean.history) == 0:
        raise InputError(f"{name} needs a small set of trusted clean windows, and this dataset has none.")
    return inputs.clean


class Spectral(ForecastMethod):
    """Spectral Signatures."""

    class Config(SpectralConfig):
        """Options."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Train, remove outlying windows, train again."""
        config = self.config
        session = open_session(inputs, config.training(config.epochs), ctx)
        settings = spectral.SpectralSettings(config.poison_rate)
        with threads_for(session, ctx):
            forecaster, kept = spectral.spectral_signatures(session, settings, progress=ctx.progress, log=ctx.log)
        return Output(forecaster, fixed_pool(kept))


class FinePruning(ForecastMethod):
    """Fine-Pruning."""

    class Config(FinePruningConfig):
        """Options."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Train, prune, fine-tune on clean windows."""
        config = self.config
        clean = clean_windows(inputs, "fine-pruning")
        session = open_session(inputs, config.training(config.epochs), ctx)
        settings = fine_pruning.FinePruningSettings(
            config.tolerance, config.fine_tuning_epochs, config.fine_tuning_lr_factor
        )
        with threads_for(session, ctx):
            forecaster, pruned = fine_pruning.fine_pruning(session, clean, settings, progress=ctx.progress, log=ctx.log)
        return Output(forecaster, info={"pruned_units": pruned})


class Abl(ForecastMethod):
    """Anti-Backdoor Learning."""

    class Config(AblConfig):
        """Options."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Isolate low-loss windows, train on the rest, unlearn the isolated."""
        config = self.config
        session = open_session(inputs, config.training(config.epochs), ctx)
        settings = abl.AblSettings(
            config.flooring_epochs,
            config.floor_quantile,
            config.isolation,
            config.unlearn_epochs,
            config.unlearn_lr_factor,
        )
        with threads_for(session, ctx):
            forecaster, kept = abl.anti_backdoor_learning(session, settings, progress=ctx.progress, log=ctx.log)
        return Output(forecaster, fixed_pool(kept))


class Pdb(ForecastMethod):
    """Proactive Defensive Backdoor."""

    class Config(PdbConfig):
        """Options."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Train with a backdoor of the defender's own."""
        config = self.config
        clean = clean_windows(inputs, "pdb")
        if config.stamp_steps > inputs.seq_len:
            raise InputError(f"stamp_steps={config.stamp_steps} exceeds seq_len={inputs.seq_len}.")
        session = open_session(inputs, config.training(config.epochs), ctx)
        settings = pdb.PdbSettings(config.offset, config.stamp_steps, config.shift, config.weight)
        with threads_for(session, ctx):
            return Output(pdb.proactive_backdoor(session, clean, settings, progress=ctx.progress, log=ctx.log))
