"""What token ids and masks must be before three models read them; transformers would fail deep inside, or broadcast."""

from __future__ import annotations

from typing import Any

import torch
from icml26.errors import InputError


def check_ids(ids: Any, mask: Any, size: int, *, past: bool = False) -> None:
    """InputError unless ``ids`` (B, T) are ids below ``size`` of at least one token, and ``mask``, where given, covers them.

    ``past``: the mask (B, T_all) also covers what a cache holds.
    """
    if not isinstance(ids, torch.Tensor):
        raise InputError(
            f"input_ids must be a tensor of token ids (batch, tokens), not a {type(ids).__name__}: these models read ids, "
            "embeddings cannot be shared among them."
        )
    if ids.ndim != 2 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise InputError(f"input_ids are {_told(ids)}; they must be integers of shape (batch, tokens).")
    if not ids.numel():
        raise InputError(
            f"input_ids are {_told(ids)}: there is no token to go on from; give at least one, such as BOS."
        )
    low, high = (int(i) for i in torch.aminmax(ids))
    if low < 0 or high >= size:
        raise InputError(
            f"input_ids hold the id {low if low < 0 else high}, the target's vocabulary has {size}: is the tokenizer another?"
        )
    if mask is not None:
        _check_mask(mask, ids, past)


def _check_mask(mask: Any, ids: torch.Tensor, past: bool) -> None:
    if not isinstance(mask, torch.Tensor) or mask.ndim != 2:
        raise InputError(
            "attention_mask must be a tensor (batch, tokens), 1 where there is a token and 0 where padding."
        )
    fits = mask.shape[1] >= ids.shape[1] if past else mask.shape[1] == ids.shape[1]
    if len(mask) != len(ids) or not fits:
        raise InputError(f"The attention_mask {tuple(mask.shape)} does not fit the input_ids {tuple(ids.shape)}.")


def check_left_padded(mask: torch.Tensor) -> None:
    """InputError when a row of ``mask`` (B, T) is padding alone, or ends in padding."""
    if bool((mask != 0).sum(1).eq(0).any()):
        raise InputError("A prompt is padding alone: give it at least one token, such as BOS.")
    if bool((mask[:, -1] == 0).any()):
        raise InputError("A prompt is padded on the right: generation continues at its end, so pad on the left.")


def _told(ids: torch.Tensor) -> str:
    return f"{str(ids.dtype).removeprefix('torch.')} of shape {tuple(ids.shape)}"
