"""The trained methods of ``dictionaries.activations``: thin adapters over :func:`.train`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from icml26 import Method, Problem, RunContext

from icml26_plugin_subspace_sae import configs, storage
from icml26_plugin_subspace_sae.api import describe, train
from icml26_plugin_subspace_sae.fitted import FittedDictionary
from icml26_plugin_subspace_sae.task import Inputs, Output, Truth


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use ``count`` threads; restored afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class TrainedSae(Method[Inputs, Output]):
    """What all trained methods share: everything but their defaults."""

    class Config(configs.SaeConfig):
        """All options."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Train, and export if asked to."""
        config = self.config
        settings = config.settings()
        with torch_threads(ctx.threads):
            trained = train(
                inputs.activations,
                settings,
                targets=inputs.targets,
                seed=ctx.torch_seed(),
                device=ctx.device,
                checkpoint=config.checkpoint,
                checkpoint_every=config.checkpoint_every,
                progress=ctx.progress,
                log=ctx.log,
            )
        if config.export_saelens is not None:
            from icml26_plugin_subspace_sae.saelens import save_saelens

            save_saelens(trained.sae, config.export_saelens, source=inputs.source_info)
        info = describe(trained, settings)
        for doubt in info["warnings"]:
            ctx.logger.warning(doubt)
        sae = FittedDictionary(trained.sae.to("cpu"))
        return Output(sae, info, trained.history, trained.initial_decoder)

    def visualize(self, problem: Problem[Inputs, Truth], output: Output, ctx: RunContext) -> None:
        """Draw the spectrum of the data, and what became of the features."""
        from icml26_plugin_subspace_sae import figures

        figures.draw_run(problem, output, ctx)

    def save(self, output: Output, folder: Path) -> None:
        """Write the dictionary (safetensors and JSON) and the record of its training (npz)."""
        storage.save_output(output, folder)

    @classmethod
    def load(cls, folder: Path) -> Output:
        """Read what :meth:`save` wrote."""
        return storage.load_output(folder)


class SubspaceSae(TrainedSae):
    """Active Subspace Initialization with the sparse-aware Adam."""


class TopKSae(TrainedSae):
    """A top-k autoencoder, random start, Adam."""

    class Config(configs.TopKConfig):
        """All options, with the baseline's defaults."""


class TopKAuxK(TrainedSae):
    """The same with AuxK."""

    class Config(configs.AuxKConfig):
        """All options, with the baseline's defaults."""


class BatchTopKSae(TrainedSae):
    """A batch-top-k autoencoder."""

    class Config(configs.BatchTopKConfig):
        """All options, with the baseline's defaults."""


class ReluL1(TrainedSae):
    """A ReLU autoencoder with an L1 penalty."""

    class Config(configs.ReluConfig):
        """All options, with the baseline's defaults."""


class JumpReluSae(TrainedSae):
    """A JumpReLU autoencoder."""

    class Config(configs.JumpReluConfig):
        """All options, with the baseline's defaults."""


class AsiOnly(TrainedSae):
    """Active Subspace Initialization with Adam."""

    class Config(configs.AsiConfig):
        """All options, with the ablation's defaults."""


class SparseAdamOnly(TrainedSae):
    """The sparse-aware Adam from a random start."""

    class Config(configs.SparseAdamConfig):
        """All options, with the ablation's defaults."""
