"""Reading and replacing activations inside a transformers model, at a hook point given by name; the model stays as it was."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from icml26.errors import InputError
from torch import nn

#: Hook points of a layer: the attention output after the output projection, the heads before it, the output of the MLP, the
#: residual stream after and before the block.
POINTS = ("attn_out", "heads", "mlp_out", "resid_post", "resid_pre")

_NAME = re.compile(r"layers\.(\d+)\.([a-z_]+)")
_ATTENTION = ("self_attn", "attn", "attention", "self_attention")
_PROJECTION = ("o_proj", "out_proj", "c_proj", "dense", "wo")
_MLP = ("mlp", "feed_forward", "ffn", "block_sparse_moe")


@dataclass(frozen=True)
class HookPoint:
    """A module of the model and whether its input or its output is meant; ``name`` as the user gave it."""

    name: str
    module: nn.Module
    side: Literal["in", "out"]


def transformer_layers(model: nn.Module) -> nn.ModuleList:
    """The list of blocks: the longest ModuleList, of the length that the config gives when it does; InputError without one."""
    wanted = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) > 0]
    fitting = [module for module in lists if wanted is None or len(module) == wanted]
    if not fitting:
        raise InputError(
            f"{type(model).__name__} has no list of layers: name a module of it (see named_modules()) instead."
        )
    return max(fitting, key=len)


def resolve_hook(model: nn.Module, name: str) -> HookPoint:
    """The hook point ``name`` of a model.

    ``layers.L.attn_out``, ``.heads``, ``.mlp_out``, ``.resid_post`` and ``.resid_pre``, or a module's path as in
    ``named_modules()``, with ``:in`` for its input. Raises InputError that lists what is near.
    """
    match = _NAME.fullmatch(name)
    if match and match[2] in POINTS:
        layers = transformer_layers(model)
        index = int(match[1])
        if index >= len(layers):
            raise InputError(f"hook {name!r}: the model has {len(layers)} layers, 0 to {len(layers) - 1}.")
        return _of_layer(name, layers[index], match[2])
    path, _, side = name.partition(":")
    modules = dict(model.named_modules())
    if path in modules and path and side in ("", "in", "out"):
        return HookPoint(name, modules[path], "in" if side == "in" else "out")
    examples = [f"layers.{match[1] if match else 0}.{point}" for point in POINTS]
    near = difflib.get_close_matches(path, [*examples, *modules], n=3, cutoff=0.6)
    raise InputError(
        f"hook {name!r} is no hook point of {type(model).__name__}; "
        + (f"nearest: {', '.join(near)}; " if near else "")
        + f"hook points are layers.L.{{{', '.join(POINTS)}}} or a module's path."
    )


def _of_layer(name: str, layer: nn.Module, point: str) -> HookPoint:
    if point in ("resid_post", "resid_pre"):
        return HookPoint(name, layer, "out" if point == "resid_post" else "in")
    if point == "mlp_out":
        return HookPoint(name, _child(name, layer, _MLP), "out")
    attention = _child(name, layer, _ATTENTION)
    return HookPoint(name, _child(name, attention, _PROJECTION), "in" if point == "heads" else "out")


def _child(name: str, module: nn.Module, candidates: tuple[str, ...]) -> nn.Module:
    for candidate in candidates:
        child = getattr(module, candidate, None)
        if isinstance(child, nn.Module):
            return child
    found = ", ".join(key for key, _ in module.named_children())
    raise InputError(
        f"hook {name!r}: {type(module).__name__} has none of {', '.join(candidates)}; it has {found}: name the module."
    )


def _first_tensor(name: str, value: Any) -> torch.Tensor:
    tensor = value[0] if isinstance(value, tuple) and value else value
    if not isinstance(tensor, torch.Tensor) or tensor.ndim != 3:
        shape = tuple(getattr(tensor, "shape", ())) or type(tensor).__name__
        raise InputError(f"hook {name!r}: the module gives {shape}, not activations (batch, position, dimension).")
    return tensor


class _Enough(Exception):  # noqa: N818 - not an error
    """All wanted activations were seen: the rest of the forward pass is not needed."""


@torch.inference_mode()
def run_captured(model: nn.Module, input_ids: torch.Tensor, hooks: Mapping[str, HookPoint]) -> dict[str, torch.Tensor]:
    """Activations (B, S, d) at each hook for ``input_ids`` (B, S); the forward pass ends once the last one is seen."""
    seen: dict[str, torch.Tensor] = {}

    def keep(key: str, value: Any) -> None:
        seen[key] = _first_tensor(hooks[key].name, value).detach()
        if len(seen) == len(hooks):
            raise _Enough

    with contextlib.ExitStack() as stack:
        for key, hook in hooks.items():
            stack.callback(_attach(hook, key, keep).remove)
        with contextlib.suppress(_Enough):
            model(input_ids=input_ids, use_cache=False)
    missing = [hooks[key].name for key in hooks if key not in seen]
    if missing:
        raise InputError(f"hook {missing[0]!r} was never reached in a forward pass: name another module.")
    return seen


def _attach(hook: HookPoint, key: str, keep: Callable[[str, Any], None]) -> Any:
    if hook.side == "out":
        return hook.module.register_forward_hook(lambda _module, _args, output: keep(key, output))

    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        keep(key, args if args else next(iter(kwargs.values())))

    return hook.module.register_forward_pre_hook(before, with_kwargs=True)


@contextlib.contextmanager
def replaced(hook: HookPoint, function: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Within the context the activations (B, S, d) at ``hook`` are what ``function`` makes of them, of the same shape."""

    def change(value: Any) -> Any:
        new = function(_first_tensor(hook.name, value))
        return (new, *value[1:]) if isinstance(value, tuple) else new

    if hook.side == "out":
        handle = hook.module.register_forward_hook(lambda _module, _args, output: change(output))
    else:
        handle = hook.module.register_forward_pre_hook(lambda _module, args: change(args))
    try:
        yield
    finally:
        handle.remove()
