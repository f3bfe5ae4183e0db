"""Perturbation: replace a sentence (or a token) of the prompt by nothing and see what the model then thinks of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from icml26_plugin_flashtrace.likelihood import as_batch, batches, generation_logits, token_log_probs

_ENDS = (".", "!", "?", ";", "。", "！", "？")
_CLOSERS = "\"'”’)]}»"


def sentence_units(tokens: Sequence[str]) -> list[np.ndarray]:
    """Indices of the tokens of each sentence, in order; together they are all tokens.

    A sentence ends with a token that ends in ``. ! ? ;`` (also behind quotes or brackets) when white space or nothing
    follows, and with a token that holds a line break.
    """
    units, start = [], 0
    for k, token in enumerate(tokens):
        following = tokens[k + 1] if k + 1 < len(tokens) else " "
        if "\n" in token or (_ends(token) and (following[:1].isspace() or token[-1:].isspace())):
            units.append(np.arange(start, k + 1))
            start = k + 1
    if start < len(tokens):
        units.append(np.arange(start, len(tokens)))
    return units


def token_units(tokens: Sequence[str]) -> list[np.ndarray]:
    """Every token alone."""
    return [np.array([k]) for k in range(len(tokens))]


def perturbation(
    model: Any,
    ids: np.ndarray,
    n_prompt: int,
    weights: np.ndarray,
    units: Sequence[np.ndarray],
    *,
    filler: int,
    score: Literal["log-prob", "kl"] = "log-prob",
    batch_size: int = 8,
) -> np.ndarray:
    """(P,) float64: each unit's effect on the answer, given to every token of the unit.

    ``log-prob``: how much the answer's log-probability falls (signed, nats). ``kl``: the sum over answer tokens of
    KL(intact || perturbed) of the model's next-token distribution (never negative, nats).
    """
    effects = np.zeros(len(units))
    rows = np.tile(ids, (len(units), 1))
    for k, unit in enumerate(units):
        rows[k, unit] = filler
    with torch.no_grad():
        original = as_batch(model, ids)
        targets = original[:, n_prompt:]
        scale = torch.as_tensor(weights, dtype=torch.float32, device=original.device)
        intact = torch.log_softmax(generation_logits(model, original, n_prompt), dim=-1)
        done = 0
        for batch in batches(rows, batch_size):
            logits = generation_logits(model, as_batch(model, batch), n_prompt)
            if score == "kl":
                perturbed = torch.log_softmax(logits, dim=-1)
                change = (intact.exp() * (intact - perturbed)).sum(-1)
            else:
                before = intact.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
                change = before - token_log_probs(logits, targets.expand(len(batch), -1))
            effects[done : done + len(batch)] = (change * scale).sum(-1).double().cpu().numpy()
            done += len(batch)
    scores = np.zeros(n_prompt)
    for unit, effect in zip(units, effects, strict=True):
        scores[unit] = effect
    return scores


def _ends(token: str) -> bool:
    return token.rstrip().rstrip(_CLOSERS).endswith(_ENDS)
