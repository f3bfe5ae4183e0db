"""One forward pass of a language model, with hooks that keep what proximity needs; the model is left as it was."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Iterator
from typing import Any, Literal

import torch
from icml26 import InputError
from torch import Tensor, nn

from icml26_plugin_flashtrace.attention import RecomputedAttention, rotate
from icml26_plugin_flashtrace.families import Family, decoder_layers, family_of
from icml26_plugin_flashtrace.kernel import AttentionRows, Block, StoredAttention, reconstruction_error
from icml26_plugin_flashtrace.models import check_ids, check_length, exclusive, single_sequence
from icml26_plugin_flashtrace.precision import has_short_floats, in_float32

#: Largest error of the residual identity, relative to what attention added, that is accepted in float32.
IDENTITY_TOLERANCE = 1e-4
CHECKED_ROWS = 12
Precision = Literal["float32", "model"]
STORED_BYTES_LIMIT = 8 * 2**30


class _Kept:
    """What the hooks of one layer saw."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}
        self._thread = threading.get_ident()

    def _keep(self, name: str, value: Any) -> None:
        """Keep a value, unless it is of a forward pass of the user's in another thread."""
        if threading.get_ident() == self._thread:
            self.seen[name] = value

    def input_of(self, module: nn.Module, name: str) -> Any:
        """Keep the first argument of a module."""

        def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._keep(name, args[0] if args else kwargs["hidden_states"])

        return module.register_forward_pre_hook(hook, with_kwargs=True)

    def keyword_of(self, module: nn.Module, name: str) -> Any:
        """Keep a keyword argument of a module."""

        def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._keep(name, kwargs.get(name))

        return module.register_forward_pre_hook(hook, with_kwargs=True)

    def output_of(self, module: nn.Module, name: str, item: int | None = None) -> Any:
        """Keep a module's result, or one item of it."""

        def hook(_module: nn.Module, args: Any, output: Any) -> None:
            self._keep(name, output if item is None else output[item])

        return module.register_forward_hook(hook)


@contextlib.contextmanager
def _hooked(layers: list[Any], family: Family, keep_attention: bool) -> Iterator[list[_Kept]]:
    """Hooks on every layer, removed on the way out."""
    kept, handles = [], []
    try:
        for layer in layers:
            one, attention = _Kept(), layer.self_attn
            kept.append(one)
            handles += [
                one.input_of(layer, "x_prev"),
                one.input_of(getattr(layer, family.mid), "x_mid"),
                one.output_of(attention.v_proj, "values"),
            ]
            if keep_attention:
                handles.append(one.output_of(attention, "attention", item=1))
            else:
                normed = family.qk_norm
                handles += [
                    one.keyword_of(attention, "position_embeddings"),
                    one.output_of(attention.q_norm if normed else attention.q_proj, "queries"),
                    one.output_of(attention.k_norm if normed else attention.k_proj, "keys"),
                ]
            if family.post_norm is not None:
                handles.append(one.input_of(getattr(layer, family.post_norm), "result"))
        yield kept
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients, one thread at a time; the training flags of every module come back afterwards."""
    with exclusive(model):
        training = [module for module in model.modules() if module.training]
        model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            for module in training:
                module.training = True


def checked_ids(model: Any, input_ids: Any, max_tokens: int | None = None) -> Tensor:
    """``input_ids`` as (1, N) int64 on the model's device; InputError for batches, foreign ids and what is too long."""
    ids = single_sequence(input_ids)
    check_ids(model, ids)
    check_length(model, len(ids), max_tokens)
    return torch.from_numpy(ids)[None].to(model.get_input_embeddings().weight.device)


def capture_blocks(
    model: Any,
    input_ids: Any,
    *,
    recompute_attention: bool = True,
    precision: Precision = "float32",
    max_tokens: int | None = None,
) -> list[Block]:
    """The blocks of one forward pass over ``input_ids`` (N,) or (1, N).

    ``recompute_attention``: keep queries and keys and compute rows of attention when they are needed (any attention
    implementation, memory O(N)); otherwise keep the model's own probabilities, which takes eager attention and O(L H N^2).
    ``precision``: a model of bfloat16 or float16 weights is evaluated in float32, layer by layer, or as the "model" itself does.
    Raises InputError for unsupported models and input, and when the forward pass gives NaN or infinity.
    """
    family, layers = family_of(model), decoder_layers(model)
    ids = checked_ids(model, input_ids, max_tokens=max_tokens)
    if not recompute_attention:
        _check_stored(model, len(layers), ids.shape[1])
    options: dict[str, Any] = {"use_cache": False}
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        options["logits_to_keep"] = 1
    widened = precision == "float32" and has_short_floats(model)
    wide = in_float32(model, layers) if widened else contextlib.nullcontext()
    with evaluating(model), wide, _hooked(layers, family, not recompute_attention) as kept:
        logits = model(input_ids=ids, **options).logits
        if not bool(torch.isfinite(logits).all()):
            raise InputError(
                "the model's logits are not finite (NaN or infinity); load it in float32 or bfloat16 instead of float16"
            )
        blocks = [_block(layer, one.seen, family, model.config) for layer, one in zip(layers, kept, strict=True)]
    for number, block in enumerate(blocks):
        if not bool(torch.isfinite(block.x_mid).all()):
            raise InputError(
                f"the residual stream of layer {number} is not finite; load the model in float32 or bfloat16"
            )
    return blocks


def _check_stored(model: Any, n_layers: int, n_tokens: int) -> None:
    implementation = getattr(model.config, "_attn_implementation", None)
    if implementation != "eager":
        raise InputError(
            f"stored attention needs the model's probabilities, and attn_implementation={implementation!r} returns none: "
            'load the model with attn_implementation="eager", or leave recompute_attention on'
        )
    size = n_layers * model.config.num_attention_heads * n_tokens**2 * 4
    if size > STORED_BYTES_LIMIT:
        raise InputError(
            f"stored attention of {n_tokens} tokens would take {size / 2**30:.0f} GiB; leave recompute_attention on"
        )


def _block(layer: Any, seen: dict[str, Any], family: Family, config: Any) -> Block:
    module = layer.self_attn
    x_prev, x_mid = seen["x_prev"][0], seen["x_mid"][0]
    n, d_h = x_prev.shape[0], module.head_dim
    weight, bias, row_scale = module.o_proj.weight.detach(), module.o_proj.bias, None
    if family.post_norm is not None:
        norm, result = getattr(layer, family.post_norm), seen["result"][0].float()
        gain = 1.0 + norm.weight.detach().float()
        weight = weight.float() * gain[:, None]
        bias = None if bias is None else bias.float() * gain
        row_scale = torch.rsqrt(result.pow(2).mean(-1) + norm.eps)
    attention: AttentionRows
    if "attention" in seen:
        if seen["attention"] is None:
            raise InputError("the model returned no attention probabilities; leave recompute_attention on")
        attention = StoredAttention(seen["attention"][0])
    else:
        cos, sin = (table[0] for table in seen["position_embeddings"])
        attention = RecomputedAttention(
            rotate(seen["queries"].reshape(n, -1, d_h), cos, sin),
            rotate(seen["keys"].reshape(n, -1, d_h), cos, sin),
            float(module.scaling),
            _window(module, family, config),
            getattr(module, "attn_logit_softcapping", None),
        )
    return Block(
        x_prev, x_mid, seen["values"].reshape(n, -1, d_h), weight, attention,
        None if bias is None else bias.detach(), row_scale,
    )  # fmt: skip


def _window(module: Any, family: Family, config: Any) -> int | None:
    if family.window == "none":
        return None
    return getattr(module if family.window == "module" else config, "sliding_window", None)


def check_identity(blocks: list[Block], rows: list[int]) -> float:
    """The largest error of the residual identity over layers and rows; InputError when it is more than rounding explains.

    1e-4 in float32. A pass in a type with fewer digits (``precision="model"``) rounds attention, values and the stream
    itself, so its bound is eight times that type's epsilon (bfloat16: 0.06). A failure means that this version of the
    model's code computes something else than we capture.
    """
    eps = float(torch.finfo(blocks[0].x_mid.dtype).eps)
    errors = reconstruction_error(blocks, rows, eps=4 * eps)
    worst = float(errors.max())
    if not worst <= max(IDENTITY_TOLERANCE, 8 * eps):
        raise InputError(
            f"x_prev + sum A v does not give x_mid in layer {int(errors.argmax())} (relative error {worst:.2g}): "
            "the model computes attention in a way that this version does not know (patched code, other masks?); "
            "scores would be wrong"
        )
    return worst


def rows_to_check(n_tokens: int, spans: list[tuple[int, int]]) -> list[int]:
    """The ends of the spans and a few rows between first and last token."""
    step = max(1, n_tokens // CHECKED_ROWS)
    return sorted({n_tokens - 1, *range(0, n_tokens, step), *(i for span in spans for i in span)})
