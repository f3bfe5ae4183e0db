"""Forward passes in float32 of models whose weights have fewer digits, one layer's weights at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, MutableMapping
from typing import Any

import torch
from icml26 import InputError
from torch import Tensor, nn


def has_short_floats(module: nn.Module) -> bool:
    """Whether a parameter has fewer digits than float32 (bfloat16, float16)."""
    return any(_is_short(parameter) for parameter in module.parameters())


@contextlib.contextmanager
def in_float32(model: Any, layers: list[Any]) -> Iterator[None]:
    """Within the block ``model`` computes everything between embedding and head in float32, from the weights that it has.

    The residual stream of a bfloat16 model is rounded to 8 bits after every addition, more than many a token contributes.
    Each layer's parameters are widened when the layer is entered, which is exact, and put back when it is left, so that no
    more than one layer is held twice. Autocast is off. InputError for attention kernels that only know 16 bits.
    """
    implementation = str(getattr(model.config, "_attn_implementation", ""))
    if "flash" in implementation:
        raise InputError(
            f"attn_implementation={implementation!r} only computes in 16 bits: load the model with 'sdpa' or 'eager', or "
            "explain its own rounded pass with precision='model'"
        )
    head, swaps = model.get_output_embeddings(), [_Widened(layer) for layer in layers]
    handles = [
        model.get_input_embeddings().register_forward_hook(lambda module, args, output: output.float()),
        head.register_forward_pre_hook(lambda module, args: (args[0].to(module.weight.dtype), *args[1:])),
    ]
    try:
        for layer, swap in zip(layers, swaps, strict=True):
            handles += [layer.register_forward_pre_hook(swap.enter), layer.register_forward_hook(swap.leave)]
        with torch.autocast(model.get_input_embeddings().weight.device.type, enabled=False):
            yield
    finally:
        for handle in handles:
            handle.remove()
        for swap in swaps:
            swap.restore()


class _Widened:
    """A module's parameters and buffers in float32 while it runs."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._own: list[tuple[MutableMapping[str, Any], str, Tensor]] = []

    def enter(self, *_: Any) -> None:
        """Put float32 copies in their place."""
        for part in self._module.modules():
            for tensors in (part._parameters, part._buffers):
                for name, tensor in tensors.items():
                    if _is_short(tensor):
                        self._own.append((tensors, name, tensor))
        for tensors, name, tensor in self._own:
            tensors[name] = tensor.detach().float()

    def leave(self, *_: Any) -> None:
        """The module has run."""
        self.restore()

    def restore(self) -> None:
        """Put back what is still replaced."""
        while self._own:
            tensors, name, tensor = self._own.pop()
            tensors[name] = tensor


def _is_short(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.is_floating_point() and tensor.element_size() < 4
