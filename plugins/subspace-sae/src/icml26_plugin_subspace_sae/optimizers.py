"""The paper's sparse-aware Adam (section 3): momentum moves a parameter only where its gradient is not zero."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from icml26.errors import InputError

# Elements worked on at once: four arrays of that size stay in the second-level cache.
CHUNK = 16384


class SparseAdam(torch.optim.Optimizer):
    """Adam whose step is applied only where the gradient is exactly non-zero.

    m <- β1 m + (1 - β1) g, v <- β2 v + (1 - β2) g², both everywhere, with the global step count t; then
    p <- p - lr · sqrt(1 - β2ᵗ) / (1 - β1ᵗ) · m / (sqrt(v) + eps) where g ≠ 0 only. A feature that stopped firing is not pushed
    on by old momentum. ``torch.optim.SparseAdam`` differs: it takes sparse gradients only and freezes the moments of absent rows.

    Gradients may be dense, or sparse over the first dimension (``torch.sparse_coo``, as ``nn.Embedding(sparse=True)`` makes
    them): then only rows that are present are read and written, and the decay of the others is caught up when they return.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 4e-4,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        if not lr > 0 or not eps > 0 or not all(0 <= b < 1 for b in betas):
            raise InputError(f"lr={lr} and eps={eps} must be above 0 and betas={betas} in [0, 1).")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; returns the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state, grad = self.state[parameter], parameter.grad
        assert grad is not None
        if not state:
            state["step"] = torch.zeros((), dtype=torch.int64)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
            # The step up to which a row's moments are decayed.
            state["decayed"] = torch.zeros(len(parameter) if parameter.ndim else 1, dtype=torch.int64)
        state["step"] += 1
        t = int(state["step"])
        if grad.is_sparse:
            grad = grad.coalesce()
            if grad.sparse_dim() != 1:
                raise InputError("SparseAdam takes gradients that are dense, or sparse over the first dimension.")
            self._sparse(parameter, grad.indices()[0], grad.values(), state, group, t)
        else:
            self._dense(parameter, grad, state, group, t)

    def _sparse(
        self,
        parameter: torch.Tensor,
        rows: torch.Tensor,
        grad: torch.Tensor,
        state: dict[str, Any],
        group: dict[str, Any],
        t: int,
    ) -> None:
        m, v, decayed = state["exp_avg"], state["exp_avg_sq"], state["decayed"]
        index = rows.to(decayed.device)
        missed = (t - 1 - decayed[index]).to(parameter.device)
        decayed[index] = t
        late = bool(missed.any())
        size = max(CHUNK // max(grad[0].numel(), 1), 1) if len(grad) else 1
        for begin in range(0, len(rows), size):
            part, g = rows[begin : begin + size], grad[begin : begin + size]
            some_m, some_v, some_p = m.index_select(0, part), v.index_select(0, part), parameter.index_select(0, part)
            if late:
                _catch_up(some_m, some_v, missed[begin : begin + size], group["betas"])
            _advance(some_p, g, some_m, some_v, group, t)
            m.index_copy_(0, part, some_m)
            v.index_copy_(0, part, some_v)
            parameter.index_copy_(0, part, some_p)

    def _dense(
        self, parameter: torch.Tensor, grad: torch.Tensor, state: dict[str, Any], group: dict[str, Any], t: int
    ) -> None:
        m, v, decayed = state["exp_avg"], state["exp_avg_sq"], state["decayed"]
        missed = t - 1 - decayed
        decayed.fill_(t)
        if bool(missed.any()):
            _catch_up(m, v, missed.to(parameter.device), group["betas"])
        if parameter.is_contiguous() and grad.is_contiguous() and parameter.device.type == "cpu":
            arrays = [a.view(-1).split(CHUNK) for a in (parameter, grad, m, v)]
            for p, g, some_m, some_v in zip(*arrays, strict=True):
                _advance(p, g, some_m, some_v, group, t)
        else:
            _advance(parameter, grad, m, v, group, t)


def _catch_up(m: torch.Tensor, v: torch.Tensor, missed: torch.Tensor, betas: tuple[float, float]) -> None:
    """Decay moments by the steps (rows,) in which their rows were absent."""
    shape = (-1,) + (1,) * (m.ndim - 1)
    steps = missed.to(torch.float64).view(shape)
    m.mul_(torch.pow(betas[0], steps).to(m))
    v.mul_(torch.pow(betas[1], steps).to(v))


def _advance(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, group: dict[str, Any], t: int) -> None:
    """One step of the formula, in place."""
    beta1, beta2 = group["betas"]
    m.lerp_(g, 1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    update = torch.sqrt(v).add_(group["eps"])
    torch.div(m, update, out=update)
    rate = group["lr"] * (1 - beta2**t) ** 0.5 / (1 - beta1**t)
    # Most entries that are present are not zero; testing for one costs less than masking.
    if not bool(g.all()):
        update.mul_(g != 0)
    p.sub_(update, alpha=rate)
