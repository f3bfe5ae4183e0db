"""The penultimate features of any network: what enters the last linear layer that runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from icml26.errors import InputError
from torch import nn

from icml26_plugin_timeguard.windows import WindowSet


@torch.no_grad()
def last_linear(model: nn.Module, history: torch.Tensor) -> nn.Linear:
    """The linear layer that runs last in a forward pass on ``history`` (B, L_in, C); InputError when there is none."""
    seen: list[nn.Linear] = []
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    handles = [module.register_forward_pre_hook(lambda layer, _: seen.append(layer)) for module in linears]
    try:
        model.eval()
        model(history[:1])
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        raise InputError("This baseline needs a network with a linear layer (torch.nn.Linear) to look at its features.")
    return seen[-1]


@contextmanager
def recorded_inputs(layer: nn.Linear) -> Iterator[list[torch.Tensor]]:
    """Collect what enters ``layer`` while the block runs; the layer is left as it was."""
    inputs: list[torch.Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0].detach()))
    try:
        yield inputs
    finally:
        handle.remove()


@torch.no_grad()
def penultimate(model: nn.Module, windows: WindowSet, batch_size: int = 1024) -> torch.Tensor:
    """Inputs of the last linear layer for all windows, (N, ..., features), in eval mode."""
    layer = last_linear(model, windows.history)
    with recorded_inputs(layer) as inputs:
        for index in torch.arange(len(windows), device=windows.history.device).split(batch_size):
            model(windows.history[index])
    return torch.cat(inputs)
