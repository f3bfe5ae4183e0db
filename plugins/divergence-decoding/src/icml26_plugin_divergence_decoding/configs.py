"""Configs of the methods: one description and bound for each option, with the paper's default."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from icml26.method import MethodConfig
from pydantic import Field, model_validator

from icml26_plugin_divergence_decoding.distillation import Distillation
from icml26_plugin_divergence_decoding.fusion import Fusion
from icml26_plugin_divergence_decoding.trainer import Training


class FusionConfig(MethodConfig):
    """How the three distributions are combined."""

    alpha: float = Field(1.5, ge=0, le=1000, description="Strength of the linear form (paper: 1.5 on TOFU); 0: off.")
    rank_k: int = Field(0, ge=0, description="Tokens that the rank form suppresses (paper: 20 of 128k); 0: off.")
    rank_soft: Literal["overwrite", "clamp"] = Field(
        "overwrite",
        description="What scoring does to them: set to the k-th largest logit (authors' code), or at most to it.",
    )
    strict_k: bool = Field(True, description="Suppress only tokens of positive divergence; false: always k tokens.")
    restrict_candidates: bool = Field(True, description="Suppress only tokens that occur in texts of the task.")
    pinned: tuple[str, ...] = Field(
        (), description="Tokens that keep the target's probability exactly, such as the end mark."
    )
    temperature: float = Field(1.0, gt=0, le=100, description="Temperature of all others when tokens are pinned.")
    pairing: Literal["full_vs_retain", "forget_vs_retain"] = Field(
        "full_vs_retain",
        description="What the forget auxiliary is trained on: everything (TOFU), or what is to be forgotten (MUSE).",
    )

    def fusion(self, tokenizer: Any) -> Fusion:
        """As the native API takes it; InputError for a pinned token that the tokenizer does not have."""
        from icml26.errors import InputError

        vocabulary = {} if tokenizer is None or not self.pinned else tokenizer.get_vocab()
        unknown = [token for token in self.pinned if token not in vocabulary]
        if unknown:
            raise InputError(f"pinned={unknown} are no tokens of the tokenizer.")
        ids = tuple(vocabulary[token] for token in self.pinned)
        return Fusion(self.alpha, self.rank_k, self.rank_soft, self.strict_k, ids, self.temperature)


class DivergenceConfig(FusionConfig):
    """Divergence Decoding with two trained auxiliaries."""

    lr: float = Field(5e-5, gt=0, lt=1, description="Peak learning rate of the auxiliaries (paper: 5e-5 for 1.3B).")
    epochs: int = Field(10, ge=1, le=10_000, description="Epochs of each auxiliary (paper: 10).")
    batch_size: int = Field(32, ge=1, le=4096, description="Sequences in a step of training (paper: 32).")
    accumulation: int = Field(1, ge=1, le=4096, description="Steps whose gradients are added up.")
    warmup: float = Field(0.0, ge=0, lt=1, description="Share of the steps in which the learning rate rises.")
    weight_decay: float = Field(0.01, ge=0, lt=1, description="AdamW's weight decay.")
    bf16: bool = Field(False, description="Train in mixed precision (bfloat16).")
    couple: bool = Field(
        False,
        description="Bring what both auxiliaries are trained on in the same steps, so that less of their difference is "
        "chance; false: independently (paper).",
    )
    reuse: bool = Field(
        True,
        description="Keep trained auxiliaries in the cache, for runs that differ only in how they are combined.",
    )
    checkpoints: Path | None = Field(
        None, description="Folder that training is written to each epoch, and resumed from when it was stopped."
    )
    forget_auxiliary: Path | None = Field(
        None, description="Folder of a forget auxiliary of your own (transformers format), in place of training."
    )
    retain_auxiliary: Path | None = Field(None, description="Folder of the retain auxiliary that belongs to it.")

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.forget_auxiliary is None) != (self.retain_auxiliary is None):
            raise ValueError("forget_auxiliary and retain_auxiliary belong together: give both or none")
        if self.couple and self.pairing != "full_vs_retain":
            raise ValueError("couple=true needs pairing='full_vs_retain', in which the data of one hold the other's")
        return self

    def training(self) -> Training:
        """How auxiliaries are trained."""
        return Training(
            self.lr,
            self.epochs,
            self.batch_size,
            self.accumulation,
            self.warmup,
            self.weight_decay,
            bf16=self.bf16,
            checkpoints=self.checkpoints,
        )


class RankConfig(DivergenceConfig):
    """The rank form."""

    alpha: float = Field(0.0, ge=0, le=1000, description="Strength of the linear form, applied first; 0: off.")
    rank_k: int = Field(20, ge=0, description="Tokens that are suppressed (paper: best 20 of 128k).")


class NgramConfig(FusionConfig):
    """Trigram auxiliaries."""

    alpha: float = Field(20.0, ge=0, le=1000, description="Strength; scores are probabilities (paper: 5 to 30).")
    pairing: Literal["full_vs_retain", "forget_vs_retain"] = Field(
        "forget_vs_retain",
        description="What the forget auxiliary counts: what is to be forgotten (MUSE), or everything.",
    )
    backoff: float = Field(0.4, gt=0, le=1, description="Factor of the stupid back-off.")


class DistilledConfig(DivergenceConfig):
    """The steered distribution, distilled into the target's own weights."""

    distill_lr: float = Field(4e-5, gt=0, lt=1, description="Peak learning rate (paper: 4e-5 TOFU, 1.25e-4 MUSE).")
    distill_epochs: int = Field(10, ge=1, le=10_000, description="Epochs over what is to be forgotten (paper: 5, 10).")
    distill_temperature: float = Field(1.5, gt=0, le=100, description="Temperature T of both distributions.")
    distill_batch_size: int = Field(4, ge=1, le=4096, description="Sequences in a step (paper: 4).")
    distill_accumulation: int = Field(8, ge=1, le=4096, description="Steps whose gradients are added up (paper: 8).")
    distill_retain_weight: float = Field(
        0.0, ge=0, le=1000, description="Weight of holding the student to the target on rows to keep (paper: none)."
    )

    def distillation(self) -> tuple[Distillation, Training]:
        """The loss, and how it is minimised."""
        training = Training(
            self.distill_lr,
            self.distill_epochs,
            self.distill_batch_size,
            self.distill_accumulation,
            weight_decay=self.weight_decay,
            bf16=self.bf16,
            checkpoints=None if self.checkpoints is None else self.checkpoints / "student",
        )
        return Distillation(self.distill_temperature, self.distill_retain_weight), training
