"""Training on CPU-sized problems: one AdamW loop that the offline data sets and the gradient baselines share.

Nothing here draws from a global generator: the order of rows comes from the generator that is handed in, and the small models
have no dropout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from icml26.errors import InputError

from icml26_plugin_divergence_decoding.encoding import IGNORED, Batch, Encoded, collate

B = TypeVar("B")
Schedule = Literal["one-cycle", "cosine", "constant"]


@dataclass(frozen=True)
class FineTune:
    """How to train: AdamW with ``lr`` (peak) over ``epochs``; ``warmup`` is the share of the steps in which the rate rises."""

    lr: float
    epochs: int
    batch_size: int = 32
    weight_decay: float = 0.01
    schedule: Schedule = "one-cycle"
    warmup: float = 0.1
    max_grad_norm: float = 1.0


def next_token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean negative log-likelihood (nats, scalar) of labels (B, T) that are not -100, under logits (B, T, V)."""
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=IGNORED
    )


def sequence_log_prob(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Summed log-probability (B,) of the labels (B, T) that are not -100, under logits (B, T, V)."""
    targets = labels[:, 1:]
    kept = targets != IGNORED
    found = torch.log_softmax(logits[:, :-1].float(), -1).gather(-1, targets.clamp_min(0)[..., None])[..., 0]
    return (found * kept).sum(-1)


def forward(model: Any, batch: Batch) -> torch.Tensor:
    """Logits (B, T, V) of a padded batch."""
    logits: torch.Tensor = model(input_ids=batch.ids, attention_mask=batch.mask, use_cache=False).logits
    return logits


def shuffled_batches(
    sequences: Sequence[Encoded], size: int, generator: torch.Generator, *, pad: int = 0, device: str = "cpu"
) -> Iterable[Batch]:
    """One epoch: every sequence once, in an order drawn from ``generator``."""
    order = torch.randperm(len(sequences), generator=generator).tolist()
    for at in range(0, len(order), size):
        yield collate([sequences[i] for i in order[at : at + size]], pad=pad, device=device)


def optimise(
    model: Any, settings: FineTune, steps: int, epoch: Callable[[], Iterable[B]], loss: Callable[[B], torch.Tensor]
) -> list[float]:
    """Minimise ``loss`` over the batches of ``settings.epochs`` epochs of ``steps`` steps; the mean loss of each epoch.

    Raises InputError when the loss stops being finite: the learning rate is too large, and what follows would be noise.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(
        parameters, lr=settings.lr, weight_decay=settings.weight_decay, betas=(0.9, 0.98), fused=True
    )
    total, done, means = max(1, steps * settings.epochs), 0, []
    for _ in range(settings.epochs):
        summed, count = 0.0, 0
        for batch in epoch():
            for group in optimiser.param_groups:
                group["lr"] = settings.lr * rate(done / total, settings)
            value = loss(batch)
            if not torch.isfinite(value):
                raise InputError(f"training diverged at step {done} (loss {value.item()}): lower lr={settings.lr:g}")
            optimiser.zero_grad(set_to_none=True)
            value.backward()
            torch.nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm)
            optimiser.step()
            done, summed, count = done + 1, summed + value.item(), count + 1
        means.append(summed / max(1, count))
    return means


def rate(progress: float, settings: FineTune) -> float:
    """The share (0 to 1) of the peak learning rate when ``progress`` (0 to 1) of the steps are done."""
    if settings.schedule == "constant":
        return 1.0
    if progress < settings.warmup and settings.schedule == "one-cycle":
        return 0.05 + 0.95 * progress / settings.warmup
    start = settings.warmup if settings.schedule == "one-cycle" else 0.0
    return 0.5 * (1 + math.cos(math.pi * (progress - start) / (1 - start)))


def finetune(
    model: Any,
    sequences: Sequence[Encoded],
    settings: FineTune,
    generator: torch.Generator,
    *,
    pad: int = 0,
    device: str = "cpu",
) -> list[float]:
    """Train ``model`` in place on the answers of ``sequences``; the mean loss of each epoch. It is left in eval mode."""
    if not sequences:
        raise InputError("there is nothing to fine-tune on: no rows were given")
    model.train()
    try:
        return optimise(
            model,
            settings,
            math.ceil(len(sequences) / settings.batch_size),
            lambda: shuffled_batches(sequences, settings.batch_size, generator, pad=pad, device=device),
            lambda batch: next_token_loss(forward(model, batch), batch.labels),
        )
    finally:
        model.eval()


def same_weights(one: Any, other: Any) -> bool:
    """Whether all parameters of two models of one shape are equal; True means that training changed nothing."""
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
