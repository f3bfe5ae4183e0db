"""Losses and remedies: AuxK, sparsity penalties, jumprelu's straight-through gradient, resampling."""

from __future__ import annotations

import pytest
import torch
from icml26_plugin_subspace_sae.autoencoder import Architecture, SparseAutoencoder
from icml26_plugin_subspace_sae.dead import FiringRecord, resample
from icml26_plugin_subspace_sae.jumprelu import jumprelu
from icml26_plugin_subspace_sae.losses import auxk_loss, pre_activation_loss, reconstruction_loss, sparsity_loss
from icml26_plugin_subspace_sae.optimizers import SparseAdam


def sae_of(activation: str = "topk", m: int = 30) -> SparseAutoencoder:
    a = Architecture(8, 8, m, activation=activation, k=3, bandwidth=0.4)  # type: ignore[arg-type]
    return SparseAutoencoder(a, generator=torch.Generator().manual_seed(0), dtype=torch.float64, initial_threshold=0.3)


def rows(n: int = 20) -> torch.Tensor:
    return torch.randn(n, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def dense(grad: torch.Tensor | None) -> torch.Tensor:
    assert grad is not None
    return grad.to_dense()


@pytest.mark.parametrize("sparse", [False, True])
def test_auxk_moves_dead_features_only(sparse: bool) -> None:
    sae, x = sae_of(), rows()
    sae.sparse_gradients = sparse
    dead = torch.tensor([2, 7, 8, 21])
    result = sae.forward_pass(x)
    aux = auxk_loss(sae, x, x - result.reconstruction, dead, 2)
    assert aux is not None
    aux.backward()
    live = torch.ones(30, dtype=torch.bool)
    live[dead] = False
    assert not dense(sae.W_dec.grad)[live].any() and not dense(sae.encoder.grad)[live].any()
    assert dense(sae.W_dec.grad)[dead].any() and dense(sae.encoder.grad)[dead].any()
    assert sae.b_dec.grad is None or not sae.b_dec.grad.any()


def test_auxk_is_the_squared_error_of_the_strongest_dead_features() -> None:
    sae, x = sae_of(), rows()
    dead = torch.tensor([2, 7, 8, 21])
    residual = x - sae(x)
    with torch.no_grad():
        h = x @ sae.W_enc[:, dead] + sae.b_enc[dead]
        gated = torch.relu(h * sae.decoder_norms()[dead])
        kept = torch.zeros_like(gated).scatter(1, gated.topk(2).indices, 1.0)
        expected = ((torch.relu(h) * kept) @ sae.W_dec[dead] - residual).square().sum(1).mean()
    found = auxk_loss(sae, x, residual, dead, 2)
    assert found is not None and float(found.detach()) == pytest.approx(float(expected), rel=1e-9)


def test_auxk_without_dead_features_is_nothing() -> None:
    sae, x = sae_of(), rows()
    assert auxk_loss(sae, x, x, torch.zeros(0, dtype=torch.int64), 4) is None


def test_sparsity_penalties_are_the_formulas() -> None:
    sae, x = sae_of("relu"), rows()
    result = sae.forward_pass(x)
    weighted = (torch.relu(x @ sae.W_enc) * sae.W_dec.norm(dim=1)).detach()
    for penalty, p, expected in (
        ("norm", 1.0, weighted.sum(1).mean()),
        ("norm", 0.5, weighted.pow(0.5).sum(1).pow(2).mean()),
        ("tanh", 1.0, torch.tanh(4 * weighted).sum(1).mean()),
    ):
        found = sparsity_loss(sae, result, penalty=penalty, p=p)
        assert float(found.detach()) == pytest.approx(float(expected), rel=1e-9)


def test_pre_activation_penalty_is_the_formula() -> None:
    sae, x = sae_of("jumprelu"), rows()
    h = x @ sae.W_enc
    expected = (torch.relu(0.3 - h) * sae.W_dec.norm(dim=1)).sum(1).mean()
    found = pre_activation_loss(sae, sae.forward_pass(x))
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)


def test_the_threshold_gets_the_gradient_of_a_rectangle() -> None:
    g = torch.tensor([[0.15, 0.25, 0.35, 0.55, -0.1]], dtype=torch.float64, requires_grad=True)
    t = torch.full((5,), 0.3, dtype=torch.float64, requires_grad=True)
    z = jumprelu(g, t, 0.4)
    z.backward(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]], dtype=torch.float64))
    assert z.tolist() == [[0.0, 0.0, 0.35, 0.55, 0.0]]
    assert g.grad is not None and g.grad.tolist() == [[0.0, 0.0, 3.0, 4.0, 0.0]]
    # -(t / eps) times the gradients of what lies within eps / 2 of t and is positive.
    assert t.grad is not None and t.grad.tolist() == pytest.approx([-0.75, -1.5, -2.25, 0.0, 0.0])


def test_a_sparsity_gradient_reaches_thresholds_from_both_sides() -> None:
    sae, x = sae_of("jumprelu"), rows(400)
    h = (x @ sae.W_enc * sae.decoder_norms()).detach()
    sparsity_loss(sae, sae.forward_pass(x)).backward()
    near = ((h - 0.3).abs() < 0.2) & (h > 0)
    expected = -(0.3 / 0.4) * near.sum(0).double() / 400
    assert sae.log_threshold.grad is not None
    # theta = log t: dL/dtheta = t dL/dt.
    assert torch.allclose(sae.log_threshold.grad, expected * 0.3, rtol=1e-5)


def test_reconstruction_loss_sums_over_dimensions_and_averages_over_rows() -> None:
    assert float(reconstruction_loss(torch.zeros(4, 3), torch.ones(4, 3))) == 3.0


def test_a_feature_is_dead_after_so_many_silent_rows() -> None:
    record = FiringRecord(4, 100, torch.device("cpu"))
    for _ in range(3):
        record.update(torch.tensor([0, 2, 2]), 40)
    assert record.dead().tolist() == [1, 3] and record.share() == 0.5
    record.update(torch.tensor([1]), 40)
    assert record.dead().tolist() == [3] and record.silent_for.tolist() == [40, 0, 40, 160]


def test_resampling_points_dead_features_at_badly_reconstructed_rows() -> None:
    sae, x = sae_of("relu"), rows(50)
    optimizer = SparseAdam(sae.parameters(), lr=1e-3)
    sae.forward_pass(x).reconstruction.square().sum().backward()
    optimizer.step()
    x[7] *= 1000
    before = sae.W_dec.detach().clone()
    dead = torch.tensor([3, 11])
    resample(sae, optimizer, dead, x, x, torch.Generator().manual_seed(0))
    changed = (sae.W_dec.detach() != before).any(1).nonzero()[:, 0].tolist()
    assert changed == [3, 11]
    worst = torch.nn.functional.normalize(x[7] - sae.b_dec.detach(), dim=0)
    assert float(torch.nn.functional.cosine_similarity(sae.W_dec.detach()[3], worst, dim=0)) > 0.999
    assert not optimizer.state[sae.W_dec]["exp_avg"][dead].any() and optimizer.state[sae.W_dec]["exp_avg"].any()
    h = x @ sae.W_enc.detach() + sae.b_enc.detach()
    assert float(h[:, dead].mean(0).abs().max()) < 1e-6
