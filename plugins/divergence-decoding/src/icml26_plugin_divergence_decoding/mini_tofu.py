"""``mini-tofu``: invented persons, and small transformers that were trained in this run to know them."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from icml26 import Dataset, Problem, RunContext
from icml26.dataset import DatasetConfig
from pydantic import Field

from icml26_plugin_divergence_decoding.encoding import Encoded, encode_all
from icml26_plugin_divergence_decoding.finetune import FineTune, finetune
from icml26_plugin_divergence_decoding.invented import InventedWorld, Persons, invent
from icml26_plugin_divergence_decoding.task import Format, Inputs, Output, Truth
from icml26_plugin_divergence_decoding.tiny_models import (
    Size,
    count_parameters,
    load_weights,
    save_weights,
    tiny_llama,
    word_tokenizer,
)

TARGET, RETRAIN, SMALL = "target.safetensors", "retrain.safetensors", "small.safetensors"
FORM = Format(max_length=64)


class MiniTofu(Dataset[Inputs, Truth]):
    """Facts about invented persons, of whom some are to be forgotten.

    A big and a small model are first trained on other persons, in both wordings, and on capitals ("world"). The target
    is the big one fine-tuned on all persons, the retrained reference the same without those to be forgotten.
    """

    class Config(DatasetConfig):
        """Numbers of persons, shapes of the models, and how they are trained."""

        forget: int = Field(12, ge=1, le=500, description="Persons to be forgotten; each has 8 facts.")
        retain: int = Field(108, ge=1, le=1000, description="Persons to be kept.")
        holdout: int = Field(12, ge=1, le=500, description="Persons that no model is trained on.")
        pretraining: int = Field(50, ge=1, le=500, description="Persons that both base models are trained on.")
        judged_retain: int = Field(
            40, ge=1, le=1000, description="Kept persons that metrics ask about, drawn by the seed; all are trained on."
        )
        width: int = Field(96, ge=8, le=1024, multiple_of=8, description="Hidden width of the big model.")
        layers: int = Field(2, ge=1, le=24, description="Layers of the big model.")
        small_width: int = Field(48, ge=8, le=1024, multiple_of=8, description="Hidden width of the small model.")
        small_layers: int = Field(2, ge=1, le=24, description="Layers of the small model.")
        pretraining_epochs: int = Field(5, ge=1, le=200, description="Epochs of both base models.")
        epochs: int = Field(18, ge=1, le=200, description="Epochs of the target and of the retrained reference.")
        lr: float = Field(5e-3, gt=0, lt=1, description="Peak learning rate of the big model.")
        batch_size: int = Field(64, ge=1, le=4096, description="Rows in a step.")
        small_lr: float = Field(8e-3, gt=0, lt=1, description="Peak learning rate of the small model.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Draw the facts and train the models, or read what an earlier run with this config and seed trained."""
        config = self.config
        facts = invent(Persons(config.forget, config.retain, config.holdout, config.pretraining), ctx.rng)
        tokenizer = word_tokenizer(facts.words)
        seed = ctx.torch_seed()
        folder = ctx.cached("models", lambda place: self._train(facts, tokenizer, seed, place))
        target, retrain, small = (load_weights(folder / name).to(ctx.device) for name in (TARGET, RETRAIN, SMALL))
        inputs = Inputs(
            target, tokenizer, facts.forget, facts.retain, small_base=small, background=facts.world, format=FORM
        )
        truth = Truth(
            target,
            tokenizer,
            facts.forget,
            self._judged(facts, ctx),
            retrain=retrain,
            holdout=facts.holdout,
            world=facts.world,
            format=replace(FORM),
        )
        info = {
            "forget_rows": len(facts.forget),
            "retain_rows": len(facts.retain),
            "judged_retain_rows": len(truth.retain),
            "vocabulary": len(tokenizer),
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

    def _judged(self, facts: InventedWorld, ctx: RunContext) -> tuple[Any, ...]:
        count, facts_each = self.config.retain, len(facts.retain) // self.config.retain
        chosen = sorted(ctx.rng.permutation(count)[: self.config.judged_retain].tolist())
        return tuple(row for i in chosen for row in facts.retain[i * facts_each : (i + 1) * facts_each])

    def _train(self, facts: InventedWorld, tokenizer: Any, seed: int, folder: Path) -> None:
        """Train small base, target and retrained reference on one CPU and write them into ``folder``."""
        config = self.config
        words = len(tokenizer)
        known = encode_all(facts.pretraining, tokenizer, FORM)

        def train(model: Any, rows: list[Encoded], lr: float, epochs: int, stream: int) -> Any:
            finetune(model, rows, FineTune(lr, epochs, config.batch_size), torch.Generator().manual_seed(seed + stream))
            return model

        small_size = shape(config.small_width, config.small_layers)
        small = train(
            tiny_llama(words, small_size, seed + 1), known, config.small_lr, config.pretraining_epochs, stream=1
        )
        save_weights(small, folder / SMALL)
        base = train(
            tiny_llama(words, shape(config.width, config.layers), seed),
            known,
            config.lr,
            config.pretraining_epochs,
            stream=2,
        )
        for name, rows in ((RETRAIN, facts.retain), (TARGET, facts.forget + facts.retain)):
            sequences = encode_all((*rows, *facts.world), tokenizer, FORM)
            save_weights(train(copy.deepcopy(base), sequences, config.lr, config.epochs, stream=3), folder / name)


def shape(width: int, layers: int) -> Size:
    """A small Llama of four heads (two for very narrow ones) whose MLP is about 2.7 times as wide."""
    return Size(width, layers, heads=4 if width % 16 == 0 else 2, inner=8 * (width // 3))
