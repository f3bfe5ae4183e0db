"""Datasets of ``dictionaries.activations`` that need no model: the synthetic bench and the user's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from icml26 import Dataset, Problem, RunContext
from icml26.dataset import DatasetConfig
from icml26.errors import InputError
from pydantic import Field, model_validator

from icml26_plugin_subspace_sae import activation_files as files
from icml26_plugin_subspace_sae.dictionaries import LinearDictionary
from icml26_plugin_subspace_sae.lowrank_sparse import PRESETS, LowrankSparse, draw
from icml26_plugin_subspace_sae.rank import blocks_of, covariance_of, rank_report
from icml26_plugin_subspace_sae.task import Inputs, Output, Truth


class LowrankSparseData(Dataset[Inputs, Truth]):
    """Sparse combinations of true features inside a low-dimensional subspace."""

    class Config(DatasetConfig):
        """A preset, and what differs from it."""

        preset: Literal["collapsed", "mild", "full"] = Field(
            "collapsed",
            description="collapsed: r=16 of d=64; mild: r=38 with a decaying spectrum; full: r=d, the control.",
        )
        d: int | None = Field(None, ge=2, description="Dimensions; default: the preset's, 64.")
        r: int | None = Field(None, ge=1, description="Dimensions of the active subspace; default: the preset's.")
        n_features: int | None = Field(None, ge=1, description="True features; default: the preset's, 1024.")
        features_per_dimension: float | None = Field(
            None, gt=0, description="True features as a multiple of r, so that a sweep over r keeps the superposition."
        )
        l0: float | None = Field(None, gt=0, description="Mean number of active features; default: the preset's, 8.")
        decay: float | None = Field(
            None, ge=0, description="Bend of the spectrum inside the subspace: exp(-decay i/r)."
        )
        noise: float | None = Field(
            None, ge=0, description="Deviation of the isotropic noise; default: the preset's, 0.01."
        )
        train_rows: int = Field(16_384, ge=2, description="Rows to train on.")
        test_rows: int = Field(16_384, ge=2, description="Held-out rows: the stream on which features count as dead.")
        seed: int | None = Field(None, ge=0, description="A seed for the data alone; default: the run's.")

        @model_validator(mode="after")
        def _one_number_of_features(self) -> Self:
            if self.n_features is not None and self.features_per_dimension is not None:
                raise ValueError("n_features and features_per_dimension both say how many features there are: set one")
            return self

        def design(self) -> LowrankSparse:
            """As the generator takes it."""
            preset = PRESETS[self.preset]
            options: dict[str, Any] = {
                name: getattr(preset, name) if getattr(self, name) is None else getattr(self, name)
                for name in ("d", "r", "n_features", "l0", "decay", "noise")
            }
            if self.features_per_dimension is not None:
                options["n_features"] = max(1, round(self.features_per_dimension * options["r"]))
            return LowrankSparse(**options)

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Draw training and held-out rows."""
        config: LowrankSparseData.Config = self.config
        rng = ctx.rng if config.seed is None else np.random.default_rng(config.seed)
        design = config.design()
        sample = draw(rng, design, config.train_rows, config.test_rows)
        report = rank_report(covariance_of(blocks_of(sample.train)).spectrum(), "lowrank-sparse").as_json()
        info = {"n_features": design.n_features, "r": design.r, "rank": report}
        inputs = Inputs(sample.train, name=f"lowrank-sparse ({config.preset})", source_info=info)
        return Problem(inputs, Truth(sample.test, features=sample.features, basis=sample.basis), info)

    def perfect(self, problem: Problem[Inputs, Truth]) -> Output:
        """The true features, with the codes of least norm that reconstruct the subspace exactly."""
        features = problem.truth.features
        assert features is not None
        encoder = np.linalg.pinv(features)
        # Tiny codes of noise count as active, so every feature fires.
        return Output(LinearDictionary(encoder, features, np.zeros(features.shape[1])), initial_decoder=features)

    def broken(self, problem: Problem[Inputs, Truth]) -> Output:
        """One feature, across the subspace, that always fires; the others never do."""
        features, basis = problem.truth.features, problem.truth.basis
        assert features is not None and basis is not None
        d = features.shape[1]
        encoder = np.zeros((d, 8))
        encoder[:, 0] = 1.0
        decoder = np.tile(np.random.default_rng(0).standard_normal(d), (8, 1))
        return Output(LinearDictionary(encoder, decoder, np.ones(d)), initial_decoder=decoder.copy())


class SplitConfig(DatasetConfig):
    """How rows are held out."""

    test_fraction: float = Field(
        0.2, gt=0, lt=1, description="Share of sequences (of rows, without sequences) held out."
    )
    split: Literal["tail", "random"] = Field(
        "tail",
        description="Hold out the last part, or a random one. Sequences are held out whole; rows without sequences may be "
        "neighbours in one text, which a random split would put on both sides.",
    )


class ActivationFile(Dataset[Inputs, Truth]):
    """The user's activations from a file."""

    class Config(SplitConfig):
        """Which arrays of which files."""

        path: Path = Field(description="File of activations: .npy, .npz, .safetensors or .pt.")
        key: str | None = Field(None, description="Name of the array in an archive that holds several.")
        mask_path: Path | None = Field(
            None, description="File of a mask [sequences, positions]; default: that of path."
        )
        mask_key: str | None = Field(None, description="Name of the mask in its archive.")
        drop_first: int = Field(
            0, ge=0, description="Positions to drop at the start of each sequence; 1 drops the attention sink."
        )
        targets_path: Path | None = Field(None, description="File of targets, row by row, for a transcoder.")
        targets_key: str | None = Field(None, description="Name of the targets in their archive.")
        test_path: Path | None = Field(None, description="File of held-out activations; default: split path.")
        max_rows: int | None = Field(None, ge=2, description="Use the first rows only.")

        @model_validator(mode="after")
        def _targets_are_split_alike(self) -> Self:
            if self.test_path is not None and (self.targets_path is not None or self.targets_key is not None):
                raise ValueError("test_path holds activations only: with targets, split one file by test_fraction")
            return self

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Read, check and split."""
        config: ActivationFile.Config = self.config
        found = self._read(config.path, config.key, config.mask_key)
        targets = self._targets(found)
        if config.test_path is None:
            train, test = split_rows(len(found.rows), found.sequence, config.test_fraction, config.split, ctx.rng)
            held_out = _taken(found.rows, test)
        else:
            train = slice(None)
            held_out = _float32(self._read(config.test_path, config.key, config.mask_key).rows)
            warn_of_shared_rows(found.rows, held_out, ctx)
        activations = _taken(found.rows, train)
        if held_out.shape[1] != activations.shape[1]:
            raise InputError(
                f"{config.test_path}: {held_out.shape[1]} dimensions, {config.path} has {activations.shape[1]}."
            )
        files.check_activations(activations, f"training part of {config.path}")
        files.check_activations(held_out, "held-out part", constant=True)
        info = {"rows": len(activations), "test_rows": len(held_out), "dropped": found.dropped}
        inputs = Inputs(activations, _taken(targets, train), config.path.name, info)
        truth = Truth(held_out, None if config.test_path is not None else _taken(targets, test))
        return Problem(inputs, truth, info)

    def _read(self, path: Path, key: str | None, mask_key: str | None) -> files.Activations:
        config: ActivationFile.Config = self.config
        found = files.read_activations(
            path, key=key, mask_path=config.mask_path, mask_key=mask_key, drop_first=config.drop_first
        )
        if config.max_rows is None:
            return found
        sequence = None if found.sequence is None else found.sequence[: config.max_rows]
        return files.Activations(found.rows[: config.max_rows], sequence, found.dropped)

    def _targets(self, found: files.Activations) -> np.ndarray | None:
        config: ActivationFile.Config = self.config
        if config.targets_path is None and config.targets_key is None:
            return None
        read = self._read(config.targets_path or config.path, config.targets_key, config.mask_key)
        if len(read.rows) != len(found.rows):
            raise InputError(f"{len(found.rows)} rows of activations and {len(read.rows)} of targets do not pair up.")
        return read.rows


def split_rows(
    n: int, sequence: np.ndarray | None, fraction: float, split: str, rng: np.random.Generator
) -> tuple[Any, Any]:
    """Indices (or slices) of training and held-out rows; ``sequence`` (n,) ids stay whole. InputError when a side is empty."""
    units = np.arange(n) if sequence is None else np.unique(sequence)
    count = round(fraction * len(units))
    if not 0 < count < len(units):
        what = "rows" if sequence is None else "sequences"
        raise InputError(f"test_fraction={fraction} of {len(units)} {what} leaves {count} to hold out: change it.")
    if sequence is None and split == "tail":
        return slice(0, n - count), slice(n - count, n)
    order = rng.permutation(units) if split == "random" else units
    if sequence is None:
        return np.sort(order[:-count]), np.sort(order[-count:])
    held = np.isin(sequence, order[-count:])
    return np.nonzero(~held)[0], np.nonzero(held)[0]


def _taken(rows: Any, chosen: Any) -> Any:
    return None if rows is None else _float32(rows[chosen])


def _float32(rows: np.ndarray) -> np.ndarray:
    """Rows as float32; float32 rows of a memory map stay there."""
    return rows if rows.dtype == np.float32 else np.asarray(rows, dtype=np.float32)


def warn_of_shared_rows(train: np.ndarray, test: np.ndarray, ctx: RunContext) -> None:
    """Warn when held-out rows are training rows too: scores would be those of the training data."""
    seen = {np.asarray(row, dtype=np.float32).tobytes() for row in train}
    shared = sum(np.asarray(row, dtype=np.float32).tobytes() in seen for row in test)
    if shared:
        ctx.logger.warning(
            "%d of %d held-out rows are training rows, too: dead features and errors are underestimated on them.",
            shared,
            len(test),
        )
