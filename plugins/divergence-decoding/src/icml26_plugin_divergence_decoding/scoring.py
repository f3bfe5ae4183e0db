"""What a model says of rows: log-probabilities of their answers' tokens, and its own greedy answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from icml26.errors import InputError

from icml26_plugin_divergence_decoding.encoding import IGNORED, Encoded, collate, encode, left_pad, pad_id
from icml26_plugin_divergence_decoding.task import QA, Format, Row


class TokenScores(NamedTuple):
    """Of the N tokens of an answer, the end mark left out: ``log_probs`` (N,) nats, whether the arg max is ``right``
    (N,), ``mean`` and ``variance`` (N,) of the log-probability of a token that the model itself would draw there.
    """

    log_probs: np.ndarray
    right: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


def row_scores(
    model: Any, rows: Sequence[Row], tokenizer: Any, form: Format, *, batch_size: int = 128
) -> list[TokenScores]:
    """Token scores of each row's answer (of a text: of all its tokens but the first of each block)."""
    end = getattr(tokenizer, "eos_token_id", None)
    blocks = [
        [_without_end(s, end) if isinstance(row, QA) else s for s in encode(row, tokenizer, form)] for row in rows
    ]
    for row, found in zip(rows, blocks, strict=True):
        if not any(len(block.ids) > block.start for block in found):
            raise InputError(f"The row {str(row)[:60]!r} has no token to score: it is empty.")
    flat = [block for found in blocks for block in found]
    scores = iter(token_scores(model, flat, pad=pad_id(tokenizer), batch_size=batch_size))
    return [_joined([next(scores) for _ in found]) for found in blocks]


@torch.no_grad()
def token_scores(model: Any, sequences: Sequence[Encoded], *, pad: int = 0, batch_size: int = 128) -> list[TokenScores]:
    """Token scores of each sequence from its ``start`` on. Raises InputError when the model's logits are NaN there.

    Sequences are batched by length. Beyond the model's own logits, memory is of the size answer tokens in a batch x vocabulary.
    """
    device = next(iter(model.parameters())).device
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i].ids))
    found: dict[int, TokenScores] = {}
    for at in range(0, len(order), batch_size):
        chosen = order[at : at + batch_size]
        batch = collate([sequences[i] for i in chosen], pad=pad, device=str(device))
        logits = model(input_ids=batch.ids, attention_mask=batch.mask).logits
        kept = batch.labels[:, 1:] != IGNORED
        scores = _position_scores(logits[:, :-1][kept].float(), batch.labels[:, 1:][kept])
        ends = kept.sum(-1).cumsum(0).tolist()
        for i, start, end in zip(chosen, [0, *ends[:-1]], ends, strict=True):
            found[i] = TokenScores(*(part[start:end] for part in scores))
    return [found[i] for i in range(len(sequences))]


def _position_scores(logits: torch.Tensor, targets: torch.Tensor) -> tuple[np.ndarray, ...]:
    """The four parts of ``TokenScores`` at positions (n,): logits (n, V) float32, targets (n,)."""
    if torch.isnan(logits).any():
        raise InputError("The model's logits hold NaN: it has diverged, or every token of a position is masked.")
    log_probs = torch.log_softmax(logits, -1)
    weights = log_probs.exp()
    finite = log_probs.masked_fill(weights == 0, 0.0)  # a masked token has weight 0, but 0 * -inf would be NaN
    mean = (weights * finite).sum(-1)
    variance = (weights * (finite - mean[:, None]).square()).sum(-1)
    own = log_probs.gather(-1, targets[:, None])[:, 0]
    parts = (own.double(), logits.argmax(-1) == targets, mean.double(), variance.double())
    return tuple(part.cpu().numpy() for part in parts)


@torch.no_grad()
def greedy(
    model: Any, prompts: Sequence[Sequence[int]], max_new_tokens: int, tokenizer: Any, *, batch_size: int = 128
) -> list[list[int]]:
    """Greedy continuations of prompts, each cut at its first end mark."""
    device = next(iter(model.parameters())).device
    pad, end = pad_id(tokenizer), getattr(tokenizer, "eos_token_id", None)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    found: dict[int, list[int]] = {}
    for at in range(0, len(order), batch_size):
        chosen = order[at : at + batch_size]
        ids, mask = left_pad([prompts[i] for i in chosen], pad=pad, device=str(device))
        written = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            eos_token_id=end,
            pad_token_id=pad,
        )
        for i, new in zip(chosen, written[:, ids.shape[1] :].tolist(), strict=True):
            found[i] = new[: new.index(end)] if end in new else new
    return [found[i] for i in range(len(prompts))]


def _without_end(sequence: Encoded, end: int | None) -> Encoded:
    ids = sequence.ids[:-1] if sequence.ids and sequence.ids[-1] == end else sequence.ids
    return Encoded(ids, sequence.start)


def _joined(parts: Sequence[TokenScores]) -> TokenScores:
    return parts[0] if len(parts) == 1 else TokenScores(*(np.concatenate(part) for part in zip(*parts, strict=True)))
