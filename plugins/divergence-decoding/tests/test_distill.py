"""Distillation: zero at equality, right gradients, right scale, blind to prompts; and it teaches what it should."""

from __future__ import annotations

import pytest
import torch
from icml26.errors import InputError
from icml26_plugin_divergence_decoding.distillation import (
    Distillation,
    _against,
    _tensors,
    distill,
    distillation_loss,
)
from icml26_plugin_divergence_decoding.encoding import Encoded, collate
from icml26_plugin_divergence_decoding.fusion import Fusion
from icml26_plugin_divergence_decoding.model import DivergenceModel
from icml26_plugin_divergence_decoding.trainer import Training
from tiny import llama


def logits(seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(seed), dtype=dtype)


VALID = torch.tensor([[False, True, True, False], [False, False, True, True]])


def test_an_equal_student_has_no_loss_and_no_gradient() -> None:
    student = logits(0).requires_grad_()
    loss = distillation_loss(student, logits(0) + 3.0, VALID, 1.5)  # a constant of a position means nothing
    loss.backward()
    assert loss.detach().abs() < 1e-6
    assert student.grad is not None and student.grad.abs().max() < 1e-6


def test_value_and_gradient_in_double_precision() -> None:
    student, teacher = logits(1, torch.double).requires_grad_(), logits(2, torch.double)
    assert torch.autograd.gradcheck(lambda s: distillation_loss(s, teacher, VALID, 1.7), (student,))
    p, q = (teacher / 1.7).softmax(-1), (student / 1.7).softmax(-1)
    expected = 1.7**2 * (p * (p / q).log()).sum(-1)[VALID].mean()
    torch.testing.assert_close(distillation_loss(student, teacher, VALID, 1.7), expected)


def test_the_gradient_keeps_its_size_over_temperatures() -> None:
    norms = []
    for temperature in (1.0, 4.0):
        student = (0.1 * logits(3)).requires_grad_()
        distillation_loss(student, 0.1 * logits(4), VALID, temperature).backward()
        assert student.grad is not None
        norms.append(float(student.grad.norm()))
    assert 0.8 < norms[0] / norms[1] < 1.25


def test_prompts_take_no_part() -> None:
    student, teacher = logits(5), logits(6)
    other = torch.where(VALID[..., None], student, logits(7))
    assert torch.equal(distillation_loss(student, teacher, VALID, 1.5), distillation_loss(other, teacher, VALID, 1.5))
    with pytest.raises(InputError, match="no valid token"):
        distillation_loss(student, teacher, torch.zeros_like(VALID), 1.5)


FORGET = [Encoded([1, 5, 6, 7, 8], 3), Encoded([1, 9, 10], 2)]
KEEP = [Encoded([1, 12, 13, 14], 2), Encoded([1, 15, 16], 1)]


def test_each_batch_is_judged_on_its_answers_alone() -> None:
    student, teacher = llama(1), llama(2)
    found = _against(student, teacher, _tensors(collate(FORGET), "forget"), "forget", 1.5)
    divergences = []
    for ids, start in FORGET:
        p, q = ((m(torch.tensor([ids])).logits[0, start - 1 : -1] / 1.5).log_softmax(-1) for m in (teacher, student))
        divergences.append((p.exp() * (p - q)).sum(-1))
    torch.testing.assert_close(found, 1.5**2 * torch.cat(divergences).mean())


def gap(student: DivergenceModel, teacher: DivergenceModel, rows: list[Encoded]) -> float:
    total = 0.0
    for ids, start in rows:
        p, q = (
            m(input_ids=torch.tensor([ids])).logits[0, start - 1 : -1].float().log_softmax(-1)
            for m in (teacher, student)
        )
        total += float((p.exp() * (p - q)).sum(-1).mean())
    return total


@torch.no_grad()
def test_a_student_comes_near_its_teacher_and_a_retain_weight_holds_it() -> None:
    target = llama(0)
    before = [p.clone() for p in target.parameters()]
    teacher = DivergenceModel(target, llama(1), llama(2), Fusion(0.7))
    training = Training(lr=5e-3, epochs=60, batch_size=2)
    with torch.enable_grad():
        free = distill(target, teacher, FORGET, Distillation(1.5), training, seed=1)
        held = distill(target, teacher, FORGET, Distillation(1.5, 1.0), training, retain=KEEP, seed=1)
    start = gap(target, teacher, FORGET)
    assert gap(free, teacher, FORGET) < 0.1 * start
    assert gap(held, teacher, FORGET) < 0.2 * start
    assert gap(held, target, KEEP) < 0.5 * gap(free, target, KEEP)
    assert all(torch.equal(a, b) for a, b in zip(before, target.parameters(), strict=True))


def test_steps_that_add_up_are_the_steps_of_a_larger_batch() -> None:
    target = llama(0)
    teacher = DivergenceModel(target, llama(1), llama(2), Fusion(0.7))
    rows = [Encoded([1, 5, 6], 2), Encoded([1, 9, 10], 2), Encoded([1, 3, 4], 2), Encoded([1, 7, 7], 2)]
    one = distill(target, teacher, rows, Distillation(), Training(lr=1e-3, epochs=1, batch_size=4), seed=3)
    two = distill(
        target, teacher, rows, Distillation(), Training(lr=1e-3, epochs=1, batch_size=2, accumulation=2), seed=3
    )
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-3)


def test_wrong_use_is_refused() -> None:
    target = llama(0)
    with pytest.raises(InputError, match="needs rows to keep"):
        distill(target, target, FORGET, Distillation(1.5, 1.0), Training())
