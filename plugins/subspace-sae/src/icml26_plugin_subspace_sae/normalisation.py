"""Scaling of rows before training (section 0)."""

from __future__ import annotations

from typing import Literal

import torch
from icml26.errors import InputError

from icml26_plugin_subspace_sae.autoencoder import RowScaling

Normalisation = Literal["dataset", "token", "batch", "none"]
BATCHES = 8


def row_scaling(normalisation: Normalisation) -> RowScaling:
    """What remains to be done at inference: ``dataset`` is folded into the weights."""
    if normalisation == "token" or normalisation == "batch":
        return normalisation
    return "none"


def dataset_scale(rows: torch.Tensor, name: str = "activations") -> float:
    """c = sqrt(d) / mean norm of ``rows`` (n, d); InputError when all are zero."""
    mean = float(torch.linalg.vector_norm(rows.double(), dim=1).mean())
    if not mean > 0:
        raise InputError(f"All {name} are zero: there is nothing to learn.")
    return float(rows.shape[1] ** 0.5 / mean)
