"""``digits-ar``: images as sequences of pixel tokens, one class of them to be forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from icml26 import Dataset, Problem, RunContext
from icml26.dataset import DatasetConfig
from icml26.errors import InputError
from pydantic import Field

from icml26_plugin_divergence_decoding.encoding import encode_all
from icml26_plugin_divergence_decoding.finetune import FineTune, finetune
from icml26_plugin_divergence_decoding.mini_tofu import shape
from icml26_plugin_divergence_decoding.task import Format, Images, Inputs, Output, Row, Truth
from icml26_plugin_divergence_decoding.tiny_models import (
    count_parameters,
    load_weights,
    save_weights,
    tiny_llama,
)

LEVELS, PIXELS = 17, 64
START = LEVELS
FORM = Format(max_length=PIXELS + 1)


def as_rows(pixels: np.ndarray) -> np.ndarray:
    """Token ids (n, 65) int64 of images (n, 64) with levels 0 to 16: a start token, then the pixels line by line."""
    start = np.full((len(pixels), 1), START, np.int64)
    return np.concatenate([start, np.rint(pixels).astype(np.int64)], axis=1)


class Digits(Dataset[Inputs, Truth]):
    """scikit-learn's handwritten digits, 8 x 8 pixels of 17 levels, for an autoregressive pixel model."""

    class Config(DatasetConfig):
        """Which class is forgotten, shapes of the models, and how they are trained."""

        forget_class: int = Field(8, ge=0, le=9, description="The digit to be forgotten.")
        images: int = Field(1300, ge=200, le=1797, description="How many images are used, drawn by the seed.")
        held_out: float = Field(0.2, gt=0, lt=1, description="Share of the images that no model is trained on.")
        width: int = Field(64, ge=8, le=512, multiple_of=8, description="Hidden width of the big model.")
        layers: int = Field(2, ge=1, le=12, description="Layers of the big model.")
        small_width: int = Field(32, ge=8, le=512, multiple_of=8, description="Hidden width of the small model.")
        small_layers: int = Field(2, ge=1, le=12, description="Layers of the small model.")
        epochs: int = Field(16, ge=1, le=200, description="Epochs of the target and of the retrained reference.")
        lr: float = Field(5e-3, gt=0, lt=1, description="Peak learning rate of the big model.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Split the images and train the models, or read what an earlier run with this config and seed trained."""
        from sklearn.datasets import load_digits

        config = self.config
        pixels, labels = load_digits(return_X_y=True)
        chosen = ctx.rng.permutation(len(pixels))[: config.images]
        rows, labels = as_rows(pixels[chosen]), labels[chosen].astype(np.int64)
        unseen = np.arange(len(rows)) < round(config.held_out * len(rows))
        forgotten = labels == config.forget_class
        forget, retain = tuple(rows[~unseen & forgotten]), tuple(rows[~unseen & ~forgotten])
        if not forget or not (unseen & forgotten).any():
            raise InputError(f"images={config.images} leave no image of class {config.forget_class}: use more.")
        seed = ctx.torch_seed()
        folder = ctx.cached("models", lambda place: self._train(forget, retain, seed, place))
        target, retrain, small = (
            load_weights(folder / f"{name}.safetensors").to(ctx.device) for name in ("target", "retrain", "small")
        )
        inputs = Inputs(target, None, forget, retain, small_base=small, format=FORM)
        truth = Truth(
            target,
            None,
            tuple(np.array(row) for row in forget),
            tuple(rows[unseen & ~forgotten]),
            retrain=retrain,
            holdout=tuple(rows[unseen & forgotten]),
            format=replace(FORM),
            images=Images(config.forget_class, pixels.astype(np.float32), load_digits().target.astype(np.int64)),
        )
        info = {
            "forget_images": len(forget),
            "retain_images": len(retain),
            "target_parameters": count_parameters(target),
            "small_parameters": count_parameters(small),
        }
        return Problem(inputs, truth, info)

    def perfect(self, problem: Problem[Inputs, Truth]) -> Output:
        """The retrained model."""
        return Output(problem.truth.retrain)

    def broken(self, problem: Problem[Inputs, Truth]) -> Output:
        """The target, which has forgotten nothing."""
        return Output(problem.truth.target)

    def _train(self, forget: tuple[Row, ...], retain: tuple[Row, ...], seed: int, folder: Path) -> None:
        """Train target and retrained reference from one initialisation; the small base stays as it was drawn."""
        config = self.config
        for name, rows in (("target", forget + retain), ("retrain", retain)):
            model = tiny_llama(LEVELS + 1, shape(config.width, config.layers), seed, end=None)
            settings = FineTune(config.lr, config.epochs)
            finetune(model, encode_all(rows, None, FORM), settings, torch.Generator().manual_seed(seed + 1))
            save_weights(model, folder / f"{name}.safetensors")
        small = tiny_llama(LEVELS + 1, shape(config.small_width, config.small_layers), seed + 2, end=None)
        save_weights(small, folder / "small.safetensors")
