"""Options of the baselines; defaults are those of the implementations that the paper compared with, made for 8B models."""

from __future__ import annotations

from typing import Literal

from icml26.method import MethodConfig
from pydantic import Field

from icml26_plugin_divergence_decoding.baselines.gradient import Objective, Unlearning
from icml26_plugin_divergence_decoding.finetune import FineTune


class TrainingConfig(MethodConfig):
    """How a baseline trains."""

    lr: float = Field(1e-5, gt=0, lt=1, description="Peak learning rate of AdamW (8B models: 1e-5).")
    epochs: int = Field(10, ge=1, le=1000, description="Passes over the rows to be forgotten.")
    batch_size: int = Field(32, ge=1, le=4096, description="Rows of each kind in a step.")
    weight_decay: float = Field(0.01, ge=0, lt=1, description="AdamW's weight decay.")
    schedule: Literal["one-cycle", "cosine", "constant"] = Field(
        "one-cycle", description="Course of the learning rate; one-cycle rises over a tenth of the steps, then falls."
    )
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are clipped to this norm.")

    def training(self) -> FineTune:
        """As the trainer takes it."""
        return FineTune(
            self.lr,
            self.epochs,
            self.batch_size,
            self.weight_decay,
            self.schedule,
            max_grad_norm=self.max_grad_norm,
        )


class GradientAscentConfig(TrainingConfig):
    """Gradient ascent on the forget set."""

    def unlearning(self, objective: Objective) -> Unlearning:
        """As the native function takes it."""
        return Unlearning(objective, self.training())


class GradientDifferenceConfig(TrainingConfig):
    """Ascent on what is to be forgotten, descent on what is to be kept."""

    forget_weight: float = Field(1.0, ge=0, description="Weight of the forget part.")
    retain_weight: float = Field(1.0, ge=0, description="Weight of the loss on rows to keep.")

    def unlearning(self, objective: Objective) -> Unlearning:
        """As the native function takes it."""
        return Unlearning(objective, self.training(), self.forget_weight, self.retain_weight)


class NpoConfig(GradientDifferenceConfig):
    """Negative preference optimisation with a loss on rows to keep."""

    beta: float = Field(0.1, gt=0, description="Inverse temperature beta of the preference.")

    def unlearning(self, objective: Objective) -> Unlearning:
        """As the native function takes it."""
        return Unlearning(objective, self.training(), self.forget_weight, self.retain_weight, self.beta)


class UldConfig(TrainingConfig):
    """Unlearning from logit difference."""

    lr: float = Field(1e-3, gt=0, lt=1, description="Peak learning rate of the assistant.")
    strength: float = Field(0.75, ge=0, description="How much of the assistant's logits is subtracted (beta).")
    layers: int | None = Field(
        None, ge=1, description="Layers of the target that the assistant takes over; a quarter of them by default."
    )
    rank: int = Field(32, ge=0, description="Rank of the assistant's trained maps (LoRA); 0 trains all its weights.")
    retain_weight: float = Field(1.0, ge=0, description="Weight of being uniform on rows to keep.")
    keep_below: float = Field(
        0.0, ge=0, lt=1, description="Tokens to which the target gives a smaller probability keep their logit."
    )


class WhpConfig(TrainingConfig):
    """Who's Harry Potter: away from what a reinforced model likes better."""

    strength: float = Field(1.0, ge=0, description="alpha: how far to go away (grid of the paper: 0.5 to 5).")
