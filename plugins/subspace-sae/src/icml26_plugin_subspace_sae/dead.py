"""Which features have fallen silent, and drawing them anew (resampling, Bricken et al. 2023)."""

from __future__ import annotations

import torch

from icml26_plugin_subspace_sae.autoencoder import SparseAutoencoder


class FiringRecord:
    """``silent_for`` (m,) int64: rows since each feature last fired."""

    def __init__(self, n_features: int, threshold: int, device: torch.device) -> None:
        self.silent_for = torch.zeros(n_features, dtype=torch.int64, device=device)
        self.threshold = threshold

    def update(self, active: torch.Tensor, rows: int) -> None:
        """Note a batch of ``rows`` rows in which the features ``active`` (indices, repeated or not) fired."""
        self.silent_for += rows
        self.silent_for[active] = 0

    def dead(self) -> torch.Tensor:
        """Indices of features silent for ``threshold`` rows or more."""
        return (self.silent_for >= self.threshold).nonzero()[:, 0]

    def share(self) -> float:
        """Share of dead features."""
        return float((self.silent_for >= self.threshold).double().mean())


@torch.no_grad()
def resample(
    sae: SparseAutoencoder,
    optimizer: torch.optim.Optimizer,
    dead: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    generator: torch.Generator,
) -> None:
    """Give ``dead`` features (n_dead,) the directions of badly reconstructed rows, and forget their moments.

    Rows of ``x`` (B, d_in), ``y`` (B, d_out) are drawn in proportion to their squared loss. Decoder rows become y - b_D at the
    mean norm of live rows, encoder rows the de-meaned x at 0.2 times theirs, encoder biases such that mean pre-activations are 0.
    """
    loss = (sae.forward_pass(x).reconstruction - y).square().sum(1)
    weights = loss.square().double().cpu()
    if not float(weights.sum()) > 0:
        return
    chosen = torch.multinomial(weights, len(dead), replacement=True, generator=generator).to(x.device)
    alive = torch.ones(sae.architecture.n_features, dtype=torch.bool, device=x.device)
    alive[dead] = False
    if not bool(alive.any()):
        alive[:] = True
    mean = x.mean(0)
    directions = torch.nn.functional.normalize(y[chosen] - sae.b_dec, dim=1)
    sae.W_dec[dead] = directions * sae.W_dec[alive].norm(dim=1).mean()
    encoders = torch.nn.functional.normalize(x[chosen] - mean, dim=1) * (0.2 * sae.encoder[alive].norm(dim=1).mean())
    sae.encoder[dead] = encoders
    sae.b_enc[dead] = -(encoders @ mean)
    for parameter in (sae.encoder, sae.W_dec, sae.b_enc):
        for name in ("exp_avg", "exp_avg_sq"):
            if name in optimizer.state.get(parameter, {}):
                optimizer.state[parameter][name][dead] = 0
