"""Calling any causal language model alike: only arguments that its ``forward`` knows, positions from the mask."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from icml26.errors import InputError
from transformers.utils import ModelOutput


def positions(mask: torch.Tensor) -> torch.Tensor:
    """Position ids (B, T) of a mask (B, T): the first token of a row is at 0 wherever its padding ends."""
    return (mask.long().cumsum(-1) - 1).clamp_min(0)


@dataclass
class LMOutput(ModelOutput):
    """What our models return: ``loss`` (), ``logits`` (B, T, V), ``cache`` of what was seen."""

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    cache: Any = None

    @property
    def past_key_values(self) -> Any:
        """The cache, by its name before transformers 5.24."""
        return self.cache


@functools.lru_cache(maxsize=64)
def _known(forward: Any) -> frozenset[str]:
    """The optional arguments of ``forward`` that we use and that it names."""
    names = inspect.signature(forward).parameters
    return frozenset({"position_ids", "logits_to_keep", "cache", "past_key_values", "use_cache"} & set(names))


def call(
    model: Any,
    ids: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    cache: Any = None,
    use_cache: bool = False,
    keep: int = 0,
    position_ids: torch.Tensor | None = None,
) -> Any:
    """The output of ``model`` on new ``ids`` (B, T) after ``cache``; ``mask`` (B, T_all) covers past and new tokens.

    Logits are those of the last ``keep`` positions, all for 0.
    """
    known = _known(type(model).forward)
    options: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
    if "position_ids" in known and (position_ids is not None or mask is not None):
        options["position_ids"] = positions(mask)[:, -ids.shape[1] :] if position_ids is None else position_ids
    if "use_cache" in known:
        options["use_cache"] = use_cache
    if cache is not None:
        options["cache" if "cache" in known else "past_key_values"] = cache
    if keep and "logits_to_keep" in known:
        options["logits_to_keep"] = keep
    output = model(**options)
    if keep and output.logits.shape[1] != keep:
        output.logits = output.logits[:, -keep:]
    return output


def cache_of(output: Any) -> Any:
    """The cache that a model returned, whichever its name: transformers renamed it in its fifth series."""
    return output.get("cache") if "cache" in output.keys() else output.get("past_key_values")  # noqa: SIM118


def refuse_nan(logits: torch.Tensor, whose: str, mask: torch.Tensor | None = None) -> None:
    """InputError when a logit is NaN at a position that is not padding."""
    wrong = torch.isnan(logits).any(-1)
    if mask is not None:
        wrong &= mask[:, -logits.shape[1] :].bool()
    if bool(wrong.any()):
        raise InputError(f"The {whose} gives NaN logits: its weights are damaged, or its dtype overflows.")
