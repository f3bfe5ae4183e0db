"""The sparse-aware Adam: Adam where gradients are, stillness where they are not."""

from __future__ import annotations

import pytest
import torch
from icml26.errors import InputError
from icml26_plugin_subspace_sae import optimizers
from icml26_plugin_subspace_sae.optimizers import SparseAdam

SHAPE = (40, 7)


def gradients(steps: int, active: float | None = None, seed: int = 0) -> list[torch.Tensor]:
    """Dense gradients; with ``active`` each row is all zero with that complement's chance."""
    g = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(steps):
        grad = torch.randn(SHAPE, generator=g, dtype=torch.float64)
        if active is not None:
            grad *= (torch.rand(SHAPE[0], 1, generator=g) < active).double()
        found.append(grad)
    return found


def literal(grads: list[torch.Tensor], lr: float, betas: tuple[float, float], eps: float) -> torch.Tensor:
    """The formula of the docstring, element by element of time."""
    p, m, v = (torch.zeros(SHAPE, dtype=torch.float64) for _ in range(3))
    for t, g in enumerate(grads, start=1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        step = lr * (1 - betas[1] ** t) ** 0.5 / (1 - betas[0] ** t) * m / (v.sqrt() + eps)
        p = torch.where(g != 0, p - step, p)
    return p


def run(grads: list[torch.Tensor], layout: str = "dense", **options: object) -> torch.Tensor:
    parameter = torch.nn.Parameter(torch.zeros(SHAPE, dtype=torch.float64))
    optimizer = SparseAdam([parameter], lr=0.01, **options)  # type: ignore[arg-type]
    for i, grad in enumerate(grads):
        sparse = layout == "sparse" or (layout == "mixed" and i % 2 == 0)
        parameter.grad = grad.to_sparse(1) if sparse else grad.clone()
        optimizer.step()
    return parameter.detach()


def test_equals_adam_while_no_gradient_is_zero() -> None:
    grads = gradients(30)
    reference = torch.nn.Parameter(torch.zeros(SHAPE, dtype=torch.float64))
    adam = torch.optim.Adam([reference], lr=0.01)
    for grad in grads:
        reference.grad = grad.clone()
        adam.step()
    assert torch.allclose(run(grads), reference.detach(), atol=1e-6)
    assert torch.allclose(run(grads, "sparse"), reference.detach(), atol=1e-6)


@pytest.mark.parametrize("layout", ["dense", "sparse", "mixed"])
@pytest.mark.parametrize("gather_below", [0.0, 2.0])
def test_equals_the_formula_when_rows_come_and_go(
    layout: str, gather_below: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizers, "GATHER_BELOW", gather_below)
    monkeypatch.setattr(optimizers, "GATHER_FROM", 1)
    monkeypatch.setattr(optimizers, "CHUNK", 20)
    grads = gradients(40, active=0.4)
    assert torch.allclose(run(grads, layout), literal(grads, 0.01, (0.9, 0.999), 1e-8), atol=1e-12)
    large = run(grads, layout, eps=0.1, betas=(0.5, 0.8))
    assert torch.allclose(large, literal(grads, 0.01, (0.5, 0.8), 0.1), atol=1e-12)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("gather_below", [0.0, 2.0])
def test_single_zeros_within_active_rows_do_not_move(
    layout: str, gather_below: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizers, "GATHER_BELOW", gather_below)
    monkeypatch.setattr(optimizers, "GATHER_FROM", 1)
    grads = gradients(12)
    for grad in grads[3:]:
        grad[::3, 2] = 0
    found = run(grads, layout)
    assert torch.allclose(found, literal(grads, 0.01, (0.9, 0.999), 1e-8), atol=1e-12)
    assert torch.equal(found[::3, 2], run(grads[:3], layout)[::3, 2])


def test_a_zero_gradient_leaves_the_parameter_whatever_its_moments() -> None:
    grads = gradients(5)
    assert torch.equal(run([*grads, torch.zeros(SHAPE, dtype=torch.float64)]), run(grads))
    empty = torch.zeros(SHAPE, dtype=torch.float64)
    assert torch.equal(run([*grads, empty], "sparse"), run(grads, "sparse"))


def test_plain_adam_pushes_on_with_old_momentum() -> None:
    parameter = torch.nn.Parameter(torch.zeros(SHAPE, dtype=torch.float64))
    adam = torch.optim.Adam([parameter], lr=0.01)
    for grad in [*gradients(5), torch.zeros(SHAPE, dtype=torch.float64)]:
        before = parameter.detach().clone()
        parameter.grad = grad
        adam.step()
    assert float((parameter.detach() - before).abs().median()) > 1e-3, "what SparseAdam is for"


def test_uncoalesced_gradients_are_summed() -> None:
    parameter = torch.nn.Parameter(torch.zeros(SHAPE, dtype=torch.float64))
    index, values = torch.tensor([[3, 1, 3]]), torch.ones(3, SHAPE[1], dtype=torch.float64)
    parameter.grad = torch.sparse_coo_tensor(index, values, SHAPE, check_invariants=False)
    SparseAdam([parameter], lr=0.01).step()
    moved = parameter.detach().abs().sum(1).nonzero()[:, 0].tolist()
    assert moved == [1, 3]


def test_state_can_be_stored_and_restored() -> None:
    grads = gradients(20, active=0.5)
    whole = run(grads, "sparse")
    parameter = torch.nn.Parameter(torch.zeros(SHAPE, dtype=torch.float64))
    optimizer = SparseAdam([parameter], lr=0.01)
    for i, grad in enumerate(grads):
        parameter.grad = grad.to_sparse(1)
        optimizer.step()
        if i == 9:
            state = optimizer.state_dict()
            parameter = torch.nn.Parameter(parameter.detach().clone())
            optimizer = SparseAdam([parameter], lr=0.01)
            optimizer.load_state_dict(state)
    assert torch.equal(parameter.detach(), whole)


def test_the_closure_is_called_and_bad_options_are_refused() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = SparseAdam([parameter], lr=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = parameter.square().sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure).detach()) == 3 and bool((parameter < 1).all())
    for options in ({"lr": 0.0}, {"betas": (1.0, 0.9)}, {"eps": 0.0}):
        with pytest.raises(InputError):
            SparseAdam([parameter], **options)  # type: ignore[arg-type]
    wide = torch.nn.Parameter(torch.ones(3, 3))
    wide.grad = torch.eye(3).to_sparse(2)
    with pytest.raises(InputError, match="first dimension"):
        SparseAdam([wide]).step()
