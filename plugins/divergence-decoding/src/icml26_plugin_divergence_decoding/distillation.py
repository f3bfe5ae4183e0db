"""Distillation: put the steered distribution back into the target's own weights (eq. 4)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from icml26.errors import InputError
from icml26.fingerprints import fingerprint

from icml26_plugin_divergence_decoding.calling import call
from icml26_plugin_divergence_decoding.encoding import IGNORED, Batch, Encoded, collate
from icml26_plugin_divergence_decoding.trainer import Log, Training, train


@dataclass(frozen=True)
class Distillation:
    """``temperature`` T of both distributions; ``retain_weight`` of the same loss on rows to keep, taught by the target."""

    temperature: float = 1.5
    retain_weight: float = 0.0


def distillation_loss(
    student: torch.Tensor, teacher: torch.Tensor, valid: torch.Tensor, temperature: float
) -> torch.Tensor:
    """T^2 mean KL(softmax(teacher / T) || softmax(student / T)) over ``valid`` (B, T) of logits (B, T, V); eq. (4).

    Positions that are not valid take no part, whatever their logits are.
    """
    if not bool(valid.any()):
        raise InputError("Distillation has no valid token: the rows have no answers.")
    precise = torch.promote_types(student.dtype, torch.float32)
    learnt = torch.log_softmax(student[valid].to(precise) / temperature, dim=-1)
    taught = torch.log_softmax(teacher[valid].to(precise) / temperature, dim=-1)
    divergence = torch.nn.functional.kl_div(learnt, taught, log_target=True, reduction="none").sum(-1)
    return temperature**2 * divergence.mean()


def distill(
    target: Any,
    teacher: Any,
    forget: Sequence[Encoded],
    settings: Distillation,
    training: Training,
    *,
    retain: Sequence[Encoded] = (),
    seed: int = 0,
    pad: int = 0,
    device: str = "cpu",
    log: Log | None = None,
) -> Any:
    """A copy of ``target`` trained to say of ``forget`` what ``teacher`` says.

    With ``retain_weight`` each step also holds it to the target's own words on as many rows of ``retain``, drawn anew.
    Raises InputError when rows to keep are asked for and none are given, or when training changed nothing.
    """
    if settings.retain_weight and not retain:
        raise InputError("retain_weight needs rows to keep.")
    student = copy.deepcopy(target)
    generator = torch.Generator().manual_seed(seed)

    def batch(rows: list[Encoded]) -> dict[str, torch.Tensor]:
        made = _tensors(collate(rows, pad=pad), "forget")
        if settings.retain_weight:
            drawn = torch.randint(len(retain), (len(rows),), generator=generator).tolist()
            made |= _tensors(collate([retain[i] for i in drawn], pad=pad), "retain")
        return made

    def loss(model: Any, made: dict[str, torch.Tensor]) -> torch.Tensor:
        total = _against(model, teacher, made, "forget", settings.temperature)
        if settings.retain_weight:
            total = total + settings.retain_weight * _against(model, target, made, "retain", settings.temperature)
        return total

    parts: tuple[Any, ...] = (
        target,
        teacher,
        getattr(teacher, "settings", dict)(),
        [list(map(tuple, retain)), asdict(settings)],
    )
    identity = None if training.checkpoints is None else fingerprint(parts)
    train(
        student,
        forget,
        training,
        seed=seed,
        batch=batch,
        loss=loss,
        device=device,
        log=log,
        label="distillation-loss",
        identity=identity,
    )
    if all(torch.equal(a, b) for a, b in zip(student.parameters(), target.parameters(), strict=True)):
        raise InputError("Distillation changed no weight: raise lr or epochs.")
    return student


def _tensors(batch: Batch, name: str) -> dict[str, torch.Tensor]:
    return {f"{name}_{part}": tensor for part, tensor in batch._asdict().items()}


def _against(student: Any, teacher: Any, made: dict[str, torch.Tensor], name: str, temperature: float) -> torch.Tensor:
    ids, mask, labels = (made[f"{name}_{part}"] for part in Batch._fields)
    with torch.no_grad():
        taught = call(teacher, ids, mask).logits[:, :-1]
    learnt = call(student, ids, mask).logits[:, :-1]
    return distillation_loss(learnt, taught, labels[:, 1:] != IGNORED, temperature)
