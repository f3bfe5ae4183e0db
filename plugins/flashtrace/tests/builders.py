"""Small models and blocks that the tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from icml26_plugin_flashtrace.kernel import Block, StoredAttention

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
FAMILIES = {
    "llama": {},
    "llama-mha": {"num_key_value_heads": 4, "attention_bias": True},
    "mistral": {"sliding_window": 5},
    "qwen2": {},
    "qwen3": {"head_dim": 8, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    "gemma2": {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 10, "attn_logit_softcapping": 2.0},
}


def tiny_model(name: str = "llama", attention: str = "eager", seed: int = 0, **changes: Any) -> Any:
    """A random model of a family whose norms are not 1 and whose biases are not 0, in evaluation mode."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(name.partition("-")[0], **{**SIZES, **FAMILIES[name], **changes})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if "norm" in key or "bias" in key:
                    parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def random_blocks(
    n: int = 12, d: int = 16, heads: int = 4, kv_heads: int = 2, layers: int = 2, seed: int = 0
) -> list[Block]:
    """Blocks that obey the residual identity, with random causal attention."""
    g = torch.Generator().manual_seed(seed)
    d_h = d // heads
    x = torch.randn(n, d, generator=g)
    blocks = []
    for _ in range(layers):
        logits = torch.randn(heads, n, n, generator=g).masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf"))
        attention = logits.softmax(-1)
        values = torch.randn(n, kv_heads, d_h, generator=g)
        weight, bias = torch.randn(d, d, generator=g) / d_h**0.5, torch.randn(d, generator=g)
        read = torch.einsum("hij,jhk->ihk", attention, values.repeat_interleave(heads // kv_heads, 1)).reshape(n, d)
        x_mid = x + read @ weight.T + bias
        blocks.append(Block(x, x_mid, values, weight, StoredAttention(attention), bias))
        x = x_mid + 0.5 * torch.randn(n, d, generator=g)
    return blocks


def token_ids(n: int, seed: int = 0, vocabulary: int = 64) -> np.ndarray:
    """Random ids (n,) that are no special tokens."""
    return np.random.default_rng(seed).integers(3, vocabulary, size=n)


def words_tokenizer(model_max_length: int = 100_000) -> Any:
    """A fast tokenizer of single words and marks, with offsets and without special tokens around a text."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", "<unk>", ",", ".", " "]
    words += [f"w{k}" for k in range(52)] + ["\\boxed{", "}", "the", "answer", "is"]
    core = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"\\boxed\{|[},.]| |[^ },.\\]+"), behavior="isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=model_max_length,
    )
