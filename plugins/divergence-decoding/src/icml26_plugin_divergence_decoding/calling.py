"""Calling any causal language model alike: only arguments that its ``forward`` knows, positions from the mask."""

from __future__ import annotations

import functools
import inspect
import warnings
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

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
    _check_length(model, ids, mask)
    if mask is not None and cache is not None and "position_ids" not in known and getattr(model, "_is_stateful", False):
        mask = mask[:, -ids.shape[1] :]  # state-space models multiply what they are fed by it
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


_LONG: WeakSet[Any] = WeakSet()


def _check_length(model: Any, ids: torch.Tensor, mask: torch.Tensor | None) -> None:
    """InputError when positions lie beyond a table of learnt ones; where they are computed, a warning, once a model."""
    limit = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    total = ids.shape[1] if mask is None else mask.shape[1]
    if not isinstance(limit, int) or not 0 < limit < total or model in _LONG:
        return
    longest = total if mask is None else int(mask.long().sum(1).max())
    if longest <= limit:
        return
    told = f"{type(model).__name__} was made for {limit} tokens and is given {longest}"
    if learnt_positions(model):
        raise InputError(f"{told}: shorten prompts or max_new_tokens, or take models of a longer context.")
    _LONG.add(model)
    warnings.warn(f"{told}: what it says beyond that means little.", stacklevel=2)


def learnt_positions(model: Any) -> bool:
    """Whether positions are a table that ends (GPT-2, OPT), not computed (Llama)."""
    limit = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    words = getattr(model, "get_input_embeddings", lambda: None)()
    tables = (m for m in model.modules() if isinstance(m, torch.nn.Embedding) and m is not words)
    # A table may have a few rows more, for padding.
    return isinstance(limit, int) and any(limit <= table.num_embeddings <= limit + 4 for table in tables)


def refuse_nan(logits: torch.Tensor, whose: str, mask: torch.Tensor | None = None, *, finite: bool = False) -> None:
    """InputError when a logit is NaN or plus infinity, with ``finite`` also minus infinity, at a position that is not padding.

    Minus infinity is how other logits processors forbid a token; of an auxiliary it would steer by NaN.
    """
    total = logits.sum(-1, dtype=torch.float32)  # one pass without a mask of (B, T, V): a sum keeps what is not finite
    wrong = ~torch.isfinite(total) if finite else torch.isnan(total) | (total == torch.inf)
    if mask is not None:
        wrong &= mask[:, -logits.shape[1] :].bool()
    if bool(wrong.any()):
        raise InputError(
            f"The {whose} gives NaN{' or infinite' if finite else ''} logits: its weights are damaged, or its dtype overflows."
        )
