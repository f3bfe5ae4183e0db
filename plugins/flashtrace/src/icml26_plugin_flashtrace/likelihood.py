"""What a causal language model thinks of a given generation: log-probabilities of its tokens, one forward pass, no sampling."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from icml26 import InputError


def device_of(model: Any) -> torch.device:
    """Where the token embeddings lie: the device that a forward pass expects its ids on."""
    return model.get_input_embeddings().weight.device


def as_batch(model: Any, ids: np.ndarray) -> torch.Tensor:
    """Ids (N,) or (B, N) as an int64 tensor (B, N) on the model's device."""
    return torch.as_tensor(np.atleast_2d(ids), dtype=torch.int64, device=device_of(model))


def generation_logits(model: Any, ids: torch.Tensor, n_prompt: int, **options: Any) -> torch.Tensor:
    """Logits (B, G, vocabulary) float32 that predict the G = N - P generated tokens of ids (B, N).

    Where the model allows it (``logits_to_keep``) the prompt's own logits are never computed. Raises InputError when a
    logit is not finite, or when there is no prompt token to predict the first one from.
    """
    if n_prompt < 1:
        raise InputError("the prompt has no token: the first generated token cannot be predicted; give a prompt")
    generated = ids.shape[1] - n_prompt
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        options["logits_to_keep"] = generated + 1
    logits = model(input_ids=ids, use_cache=False, **options).logits[:, -(generated + 1) : -1].float()
    if not bool(torch.isfinite(logits).all()):
        raise InputError("the model's logits are not finite (NaN or infinite): try another dtype, e.g. float32")
    return logits


def token_log_probs(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """log p (B, G) of targets (B, G) under logits (B, G, vocabulary)."""
    chosen = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return chosen - torch.logsumexp(logits, dim=-1)


def log_probs(model: Any, ids: np.ndarray, n_prompt: int, *, batch_size: int = 8) -> np.ndarray:
    """log p (B, G) float64 of the generated tokens of ids (B, N), natural logarithm, each given all before it.

    Sequences have one length, so nothing is padded. ``batch_size`` bounds memory only.
    """
    rows = []
    with torch.no_grad():
        for batch in batches(ids, batch_size):
            tensor = as_batch(model, batch)
            logits = generation_logits(model, tensor, n_prompt)
            rows.append(token_log_probs(logits, tensor[:, n_prompt:]).double().cpu().numpy())
    return np.concatenate(rows)


def batches(ids: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Rows of ids (B, N) in pieces of at most ``batch_size``."""
    rows = np.atleast_2d(ids)
    for start in range(0, len(rows), batch_size):
        yield rows[start : start + batch_size]


def filler_id(tokenizer: Any, model: Any, *, prefer: str = "pad") -> int:
    """The token that stands for "nothing": padding, else end of sequence (``prefer="eos"``: the other way round).

    Raises InputError when there is neither.
    """
    order = ("pad_token_id", "eos_token_id") if prefer == "pad" else ("eos_token_id", "pad_token_id")
    for owner in (tokenizer, getattr(model, "config", None)):
        for name in order:
            value = getattr(owner, name, None)
            if isinstance(value, list | tuple) and value:
                value = value[0]
            if isinstance(value, int):
                return value
    raise InputError("neither tokenizer nor model has a padding or end-of-sequence token to put in a token's place")


def eos_id(tokenizer: Any, model: Any) -> int | None:
    """The end-of-sequence token, None where there is none."""
    for owner in (tokenizer, getattr(model, "config", None)):
        value = getattr(owner, "eos_token_id", None)
        if isinstance(value, list | tuple) and value:
            value = value[0]
        if isinstance(value, int):
            return value
    return None
