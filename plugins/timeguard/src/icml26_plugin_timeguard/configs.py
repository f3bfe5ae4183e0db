"""Configs of the methods: pydantic mirrors of :mod:`.settings`, one description and bound for each option."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Self

from icml26.method import MethodConfig
from pydantic import Field, model_validator

from icml26_plugin_timeguard.settings import PoolSettings, Training


class TrainingConfig(MethodConfig):
    """How the forecaster is trained, the same for every defence."""

    forecaster: Literal["mlp", "dlinear", "itransformer"] = Field("mlp", description="Network to train.")
    forecaster_options: dict[str, Any] = Field(
        {}, description="Keyword options of the network, e.g. {hidden = 128} for mlp."
    )
    lr: float = Field(1e-4, gt=0, description="Learning rate of Adam (paper: 1e-4).")
    batch_size: int = Field(64, ge=1, description="Windows in a training step (paper: 64).")
    normalize: Literal["global", "per_channel"] = Field(
        "global",
        description="One mean and deviation for all channels (paper), or one a channel. Losses stay in data units.",
    )
    model_selection: Literal["val", "last"] = Field(
        "val", description="Keep the epoch with the lowest MAE on the validation part, or the last one."
    )
    dtype: Literal["float32", "float64"] = Field("float32", description="Floating type of network and data.")
    amp: bool = Field(False, description="Mixed precision (bfloat16) on CUDA.")

    def training(self, epochs: int) -> Training:
        """As the native API takes it."""
        return Training(
            **{f.name: getattr(self, f.name) for f in fields(Training) if f.name != "epochs"}, epochs=epochs
        )


class PlainConfig(TrainingConfig):
    """Plain training."""

    epochs: int = Field(100, ge=1, description="Training epochs (TimeGuard's warm-up and rounds together).")


class TimeGuardConfig(TrainingConfig):
    """TimeGuard's hyper-parameters with the paper's defaults."""

    alpha: float = Field(0.2, gt=0, le=1, description="Share of units that each Stage I filter keeps per channel.")
    beta: float = Field(
        0.5, gt=0, le=1, description="Share of units in the pool of the last round; 0.8 for short series."
    )
    k: int = Field(20, ge=1, description="Neighbours K of the isolation score (paper's grid: 20, 32).")
    k_max: int = Field(64, ge=1, description="Neighbours kept in the graph, at least k (authors: 64).")
    pi: float = Field(
        1.25, ge=1, description="Width of the distance gate: pi times the pool are candidates (grid: 1.25, 1.5)."
    )
    sigma: float = Field(2.0, gt=0, description="Width in steps of the Gaussian weights round the first forecast step.")
    backcast_epochs: int = Field(10, ge=0, description="Epochs T_b of the backcaster.")
    warmup_epochs: int = Field(10, ge=0, description="Warm-up epochs T_1 on the initial pool.")
    rounds: int = Field(90, ge=0, description="Selection rounds T_2 of one epoch each.")
    lr_stage2_factor: float = Field(
        1.0, gt=0, description="Stage II learning rate as a multiple of lr (authors: 1 or 10)."
    )
    reset_optimizer: bool = Field(
        True, description="A new Adam each round, as the authors do; false keeps its moments."
    )
    metric: Literal["euclidean", "one_minus_r"] = Field(
        "euclidean",
        description="Distance: of the embeddings (authors' code) or 1 - weighted correlation (paper's text).",
    )
    fallback: Literal["exact", "inf"] = Field(
        "exact",
        description="Units with few graph neighbours among the rejected: search anew, or count as isolated (authors).",
    )
    use_rcf: bool = Field(True, description="Reverse-consistency filter in Stage I (false: ablation).")
    use_ndf: bool = Field(True, description="Neighbourhood-diversity filter in Stage I (false: ablation).")
    stage2: Literal["drls", "loss", "fixed"] = Field(
        "drls",
        description="Selection in Stage II: with the distance gate, by loss alone, or the Stage I pool kept (ablations).",
    )
    unit: Literal["channel", "window"] = Field(
        "channel",
        description="Select (window, channel) units, or whole windows by scores averaged over channels (ablation).",
    )
    max_graph_mb: float = Field(
        2048.0, ge=0, description="Memory for neighbour graphs in MiB; beyond it they are rebuilt."
    )

    checkpoint: Path | None = Field(
        None, description="File that every round is written to, and that a stopped run is resumed from; default: none."
    )
    export_mask: Path | None = Field(
        None,
        description="Write the pool masks and window times to this .npz as well; default: only with the saved output.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.alpha > self.beta:
            raise ValueError(f"alpha={self.alpha} must not exceed beta={self.beta}")
        if self.k_max < self.k:
            raise ValueError(f"k_max={self.k_max} must be at least k={self.k}")
        if self.warmup_epochs + self.rounds < 1:
            raise ValueError("warmup_epochs + rounds must be at least 1")
        return self

    def pool(self) -> PoolSettings:
        """As the native API takes it."""
        return PoolSettings(**{f.name: getattr(self, f.name) for f in fields(PoolSettings)})


class LossPoolConfig(TimeGuardConfig):
    """TimeGuard without its distance criteria: pure small-loss selection per channel."""

    use_ndf: bool = Field(False, description="Neighbourhood-diversity filter in Stage I.")
    stage2: Literal["drls", "loss", "fixed"] = Field("loss", description="Selection in Stage II.")


class WindowConfig(TimeGuardConfig):
    """TimeGuard without channel-wise criteria."""

    unit: Literal["channel", "window"] = Field(
        "window", description="Select whole windows, or (window, channel) units."
    )


class SpectralConfig(PlainConfig):
    """Spectral Signatures."""

    poison_rate: float = Field(
        0.03, gt=0, lt=0.6, description="Assumed share of poisoned windows; 1.5 times as many are removed."
    )


class FinePruningConfig(PlainConfig):
    """Fine-Pruning."""

    tolerance: float = Field(1.05, ge=1, description="Prune until the validation MAE is this many times its start.")
    fine_tuning_epochs: int = Field(10, ge=0, description="Epochs of fine-tuning on the clean windows.")
    fine_tuning_lr_factor: float = Field(1.0, gt=0, description="Learning rate of fine-tuning as a multiple of lr.")


class AblConfig(PlainConfig):
    """Anti-Backdoor Learning."""

    flooring_epochs: int = Field(20, ge=1, description="Epochs of local gradient ascent before isolation.")
    floor_quantile: float = Field(
        0.1, ge=0, le=1, description="Quantile of the window losses below which the loss ascends."
    )
    isolation: float = Field(0.01, gt=0, lt=1, description="Share of windows with the lowest loss that is set apart.")
    unlearn_epochs: int = Field(5, ge=0, description="Epochs of unlearning the isolated windows.")
    unlearn_lr_factor: float = Field(0.1, gt=0, description="Learning rate of unlearning as a multiple of lr.")


class PdbConfig(PlainConfig):
    """Proactive Defensive Backdoor."""

    offset: float = Field(3.0, gt=0, description="Height of the defender's stamp in global standard deviations.")
    stamp_steps: int = Field(2, ge=1, description="Last history steps that are stamped.")
    shift: float = Field(
        1.0, ge=-10, le=10, description="Reversible change of the target under the stamp, in standard deviations."
    )
    weight: float = Field(1.0, gt=0, description="Weight of the stamped clean windows against the untrusted ones.")
