"""Tiny random language models and a byte-level tokenizer, made without a network."""

from __future__ import annotations

from typing import Any

import torch


def tokenizer() -> Any:
    """Bytes as tokens 0 to 255, end of text 256."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)}
    vocabulary["<end>"] = len(vocabulary)
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>")


def llama(seed: int = 0, **options: Any) -> Any:
    """A random Llama with grouped queries: 3 layers, d = 32, 4 heads of 8."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=257, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=256, eos_token_id=256, **options,
    )  # fmt: skip
    return _made(LlamaForCausalLM, config, seed)


def gpt2(seed: int = 0) -> Any:
    """A random GPT-2: 2 layers, d = 32."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=257, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=256, eos_token_id=256
    )
    return _made(GPT2LMHeadModel, config, seed)


def _made(cls: Any, config: Any, seed: int) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = cls(config)
        # Larger than the usual initialisation, so that every part matters to the loss.
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.data.mul_(4.0)
    return model.requires_grad_(False).eval()


def trained_llama(texts: list[str], steps: int = 15) -> Any:
    """The Llama after a few steps on ``texts``, so that its activations are of use to its predictions."""
    model = llama().requires_grad_(True)
    ids = torch.tensor(tokenizer()("".join(texts))["input_ids"])
    rows = ids[: len(ids) // 32 * 32].view(-1, 32)[:8]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
    return model.requires_grad_(False)
