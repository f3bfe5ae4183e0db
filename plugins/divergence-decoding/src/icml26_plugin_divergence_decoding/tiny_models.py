"""Small ``transformers`` models and word-level tokenizers for the offline data sets, and their storage without pickle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"


@dataclass(frozen=True)
class Size:
    """Shape of a small Llama: hidden ``width``, ``layers``, attention ``heads``, width of the MLP ``inner``."""

    width: int
    layers: int
    heads: int
    inner: int


def tiny_llama(
    vocabulary: int, size: Size, seed: int, *, max_length: int = 128, end: int | None = 1
) -> LlamaForCausalLM:
    """A randomly initialised Llama in eval mode, drawn from ``seed`` without touching the global generator.

    ``end`` is the id at which generation stops, None where sequences have a fixed length.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        # A Llama starts at 0.02, for widths of thousands; narrow ones learn faster from the usual 1 / sqrt(width).
        initializer_range=size.width**-0.5,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=end,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def word_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of whitespace-separated ``words``; ids 0 to 2 are padding, end of answer and unknown."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate((PAD, EOS, UNKNOWN, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN, padding_side="left"
    )


def count_parameters(model: Any) -> int:
    """The number of parameters, tied ones once."""
    return sum(p.numel() for p in model.parameters())


def save_weights(model: Any, path: Path) -> None:
    """Write a model's weights as safetensors, tied ones once, beside a JSON file of its config."""
    from safetensors.torch import save_model

    save_model(model, str(path))
    path.with_suffix(".json").write_text(json.dumps(model.config.to_dict(), default=str), encoding="utf-8")


def load_weights(path: Path) -> LlamaForCausalLM:
    """A model that :func:`save_weights` wrote, in eval mode."""
    from safetensors.torch import load_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig.from_dict(json.loads(path.with_suffix(".json").read_text(encoding="utf-8")))
    with torch.random.fork_rng(devices=[]):
        model = LlamaForCausalLM(config)
    load_model(model, str(path))
    return model.eval()
