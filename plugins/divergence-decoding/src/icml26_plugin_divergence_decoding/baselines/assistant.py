"""Auxiliaries of the offset baselines: ULD's assistant, made of the target's first layers, and WHP's reinforced model."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from icml26.errors import InputError
from torch import nn

from icml26_plugin_divergence_decoding.baselines.gradient import Pair
from icml26_plugin_divergence_decoding.encoding import IGNORED, Encoded, collate
from icml26_plugin_divergence_decoding.finetune import (
    FineTune,
    finetune,
    forward,
    next_token_loss,
    optimise,
    same_weights,
    shuffled_batches,
)

_LAYERS = (("model", "layers"), ("transformer", "h"), ("gpt_neox", "layers"))


class LoraLinear(nn.Module):
    """A frozen linear map plus a trained one of low ``rank``; it starts as the frozen one."""

    def __init__(self, frozen: nn.Linear, rank: int, generator: torch.Generator, scale: float = 2.0) -> None:
        super().__init__()
        self.frozen, self.scale = frozen.requires_grad_(False), scale
        down = torch.empty(rank, frozen.in_features).normal_(0, frozen.in_features**-0.5, generator=generator)
        self.down = nn.Parameter(down.to(frozen.weight.device, frozen.weight.dtype))
        self.up = nn.Parameter(frozen.weight.new_zeros(frozen.out_features, rank))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The map of hidden states (..., n)."""
        mapped: torch.Tensor = self.frozen(hidden)
        return mapped + self.scale * (hidden @ self.down.T) @ self.up.T

    def merged(self) -> nn.Linear:
        """One linear map that does the same."""
        with torch.no_grad():
            self.frozen.weight += self.scale * self.up @ self.down
        return self.frozen.requires_grad_(True)


def first_layers(model: Any, count: int) -> Any:
    """A copy of a transformer that ends after its first ``count`` blocks. Raises InputError when it has fewer, or none."""
    for body, blocks in _LAYERS:
        found = getattr(getattr(model, body, None), blocks, None)
        if isinstance(found, nn.ModuleList):
            break
    else:
        raise InputError(f"{type(model).__name__} is of no family whose layers are known (Llama-like, GPT-2, GPT-NeoX)")
    if not 1 <= count <= len(found):
        raise InputError(f"the target has {len(found)} layers; {count} of them cannot be taken")
    owner = getattr(model, body)
    kept, whole = nn.ModuleList(list(found)[:count]), found
    setattr(owner, blocks, kept)
    try:
        short = copy.deepcopy(model)
    finally:
        setattr(owner, blocks, whole)
    name = "num_hidden_layers" if hasattr(short.config, "num_hidden_layers") else "n_layer"
    setattr(short.config, name, count)
    return short.eval()


def add_lora(model: nn.Module, rank: int, generator: torch.Generator) -> None:
    """Freeze ``model`` and put a trainable map of low ``rank`` beside every linear map inside its blocks, in place."""
    model.requires_grad_(False)
    output = getattr(model, "get_output_embeddings", lambda: None)()
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and child is not output:
                setattr(module, name, LoraLinear(child, rank, generator))


def merge_lora(model: nn.Module) -> None:
    """Fold the trained maps into the frozen ones, in place."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LoraLinear):
                setattr(module, name, child.merged())
    model.requires_grad_(True)


def uniform_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy (scalar, nats) of the uniform distribution against logits (B, T, V), where labels are learnt."""
    kept = labels[:, 1:] != IGNORED
    return -torch.log_softmax(logits[:, :-1][kept].float(), -1).mean()


def uld_assistant(
    target: Any,
    forget: Sequence[Encoded],
    retain: Sequence[Encoded],
    training: FineTune,
    generator: torch.Generator,
    *,
    layers: int,
    rank: int = 32,
    retain_weight: float = 1.0,
    pad: int = 0,
    device: str = "cpu",
) -> Any:
    """The target's first ``layers``, trained to know ``forget`` and to be uniform on ``retain``; ``rank`` 0 trains all."""
    model = first_layers(target, layers)
    if rank:
        add_lora(model, rank, generator)
    size = training.batch_size

    def epoch() -> Iterator[Pair]:
        keep = shuffled_batches(retain, size, generator, pad=pad, device=device)
        order = torch.randperm(len(forget), generator=generator).tolist()
        starts = range(0, len(order), size)
        for at, kept in zip(starts, keep, strict=False):
            yield Pair(collate([forget[i] for i in order[at : at + size]], pad=pad, device=device), kept, None)

    def loss(pair: Pair) -> torch.Tensor:
        assert pair.retain is not None
        known = next_token_loss(forward(model, pair.forget), pair.forget.labels)
        return known + retain_weight * uniform_loss(forward(model, pair.retain), pair.retain.labels)

    model.train()
    steps = min(math.ceil(len(forget) / size), math.ceil(len(retain) / size))
    optimise(model, training, steps, epoch, loss)
    if rank:
        merge_lora(model)
    return model.eval()


def reinforced(
    target: Any,
    forget: Sequence[Encoded],
    training: FineTune,
    generator: torch.Generator,
    *,
    pad: int = 0,
    device: str = "cpu",
) -> Any:
    """A copy of the target that was trained further on what is to be forgotten."""
    model = copy.deepcopy(target)
    finetune(model, forget, training, generator, pad=pad, device=device)
    if same_weights(model, target):
        raise InputError("training changed no weight: raise lr or epochs")
    return model
