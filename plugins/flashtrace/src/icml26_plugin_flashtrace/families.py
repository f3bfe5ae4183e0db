"""Which model families the residual identity was written and tested for; every other one is refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from icml26 import InputError
from torch import nn


@dataclass(frozen=True)
class Family:
    """Where a family's decoder layer keeps what is captured.

    ``mid``: the module whose input is the residual stream after attention. ``window``: where a sliding window stands, on the
    attention module of each layer or in the config for all. ``qk_norm``: queries and keys are normalised before RoPE.
    ``post_norm``: the module that normalises attention's result before it is added, with gain 1 + weight.
    """

    mid: str = "post_attention_layernorm"
    window: Literal["none", "module", "config"] = "none"
    qk_norm: bool = False
    post_norm: str | None = None


FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "mistral": Family(window="config"),
    "qwen2": Family(window="module"),
    "qwen3": Family(window="module", qk_norm=True),
    "gemma2": Family(mid="pre_feedforward_layernorm", window="module", post_norm="post_attention_layernorm"),
}

#: Why a family that people ask for is refused.
REFUSED: dict[str, str] = {
    "gemma3": "its layers mix image and text attention",
    "gemma3_text": "its normalised queries, keys and results together were not tested",
    "gpt_oss": "its attention has sinks that take probability without being a token",
    "mamba": "it has no softmax attention",
    "mamba2": "it has no softmax attention",
    "falcon_mamba": "it has no softmax attention",
    "rwkv": "it has no softmax attention",
    "jamba": "some of its layers have no softmax attention",
    "qwen3_next": "some of its layers use linear attention",
    "gpt2": "its queries, keys and values are one fused projection",
    "phi3": "its queries, keys and values are one fused projection",
}


def family_of(model: Any) -> Family:
    """The family of a ``transformers`` causal language model; InputError for everything that is not supported."""
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    if not isinstance(model, nn.Module) or kind is None:
        raise InputError(f"a transformers causal language model is needed, not {type(model).__name__}")
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(f"{kind} is an encoder-decoder model; attribution follows one decoder-only stream")
    family = FAMILIES.get(kind)
    if family is None:
        why = REFUSED.get(kind, "its residual stream was not checked")
        raise InputError(f"model family {kind!r} is not supported: {why}. Supported: {', '.join(FAMILIES)}")
    if getattr(model, "lm_head", None) is None:
        raise InputError(f"{type(model).__name__} has no language-model head; load it with AutoModelForCausalLM")
    return family


def decoder_layers(model: Any) -> list[Any]:
    """The decoder layers, whose output projections must be plain float ``nn.Linear``."""
    layers = list(getattr(model, model.base_model_prefix).layers)
    if not layers:
        raise InputError("the model has no decoder layers")
    for number, layer in enumerate(layers):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            _check_projection(getattr(layer.self_attn, name), f"layer {number}'s {name}")
    return layers


def _check_projection(module: Any, where: str) -> None:
    weight = getattr(module, "weight", None)
    if type(module) is not nn.Linear or weight is None:
        raise InputError(
            f"{where} is a {type(module).__name__}, not a plain linear layer: merge adapters (merge_and_unload) and load "
            "quantised models dequantised, so that values and output projection exist as float weights"
        )
    if not weight.is_floating_point() or weight.is_meta:
        state = "offloaded" if weight.is_meta else f"of type {weight.dtype}"
        raise InputError(f"{where} is {state}; attribution needs its float weights on a device")
