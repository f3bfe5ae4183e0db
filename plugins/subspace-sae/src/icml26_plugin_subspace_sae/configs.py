"""Configs of the trained methods: pydantic mirrors of :mod:`.settings`, one description and bound for each option."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from icml26.method import MethodConfig
from pydantic import BeforeValidator, Field, model_validator

from icml26_plugin_subspace_sae.settings import (
    Dictionary,
    Initialisation,
    Optimisation,
    Revival,
    Sparsity,
    TrainingSettings,
)


def _text(value: Any) -> Any:
    """Numbers in TOML are fine, too."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


_PARTS: dict[str, Any] = {
    "dictionary": Dictionary,
    "initialisation": Initialisation,
    "optimisation": Optimisation,
    "sparsity": Sparsity,
    "revival": Revival,
}
Length = Annotated[float, Field(ge=0)]
DirectionCount = Annotated[str, BeforeValidator(_text)]


class SaeConfig(MethodConfig):
    """What all trained dictionaries share; defaults are the paper's."""

    n_features: int | None = Field(None, ge=1, description="Features m of the dictionary; default: expansion times d.")
    expansion: int = Field(32, ge=1, description="Features as a multiple of the width, when n_features is not set.")
    activation: Literal["topk", "batchtopk", "relu", "jumprelu"] = Field(
        "topk",
        description="Activation: the k strongest of a row or of a batch, all positive, or all above a threshold.",
    )
    k: int = Field(50, ge=1, description="Active features a row (topk), or a row on average (batchtopk).")
    gate_by_decoder_norm: bool = Field(
        True, description="Select by pre-activation times decoder norm, so that rescaling a feature changes nothing."
    )
    normalisation: Literal["dataset", "token", "batch", "none"] = Field(
        "dataset",
        description="Bring rows to norm sqrt(d): on the mean of the data set, one by one, batch by batch, or not.",
    )
    subspace: Literal["init", "hard", "none"] = Field(
        "init",
        description="Active subspace: features start in it (the paper's), are kept in it all along, or ignore it.",
    )
    q: DirectionCount = Field(
        "auto",
        description="Directions of the active subspace: a number, '0.5d' of the width, '99%' of the variance, or 'auto' for "
        "the effective rank.",
    )
    bias: Literal["mean", "geometric-median", "zero"] = Field("mean", description="Decoder bias at the start.")
    norm_search: bool = Field(True, description="Search the common norm of decoder rows with the least initial loss.")
    tied: bool = Field(True, description="Start the encoder as the decoder's transpose.")
    centre: bool = Field(True, description="Start with encoder biases that make mean pre-activations 0.")
    init_rows: int | None = Field(
        None, ge=2, description="Rows that initialisation looks at; default: ten a dimension, or eight batches."
    )
    optimizer: Literal["sparseadam", "adam"] = Field(
        "sparseadam",
        description="Adam that moves a weight only where its gradient is not 0 (the paper's), or plain Adam.",
    )
    lr: float = Field(4e-4, gt=0, description="Learning rate.")
    beta1: float = Field(0.9, ge=0, lt=1, description="Decay of the first moment.")
    beta2: float = Field(0.999, ge=0, lt=1, description="Decay of the second moment.")
    eps: float = Field(1e-8, gt=0, description="Adam's epsilon.")
    batch_size: int = Field(4096, ge=1, description="Rows in a step.")
    epochs: float = Field(1.0, gt=0, description="Passes over the data, unless tokens or steps are set.")
    tokens: int | None = Field(None, ge=1, description="Rows to train on in all (paper: 300M to 800M).")
    steps: int | None = Field(None, ge=1, description="Steps to train; goes before tokens and epochs.")
    warmup: Length = Field(5000, description="Linear warm-up of the learning rate: steps, or below 1 a share of all.")
    cooldown: Length = Field(0.2, description="Linear cool-down at the end: steps, or below 1 a share of all.")
    final_lr: float = Field(1 / 32, ge=0, le=1, description="Learning rate at the end, as a share of lr.")
    clip: float | None = Field(None, gt=0, description="Largest norm of the gradient; default: no clipping.")
    initial_k: int | None = Field(None, ge=1, description="k at the start, annealed to k; default: k all along.")
    k_warmup: Length = Field(0.1, description="Length of that annealing: steps, or below 1 a share of all.")
    k_schedule: Literal["linear", "exponential"] = Field("linear", description="Form of that annealing.")
    auxk: float = Field(0.0, ge=0, description="Weight of the AuxK loss that revives dead features (1/32); 0 is off.")
    k_aux: int | None = Field(None, ge=1, description="Dead features that AuxK uses a row; default: d/2.")
    resample_every: int | None = Field(
        None,
        ge=1,
        description="Steps between drawing dead features anew from badly reconstructed rows; default: never.",
    )
    resample_until: float = Field(0.8, ge=0, le=1, description="Share of all steps after which that ends.")
    sparsity: float = Field(8e-5, ge=0, description="Weight of the sparsity penalty of relu and jumprelu.")
    penalty: Literal["norm", "tanh"] = Field("norm", description="Their penalty: an L_p norm, or a sum of tanh.")
    p: float = Field(1.0, gt=0, le=2, description="p of that norm.")
    sparsity_warmup: Length = Field(0.1, description="Linear warm-up of the penalty: steps, or below 1 a share of all.")
    pre_activation: float = Field(
        0.0, ge=0, description="Weight of jumprelu's penalty on pre-activations below their threshold (3e-6)."
    )
    bandwidth: float = Field(0.001, gt=0, description="Width of jumprelu's straight-through window.")
    initial_threshold: float = Field(0.001, gt=0, description="Threshold of jumprelu at the start.")
    threshold_lr_factor: float = Field(1.0, gt=0, description="Learning rate of thresholds as a multiple of lr.")
    dead_threshold: int = Field(
        10_000_000, ge=1, description="Rows without firing after which a feature counts as dead."
    )
    buffer: int = Field(8, ge=2, description="Batches held for shuffling when rows are streamed.")
    amp: Literal["none", "bfloat16"] = Field("none", description="Type of the large product; weights keep theirs.")
    dtype: Literal["float32", "float64"] = Field("float32", description="Floating type of weights and rows.")
    checkpoint: Path | None = Field(
        None, description="File that training is saved to, and that a stopped run is resumed from; default: none."
    )
    checkpoint_every: int = Field(1000, ge=1, description="Steps between checkpoints.")
    export_saelens: Path | None = Field(
        None, description="Folder to write the dictionary to in a layout that SAELens loads; default: none."
    )

    @model_validator(mode="after")
    def _k_fits(self) -> Self:
        if self.initial_k is not None and self.initial_k < self.k:
            raise ValueError(f"initial_k={self.initial_k} must be at least k={self.k}: k is annealed downwards")
        if self.n_features is not None and self.activation in ("topk", "batchtopk") and self.k > self.n_features:
            raise ValueError(f"k={self.k} exceeds n_features={self.n_features}")
        return self

    def settings(self) -> TrainingSettings:
        """As the native API takes them."""
        values = self.model_dump()
        values["rows"], values["betas"] = values["init_rows"], (self.beta1, self.beta2)
        values["coefficient"] = self.sparsity
        parts = {}
        for name, part in _PARTS.items():
            parts[name] = part(**{f.name: values[f.name] for f in fields(part) if f.name in values})
        parts["sparsity"] = replace(parts["sparsity"], warmup=self.sparsity_warmup)
        return TrainingSettings(**parts)


class TopKConfig(SaeConfig):
    """A top-k autoencoder without the paper's parts."""

    subspace: Literal["init", "hard", "none"] = Field("none", description="Active subspace; see subspace-sae.")
    optimizer: Literal["sparseadam", "adam"] = Field("adam", description="Optimiser; see subspace-sae.")


class AuxKConfig(TopKConfig):
    """A top-k autoencoder with AuxK."""

    auxk: float = Field(1 / 32, ge=0, description="Weight of the AuxK loss that revives dead features; 0 is off.")


class BatchTopKConfig(TopKConfig):
    """A batch-top-k autoencoder."""

    activation: Literal["topk", "batchtopk", "relu", "jumprelu"] = Field("batchtopk", description="Activation.")


class ReluConfig(TopKConfig):
    """A ReLU autoencoder with an L1 penalty."""

    activation: Literal["topk", "batchtopk", "relu", "jumprelu"] = Field("relu", description="Activation.")


class JumpReluConfig(TopKConfig):
    """A JumpReLU autoencoder."""

    activation: Literal["topk", "batchtopk", "relu", "jumprelu"] = Field("jumprelu", description="Activation.")
    penalty: Literal["norm", "tanh"] = Field("tanh", description="Penalty: an L_p norm, or a sum of tanh.")


class AsiConfig(SaeConfig):
    """Active Subspace Initialization with plain Adam."""

    optimizer: Literal["sparseadam", "adam"] = Field("adam", description="Optimiser; see subspace-sae.")


class SparseAdamConfig(SaeConfig):
    """The sparse-aware Adam from a random start."""

    subspace: Literal["init", "hard", "none"] = Field("none", description="Active subspace; see subspace-sae.")
