"""JumpReLU with a straight-through gradient for its threshold (section 9)."""

from __future__ import annotations

from typing import Any

import torch


class _JumpReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g: torch.Tensor, threshold: torch.Tensor, bandwidth: float) -> torch.Tensor:
        ctx.save_for_backward(g, threshold)
        ctx.bandwidth = bandwidth
        return torch.where(g > threshold, g, 0.0)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (grad,) = grads
        g, threshold = ctx.saved_tensors
        d_g = torch.where(g > threshold, grad, 0.0)
        near = ((g - threshold).abs() < ctx.bandwidth / 2) & (g > 0)
        d_threshold = -(threshold / ctx.bandwidth) * torch.where(near, grad, 0.0).sum(0)
        return d_g, d_threshold, None


def jumprelu(g: torch.Tensor, threshold: torch.Tensor, bandwidth: float) -> torch.Tensor:
    """g · 1[g > t] for ``g`` (B, m) and thresholds t (m,) > 0.

    The gradient to t is that of a rectangle of width ``bandwidth`` eps: -(t / eps) · 1[|g - t| < eps / 2, g > 0].
    """
    result: torch.Tensor = _JumpReLU.apply(g, threshold, bandwidth)
    return result
