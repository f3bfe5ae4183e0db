"""Mean attention: what the answer's tokens look at, averaged over layers and heads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from icml26 import InputError

from icml26_plugin_flashtrace.likelihood import as_batch
from icml26_plugin_flashtrace.models import exclusive
from icml26_plugin_flashtrace.task import Captures


@contextmanager
def attention_rows(model: Any, rows: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Within the block a forward pass appends, layer by layer, the head mean (M, N) of the attention of ``rows``.

    Each layer is reduced at once, so that one layer's attention is in memory at a time. Raises InputError when the
    model's attention hands out no probabilities (SDPA and flash attention do not).
    """
    found: list[torch.Tensor] = []

    def hook(module: Any, inputs: Any, output: Any) -> None:
        weights = output[1] if isinstance(output, tuple) and len(output) > 1 else None
        if weights is None:
            raise InputError(
                "the model's attention gives no probabilities: load it with attn_implementation='eager' "
                "(or model.set_attn_implementation('eager'))"
            )
        found.append(weights[0][:, rows].float().mean(0))

    with exclusive(model), ExitStack() as undo:
        for name, module in model.named_modules():
            if name.rsplit(".", 1)[-1] in ("self_attn", "attn", "attention"):
                undo.callback(module.register_forward_hook(hook).remove)
        yield found


def mean_attention(model: Any, ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(N,) float64: attention of the tokens ``rows`` (M,) to every token, mean over layers, heads and rows."""
    batch = as_batch(model, ids)
    with torch.no_grad(), attention_rows(model, torch.as_tensor(rows, device=batch.device)) as found:
        model(input_ids=batch, use_cache=False)
    if not found:
        raise InputError(
            f"{type(model).__name__} has no attention module that is known; mean-attention cannot be taken"
        )
    return torch.stack(found).double().mean((0, 1)).cpu().numpy()


def mean_captured_attention(captures: Captures, rows: np.ndarray) -> np.ndarray:
    """The same from captures."""
    return np.mean([layer.attention[:, rows].astype(np.float64).mean((0, 1)) for layer in captures.layers], axis=0)
