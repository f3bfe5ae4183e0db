"""Baselines without gradient descent, as methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from icml26 import Method, Problem, RunContext
from icml26.errors import InputError
from icml26.method import MethodConfig
from pydantic import Field

from icml26_plugin_subspace_sae import dictionaries
from icml26_plugin_subspace_sae.dictionaries import LinearDictionary, PursuitDictionary
from icml26_plugin_subspace_sae.rank import blocks_of, covariance_of
from icml26_plugin_subspace_sae.task import ActivationSource, Inputs, Output, Truth

KINDS: dict[str, type[LinearDictionary] | type[PursuitDictionary]] = {
    "linear": LinearDictionary,
    "pursuit": PursuitDictionary,
}


def rows_of(inputs: Inputs, limit: int | None = None) -> np.ndarray:
    """Training rows (n, d) float32 in memory, at most the first ``limit``; these baselines reconstruct and do not transcode."""
    if inputs.targets is not None:
        raise InputError("this baseline reconstructs activations; it has no form for other targets (transcoders).")
    source = inputs.activations
    if not isinstance(source, np.ndarray) and isinstance(source, ActivationSource):
        blocks: list[np.ndarray] = []
        for block in source.blocks(8192):
            blocks.append(block)
            if limit is not None and sum(map(len, blocks)) >= limit:
                break
        source = np.concatenate(blocks)
    return np.asarray(source[:limit], dtype=np.float32)


class StoredMethod(Method[Inputs, Output]):
    """Pictures and storage of these dictionaries, without pickle."""

    def visualize(self, problem: Problem[Inputs, Truth], output: Output, ctx: RunContext) -> None:
        """Draw firing rates, subspace shares and the spectrum of the data."""
        from icml26_plugin_subspace_sae.figures import draw_run

        draw_run(problem, output, ctx)

    def save(self, output: Output, folder: Path) -> None:
        """Write arrays (npz) and the rest (JSON)."""
        sae: Any = output.sae
        kind = next(name for name, cls in KINDS.items() if isinstance(sae, cls))
        names = ("encoder", "decoder", "bias") if kind == "linear" else ("decoder", "bias")
        np.savez(folder / "dictionary.npz", **{name: getattr(sae, name) for name in names})
        (folder / "dictionary.json").write_text(
            json.dumps({"kind": kind, "k": sae.k, "info": output.info}), encoding="utf-8"
        )

    @classmethod
    def load(cls, folder: Path) -> Output:
        """Read what :meth:`save` wrote."""
        described = json.loads((folder / "dictionary.json").read_text(encoding="utf-8"))
        with np.load(folder / "dictionary.npz", allow_pickle=False) as arrays:
            sae: Any = KINDS[described["kind"]](**dict(arrays), k=described["k"])
        return Output(sae, described["info"])


class PcaK(StoredMethod):
    """The top principal directions with signed, dense codes."""

    class Config(MethodConfig):
        """How many directions."""

        k: int = Field(
            50, ge=1, description="Principal directions: as many numbers a row as the SAE has active features."
        )

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Stream the covariance and decompose it."""
        if inputs.targets is not None:
            rows_of(inputs, 0)
        source = inputs.activations
        blocks = blocks_of(source) if isinstance(source, np.ndarray) else source.blocks(8192)
        spectrum = covariance_of(blocks, inputs.name).spectrum()
        return Output(dictionaries.principal_dictionary(spectrum, self.config.k))


class SizedConfig(MethodConfig):
    """The size of a dictionary."""

    expansion: float = Field(32.0, gt=0, description="Features m as a multiple of the width d.")
    k: int = Field(50, ge=1, description="Active features a row.")

    def features(self, width: int) -> int:
        """m for rows of ``width`` dimensions."""
        return max(1, round(self.expansion * width))


class RandomDictionary(StoredMethod):
    """A frozen random decoder with top-k correlations."""

    class Config(SizedConfig):
        """Size, and rows for the gain."""

        fit_rows: int = Field(4096, ge=2, description="Rows on which mean and gain are fitted.")

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Draw atoms and fit the gain."""
        rows = rows_of(inputs, self.config.fit_rows)
        m = self.config.features(rows.shape[1])
        return Output(dictionaries.random_dictionary(ctx.rng, rows, m, self.config.k))


class MiniBatchDictionary(StoredMethod):
    """scikit-learn's online dictionary learning, coded by orthogonal matching pursuit."""

    class Config(SizedConfig):
        """Options of MiniBatchDictionaryLearning."""

        alpha: float = Field(0.5, gt=0, description="Weight of the L1 penalty while atoms are learnt.")
        batch_size: int = Field(256, ge=1, description="Rows in a step.")
        max_iter: int = Field(3, ge=1, description="Passes over the rows.")

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Learn atoms."""
        config, rows = self.config, rows_of(inputs)
        learned = dictionaries.learned_dictionary(
            rows,
            config.features(rows.shape[1]),
            config.k,
            alpha=config.alpha,
            batch_size=config.batch_size,
            max_iter=config.max_iter,
            seed=ctx.torch_seed() % 2**32,
        )
        return Output(learned)
