"""Losses (sections 1 and 5). All are sums over dimensions and means over rows, so their coefficients compare."""

from __future__ import annotations

import torch
from torch.nn import functional

from icml26_plugin_subspace_sae.autoencoder import Pass, SparseAutoencoder
from icml26_plugin_subspace_sae.codes import top_k


def reconstruction_loss(reconstruction: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """mean_i ‖x̂_i - y_i‖²."""
    return (reconstruction - targets).square().sum() / len(targets)


def sparsity_loss(sae: SparseAutoencoder, result: Pass, *, penalty: str = "norm", p: float = 1.0) -> torch.Tensor:
    """Mean over rows of the L_p norm of z ‖W_D row‖, or of its sum of tanh(4 ·)."""
    assert result.dense is not None
    weighted = result.dense * sae.decoder_norms()
    if penalty == "tanh":
        return torch.tanh(4 * weighted).sum() / len(weighted)
    if p == 1:
        return weighted.sum() / len(weighted)
    return torch.linalg.vector_norm(weighted, ord=p, dim=1).mean()


def pre_activation_loss(sae: SparseAutoencoder, result: Pass) -> torch.Tensor:
    """Mean over rows of Σ relu(threshold - h) ‖W_D row‖, for jumprelu."""
    assert result.pre_activations is not None
    missing = torch.relu(sae.log_threshold.exp() - result.pre_activations)
    return (missing * sae.decoder_norms()).sum() / len(missing)


def auxk_loss(
    sae: SparseAutoencoder, x: torch.Tensor, residual: torch.Tensor, dead: torch.Tensor, k_aux: int
) -> torch.Tensor | None:
    """mean_i ‖e_i - ê_i‖² where dead features alone explain the residual; None without any dead feature.

    ``residual`` e = y - x̂ (B, d_out) is detached here: the loss must not change what the live features do. ``dead`` (n_dead,)
    indices; the ``k_aux`` strongest positive gated pre-activations among them are decoded without bias.
    """
    if len(dead) == 0:
        return None
    residual = residual.detach()
    sparse = sae.sparse_gradients
    encoder = functional.embedding(dead, sae.encoder, sparse=sparse)
    decoder = functional.embedding(dead, sae.W_dec, sparse=sparse)
    h = torch.addmm(sae.b_enc[dead], x, encoder.T)
    with torch.no_grad():
        gated = h * sae.decoder_norms()[dead]
        best, chosen = top_k(gated, min(k_aux, len(dead)))
    z = torch.zeros_like(h).scatter(1, chosen, torch.where(best > 0, h.gather(1, chosen), 0.0))
    return reconstruction_loss(z @ decoder, residual)
