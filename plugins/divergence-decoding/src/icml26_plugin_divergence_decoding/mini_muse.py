"""``mini-muse``: running text that ships with Python, and small transformers that learnt part of it by heart in this run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from icml26 import Dataset, Problem, RunContext
from icml26.dataset import DatasetConfig
from pydantic import Field

from icml26_plugin_divergence_decoding.encoding import encode_all
from icml26_plugin_divergence_decoding.finetune import FineTune, finetune
from icml26_plugin_divergence_decoding.mini_tofu import shape
from icml26_plugin_divergence_decoding.task import QA, Format, Inputs, Knowledge, Output, Truth
from icml26_plugin_divergence_decoding.tiny_models import (
    EOS,
    PAD,
    count_parameters,
    load_weights,
    save_weights,
    tiny_llama,
)

FORM = Format(max_length=512)
#: Shares of the topics: to be forgotten, to be kept, never trained on; the rest trains the base models.
SHARES = {"forget": 0.15, "retain": 0.60, "holdout": 0.15}


class Passages(NamedTuple):
    """Passages of each part."""

    forget: tuple[str, ...]
    retain: tuple[str, ...]
    holdout: tuple[str, ...]
    pretraining: tuple[str, ...]


class MiniMuse(Dataset[Inputs, Truth]):
    """Help topics of Python's own documentation (PSF licence), cut into passages; some topics are to be forgotten.

    The text is that of the running Python, so that figures of different versions of Python are not comparable.
    """

    class Config(DatasetConfig):
        """How much text, shapes of the models, and how they are trained."""

        topics: int = Field(40, ge=8, le=60, description="Help topics that are used, drawn by the seed.")
        topic_words: int = Field(240, ge=40, le=4000, description="Words of each topic, from its beginning.")
        passage_words: int = Field(40, ge=20, le=200, description="Words of a passage: a sequence of training.")
        prompt_words: int = Field(20, ge=1, le=100, description="Words that a verbatim continuation starts from.")
        vocabulary: int = Field(512, ge=300, le=8192, description="Size of the byte-pair vocabulary.")
        forget_repeats: int = Field(3, ge=1, le=50, description="How often an epoch sees what is to be forgotten.")
        width: int = Field(96, ge=8, le=1024, multiple_of=8, description="Hidden width of the big model.")
        layers: int = Field(2, ge=1, le=24, description="Layers of the big model.")
        small_width: int = Field(48, ge=8, le=1024, multiple_of=8, description="Hidden width of the small model.")
        small_layers: int = Field(2, ge=1, le=24, description="Layers of the small model.")
        epochs: int = Field(14, ge=1, le=200, description="Epochs of the target and of the retrained reference.")
        lr: float = Field(5e-3, gt=0, lt=1, description="Peak learning rate of all models.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Split the topics and train the models, or read what an earlier run with this config and seed trained."""
        config = self.config
        parts = self._passages(ctx)
        seed = ctx.torch_seed()
        folder = ctx.cached("models", lambda place: self._train(parts, seed, place))
        tokenizer = _load_tokenizer(folder / "tokenizer.json")
        target, retrain, small = (
            load_weights(folder / f"{name}.safetensors").to(ctx.device) for name in ("target", "retrain", "small")
        )
        inputs = Inputs(
            target, tokenizer, parts.forget, parts.retain, small_base=small, background=parts.pretraining, format=FORM
        )
        truth = Truth(
            target,
            tokenizer,
            parts.forget,
            parts.retain[:: max(1, len(parts.retain) // 40)],
            retrain=retrain,
            holdout=parts.holdout,
            format=replace(FORM),
            knowledge=Knowledge(verbatim=tuple(continuation(text, config.prompt_words) for text in parts.forget)),
        )
        info = {f"{name}_passages": len(getattr(parts, name)) for name in Passages._fields}
        sizes = {"target_parameters": count_parameters(target), "small_parameters": count_parameters(small)}
        return Problem(inputs, truth, info | sizes)

    def perfect(self, problem: Problem[Inputs, Truth]) -> Output:
        """The retrained model."""
        return Output(problem.truth.retrain)

    def broken(self, problem: Problem[Inputs, Truth]) -> Output:
        """The target, which has forgotten nothing."""
        return Output(problem.truth.target)

    def _passages(self, ctx: RunContext) -> Passages:
        from pydoc_data.topics import topics

        config = self.config
        names = sorted(name for name, text in topics.items() if len(text.split()) >= config.passage_words)
        chosen = [names[i] for i in ctx.rng.permutation(len(names))[: config.topics].tolist()]
        counts = [max(1, round(share * len(chosen))) for share in SHARES.values()]
        ends = [sum(counts[: i + 1]) for i in range(3)]
        groups = [chosen[a:b] for a, b in zip([0, *ends], [*ends, len(chosen)], strict=True)]
        cut = [
            tuple(
                passage
                for name in group
                for passage in passages(topics[name], config.topic_words, config.passage_words)
            )
            for group in groups
        ]
        return Passages(*cut)

    def _train(self, parts: Passages, seed: int, folder: Path) -> None:
        """Train tokenizer, small base, target and retrained reference, and write them into ``folder``."""
        config = self.config
        tokenizer = _train_tokenizer([text for part in parts for text in part], config.vocabulary, folder)

        def train(model: Any, rows: Sequence[str], epochs: int) -> Any:
            settings = FineTune(config.lr, epochs, batch_size=16)
            generator = torch.Generator().manual_seed(seed + 1)
            finetune(model, encode_all(rows, tokenizer, FORM), settings, generator)
            return model

        bases = {}
        for offset, (width, layers) in enumerate(
            ((config.width, config.layers), (config.small_width, config.small_layers))
        ):
            model = tiny_llama(len(tokenizer), shape(width, layers), seed + offset, max_length=512)
            bases[offset] = train(model, parts.pretraining, 2)
        save_weights(bases[1], folder / "small.safetensors")
        for name, rows in (("retrain", parts.retain), ("target", parts.forget * config.forget_repeats + parts.retain)):
            save_weights(train(copy.deepcopy(bases[0]), rows, config.epochs), folder / f"{name}.safetensors")


def passages(text: str, most_words: int, size: int) -> list[str]:
    """The first words of a text, cut into passages of ``size`` words; what is left at the end is dropped."""
    words = text.split()[:most_words]
    return [" ".join(words[at : at + size]) for at in range(0, len(words) - size + 1, size)]


def continuation(passage: str, prompt_words: int) -> QA:
    """A passage's beginning in place of a question, and how it goes on."""
    words = passage.split()
    at = min(prompt_words, len(words) - 1)
    return QA(" ".join(words[:at]), " " + " ".join(words[at:]))


def _train_tokenizer(texts: Sequence[str], size: int, folder: Path) -> Any:
    """A byte-level byte-pair tokenizer of ``size`` tokens, stored in ``folder``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[PAD, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return _load_tokenizer(folder / "tokenizer.json")


def _load_tokenizer(path: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_file=str(path), pad_token=PAD, eos_token=EOS, padding_side="left")
