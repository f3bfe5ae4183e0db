"""The paper's sparse-aware Adam (section 3): momentum moves a parameter only where its gradient is not zero."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from icml26.errors import InputError
from torch.optim.adam import adam

# Elements gathered at once: their arrays stay in the second-level cache.
CHUNK = 32768
# With more active rows than this share, or fewer elements in all, one pass over all of them is quicker than gathering.
GATHER_BELOW = 0.4
GATHER_FROM = 1 << 20


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
        if not grad.is_sparse:
            self._everywhere(parameter, grad, state, group, t, keep=None)
            return
        rows, values = _rows_and_values(grad)
        few = len(rows) < GATHER_BELOW * len(parameter) and parameter.numel() >= GATHER_FROM
        if few or not _has_fused(parameter):
            self._gathered(parameter, rows, values, state, group, t)
            return
        dense = torch.zeros_like(parameter).index_copy_(0, rows, values)
        absent = torch.ones(len(parameter), dtype=torch.bool, device=rows.device).index_fill_(0, rows, False)
        whole = values.numel() > 0 and _no_zero(values)
        self._everywhere(parameter, dense, state, group, t, keep=absent.nonzero()[:, 0] if whole else None)

    def _gathered(
        self,
        parameter: torch.Tensor,
        rows: torch.Tensor,
        grad: torch.Tensor,
        state: dict[str, Any],
        group: dict[str, Any],
        t: int,
    ) -> None:
        m, v = state["exp_avg"], state["exp_avg_sq"]
        # The decay of this step and of those in which the row was absent.
        decay1, decay2 = _decays(state["decayed"], rows, t, group["betas"], grad)
        size = max(CHUNK // max(grad[0].numel(), 1), 1) if len(grad) else 1
        for begin in range(0, len(rows), size):
            part, g = rows[begin : begin + size], grad[begin : begin + size]
            some_m, some_v, some_p = m.index_select(0, part), v.index_select(0, part), parameter.index_select(0, part)
            some_m.mul_(decay1[begin : begin + size])
            some_v.mul_(decay2[begin : begin + size])
            _advance(some_p, g, some_m, some_v, group, t)
            m.index_copy_(0, part, some_m)
            v.index_copy_(0, part, some_v)
            parameter.index_copy_(0, part, some_p)

    def _everywhere(
        self,
        parameter: torch.Tensor,
        grad: torch.Tensor,
        state: dict[str, Any],
        group: dict[str, Any],
        t: int,
        keep: torch.Tensor | None,
    ) -> None:
        """Adam on all of it, undone where the gradient is 0: the rows ``keep``, or, when None, wherever it is."""
        m, v, decayed = state["exp_avg"], state["exp_avg_sq"], state["decayed"]
        beta1, beta2 = group["betas"]
        late = (decayed < t - 1).nonzero()[:, 0]
        if len(late):
            # Adam decays by one step itself.
            decay1, decay2 = _decays(decayed, late.to(m.device), t - 1, group["betas"], m)
            m[late] *= decay1
            v[late] *= decay2
        decayed.fill_(t)
        if keep is None:
            before, zero = parameter.clone(), grad == 0
        else:
            before = parameter.index_select(0, keep)
        adam(
            [parameter],
            [grad],
            [m],
            [v],
            [],
            [torch.full((), float(t - 1), device=parameter.device)],
            foreach=False,
            fused=_has_fused(parameter),
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=0.0,
            # torch adds eps to sqrt(v) / sqrt(1 - β2ᵗ), the paper's code to sqrt(v).
            eps=group["eps"] / (1 - beta2**t) ** 0.5,
            maximize=False,
        )
        if keep is None:
            parameter.copy_(torch.where(zero, before, parameter))
        else:
            parameter.index_copy_(0, keep, before)


def _has_fused(parameter: torch.Tensor) -> bool:
    return parameter.device.type in ("cpu", "cuda") and parameter.is_floating_point()


def _no_zero(values: torch.Tensor) -> bool:
    # One pass without a temporary; smallest absolute value.
    return float(torch.linalg.vector_norm(values, ord=float("-inf"))) > 0


def _rows_and_values(grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Distinct rows (r,) of a sparse gradient, and their values (r, …)."""
    if grad.sparse_dim() != 1:
        raise InputError("SparseAdam takes gradients that are dense, or sparse over the first dimension.")
    # Autograd drops the mark that a gradient is coalesced; ours are, and sorting them again would cost as much as the step.
    rows = grad._indices()[0]
    if bool((rows.diff() > 0).all()):
        return rows, grad._values()
    grad = grad.coalesce()
    return grad.indices()[0], grad.values()


def _decays(
    decayed: torch.Tensor, rows: torch.Tensor, t: int, betas: tuple[float, float], like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """β^(steps since the rows' moments were decayed), shaped to multiply rows like ``like`` (r, …); notes step t."""
    index = rows.to(decayed.device)
    steps = (t - decayed[index]).to(torch.float64)
    decayed[index] = t
    shape = (-1,) + (1,) * (like.ndim - 1)
    first, second = (torch.pow(beta, steps).to(like).view(shape) for beta in betas)
    return first, second


def _advance(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, group: dict[str, Any], t: int) -> None:
    """One step of the formula, in place, for moments that are decayed already."""
    beta1, beta2 = group["betas"]
    squares = g * g
    m.add_(g, alpha=1 - beta1)
    v.add_(squares, alpha=1 - beta2)
    # Where the least square is above 0 no gradient is 0: a cheap test that saves the mask nearly always.
    dense = squares.numel() > 0 and float(squares.min()) > 0
    denominator = torch.sqrt(v, out=squares).add_(group["eps"])
    rate = group["lr"] * (1 - beta2**t) ** 0.5 / (1 - beta1**t)
    if dense:
        p.addcdiv_(m, denominator, value=-rate)
    else:
        p.sub_(torch.where(g != 0, m / denominator, 0.0), alpha=rate)
