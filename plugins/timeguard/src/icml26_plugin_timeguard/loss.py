"""The masked pool objective L_def and the unit losses it selects from."""

from __future__ import annotations

import torch
from torch.nn import functional

EPSILON = 1e-8


def unit_loss(forecast: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
    """SmoothL1 (beta 1) of each unit, averaged over steps: (B, L_out, C) twice to (B, C); physical units."""
    return functional.smooth_l1_loss(forecast, future, reduction="none").mean(dim=1)


def masked_mean(losses: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean of the selected unit losses, sum(m l) / (sum(m) + 1e-8); 0 with zero gradients for an empty mask.

    ``losses`` and ``mask`` (B, C); the mask holds 0/1 in the losses' dtype.
    """
    return (losses * mask).sum() / (mask.sum() + EPSILON)
