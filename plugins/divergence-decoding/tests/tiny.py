"""Random tiny models for tests: what they say does not matter, only that it is the same in every way of asking."""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

V = 23


def llama(
    seed: int, *, vocab: int = V, width: int = 16, layers: int = 2, dtype: torch.dtype = torch.float32
) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).to(dtype).eval()


def gpt2(seed: int, *, vocab: int = V) -> GPT2LMHeadModel:
    """Absolute positions: wrong position ids of a left-padded batch show."""
    config = GPT2Config(
        vocab_size=vocab,
        n_positions=64,
        n_embd=16,
        n_layer=2,
        n_head=2,
        initializer_range=0.3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config).eval()
