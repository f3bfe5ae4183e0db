"""Baselines that change the target's weights: gradient ascent, gradient difference, and negative preference optimisation."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from icml26.errors import InputError

from icml26_plugin_divergence_decoding.encoding import Batch, Encoded, collate
from icml26_plugin_divergence_decoding.finetune import (
    FineTune,
    forward,
    next_token_loss,
    optimise,
    same_weights,
    sequence_log_prob,
    shuffled_batches,
)

Objective = Literal["grad-ascent", "grad-diff", "npo"]


@dataclass(frozen=True)
class Unlearning:
    """``objective`` with its weights: loss = ``forget_weight`` * forget part + ``retain_weight`` * NLL(retain).

    Gradient ascent has no retain part. ``beta`` belongs to negative preference optimisation.
    """

    objective: Objective
    training: FineTune
    forget_weight: float = 1.0
    retain_weight: float = 1.0
    beta: float = 0.1


class Pair(NamedTuple):
    """A batch to forget and one to keep; ``reference`` (B,) log-probabilities of the former under the target."""

    forget: Batch
    retain: Batch | None
    reference: torch.Tensor | None


def npo_loss(log_probs: torch.Tensor, reference: torch.Tensor, beta: float) -> torch.Tensor:
    """-(2 / beta) E log sigmoid(-beta (log pi - log pi_ref)) of summed log-probabilities (B,); scalar."""
    return -(2.0 / beta) * torch.nn.functional.logsigmoid(-beta * (log_probs - reference)).mean()


def unlearn(
    target: Any,
    forget: Sequence[Encoded],
    retain: Sequence[Encoded],
    settings: Unlearning,
    generator: torch.Generator,
    *,
    pad: int = 0,
    device: str = "cpu",
) -> tuple[Any, list[float]]:
    """A copy of ``target`` that was trained to forget, in eval mode, and the mean loss of each epoch over ``forget``.

    Raises InputError for an empty forget set, when training diverges, and when it changed no weight.
    """
    if not forget:
        raise InputError("there is nothing to forget: the forget set is empty")
    if not retain and settings.objective != "grad-ascent":
        raise InputError(f"{settings.objective} needs rows to keep, and there are none")
    model = copy.deepcopy(target)
    size = settings.training.batch_size
    reference = _reference_log_probs(target, forget, size, pad, device) if settings.objective == "npo" else None
    keep = _cycle(retain, size, generator, pad, device) if settings.objective != "grad-ascent" else None

    def epoch() -> Iterator[Pair]:
        order = torch.randperm(len(forget), generator=generator).tolist()
        for at in range(0, len(order), size):
            chosen = order[at : at + size]
            batch = collate([forget[i] for i in chosen], pad=pad, device=device)
            yield Pair(
                batch,
                None if keep is None else next(keep),
                None if reference is None else reference[chosen].to(device),
            )

    model.train()
    losses = optimise(
        model,
        settings.training,
        math.ceil(len(forget) / size),
        epoch,
        lambda pair: _loss(model, pair, settings),
    )
    if same_weights(model, target):
        raise InputError("training changed no weight: raise lr or epochs; the result would be the target itself")
    return model.eval(), losses


def _loss(model: Any, pair: Pair, settings: Unlearning) -> torch.Tensor:
    logits = forward(model, pair.forget)
    if settings.objective == "npo":
        assert pair.reference is not None
        part = npo_loss(sequence_log_prob(logits, pair.forget.labels), pair.reference, settings.beta)
    else:
        part = -next_token_loss(logits, pair.forget.labels)
    loss = settings.forget_weight * part
    if pair.retain is not None and settings.retain_weight:
        loss = loss + settings.retain_weight * next_token_loss(forward(model, pair.retain), pair.retain.labels)
    return loss


@torch.no_grad()
def _reference_log_probs(target: Any, rows: Sequence[Encoded], size: int, pad: int, device: str) -> torch.Tensor:
    found = []
    for at in range(0, len(rows), size):
        batch = collate(rows[at : at + size], pad=pad, device=device)
        found.append(sequence_log_prob(forward(target, batch), batch.labels).cpu())
    return torch.cat(found)


def _cycle(rows: Sequence[Encoded], size: int, generator: torch.Generator, pad: int, device: str) -> Iterator[Batch]:
    while True:
        yield from shuffled_batches(rows, size, generator, pad=pad, device=device)
