"""The autoencoder: how many features are selected, invariances, folding, inference, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from icml26.errors import InputError
from icml26_plugin_subspace_sae.autoencoder import Architecture, SparseAutoencoder, row_scale


def sae_of(
    activation: str = "topk", d: int = 12, m: int = 40, k: int = 3, seed: int = 0, **options: Any
) -> SparseAutoencoder:
    g = torch.Generator().manual_seed(seed)
    a = Architecture(d, d, m, activation=activation, k=k, **options)  # type: ignore[arg-type]
    sae = SparseAutoencoder(a, generator=g, dtype=torch.float64, initial_threshold=0.5)
    with torch.no_grad():
        sae.W_dec.mul_(torch.rand(m, 1, generator=g, dtype=torch.float64) + 0.3)
        sae.b_enc.normal_(generator=g)
        sae.b_dec.normal_(generator=g)
    return sae


def rows(n: int = 30, d: int = 12, seed: int = 9) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_topk_keeps_k_positive_features_a_row_or_all_if_fewer() -> None:
    sae, x = sae_of(), rows()
    with torch.no_grad():
        sae.b_enc -= 4.0
    h = (x @ sae.W_enc + sae.b_enc) * sae.decoder_norms()
    z = sae.encode(x)
    assert torch.equal((z > 0).sum(1), (h > 0).sum(1).clamp_max(3)) and bool((z >= 0).all())
    assert (z > 0).sum(1).unique().numel() > 1, "some rows must have fewer than k positive features to choose from"


def test_batchtopk_keeps_k_times_b_of_the_whole_batch() -> None:
    sae, x = sae_of("batchtopk"), rows()
    codes = sae.forward_pass(x).codes
    assert len(codes.values) == 3 * 30 and bool((codes.values > 0).all())
    gated = (x @ sae.W_enc + sae.b_enc) * sae.decoder_norms()
    edge = gated.flatten().sort(descending=True).values[3 * 30 - 1]
    assert torch.equal(codes.dense() > 0, gated >= edge)


def test_reconstruction_is_the_formula() -> None:
    sae, x = sae_of(), rows()
    h = x @ sae.W_enc + sae.b_enc
    norms = sae.W_dec.norm(dim=1)
    g = h * norms
    kept = torch.zeros_like(g).scatter(1, g.topk(3).indices, 1.0)
    expected = (torch.relu(g) * kept / norms) @ sae.W_dec + sae.b_dec
    for found in (sae(x), sae.reconstruct(x), sae.decode(sae.encode(x)), sae.forward_pass(x).reconstruction):
        assert torch.allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize("activation", ["topk", "batchtopk", "relu", "jumprelu"])
def test_rescaling_a_feature_changes_nothing_under_the_gate(activation: str) -> None:
    sae, x = sae_of(activation), rows()
    before = sae.forward_pass(x)
    with torch.no_grad():
        factors = torch.rand(40, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * 3 + 0.2
        sae.W_dec.mul_(factors[:, None])
        sae.encoder.div_(factors[:, None])
        sae.b_enc.div_(factors)
    after = sae.forward_pass(x)
    assert torch.allclose(before.reconstruction, after.reconstruction, atol=1e-10)
    assert torch.equal(before.codes.dense() > 0, after.codes.dense() > 0)


def test_without_the_gate_rescaling_changes_the_selection() -> None:
    sae, x = sae_of(gate_by_decoder_norm=False), rows()
    before = sae.encode(x) > 0
    with torch.no_grad():
        feature = int(before.sum(0).argmax())
        sae.W_dec[feature] *= 10
        sae.encoder[feature] /= 10
        sae.b_enc[feature] /= 10
    assert not torch.equal(before, sae.encode(x) > 0)


@pytest.mark.parametrize("activation", ["topk", "batchtopk", "relu", "jumprelu"])
@pytest.mark.parametrize("gate", [True, False])
def test_folded_autoencoder_does_on_raw_rows_what_it_did_on_scaled_ones(activation: str, gate: bool) -> None:
    sae, x = sae_of(activation, gate_by_decoder_norm=gate), rows()
    sae.threshold.fill_(1.1)
    c_in, c_out = 0.37, 2.4
    scaled = sae.reconstruct(x * c_in)
    sae.fold(c_in, c_out)
    assert torch.allclose(sae.reconstruct(x), scaled / c_out, atol=1e-10)


def test_jumprelu_compares_the_gated_pre_activation_with_its_threshold() -> None:
    sae, x = sae_of("jumprelu"), rows()
    h = x @ sae.W_enc + sae.b_enc
    expected = torch.where(h * sae.decoder_norms() > 0.5, h, 0.0)
    assert torch.allclose(sae.encode(x), expected, atol=1e-12)


def test_inference_of_batchtopk_does_not_depend_on_the_batch() -> None:
    sae, x = sae_of("batchtopk"), rows()
    with pytest.raises(InputError, match="threshold"):
        sae.encode(x)
    sae.threshold.fill_(1.5)
    whole = sae.encode(x)
    assert torch.allclose(torch.cat([sae.encode(row[None]) for row in x]), whole, atol=1e-12)
    assert torch.equal(whole > 0, (x @ sae.W_enc + sae.b_enc) * sae.decoder_norms() > 1.5)


def test_row_scaling_makes_reconstructions_follow_the_scale_of_rows() -> None:
    sae, x = sae_of(row_scaling="token"), rows()
    factors = torch.linspace(0.1, 9, 30, dtype=torch.float64)[:, None]
    assert torch.allclose(sae.reconstruct(x * factors), sae.reconstruct(x) * factors, atol=1e-9)
    assert torch.allclose((x * row_scale(x, "token")).norm(dim=1), torch.full((30,), 12**0.5, dtype=torch.float64))
    assert torch.allclose((x * row_scale(x, "batch")).norm(dim=1).mean(), torch.tensor(12**0.5, dtype=torch.float64))
    assert torch.equal(row_scale(torch.zeros(2, 3), "token"), torch.ones(2, 1))
    with pytest.raises(InputError, match="needs the rows x"):
        sae.decode(sae.encode(x))
    assert torch.allclose(sae.decode(sae.encode(x), x), sae.reconstruct(x), atol=1e-10)


def test_a_decoder_row_of_length_zero_never_fires() -> None:
    for activation in ("topk", "relu", "jumprelu"):
        sae, x = sae_of(activation), rows()
        with torch.no_grad():
            sae.W_dec[5] = 0
            sae.b_enc[5] = 100
        z = sae.encode(x)
        assert not z[:, 5].any() and bool(torch.isfinite(sae(x)).all())


def test_no_rows_give_no_codes() -> None:
    for activation in ("topk", "relu", "jumprelu"):
        assert sae_of(activation).encode(rows(0)).shape == (0, 40)
        assert sae_of(activation).reconstruct(rows(0)).shape == (0, 12)


def test_many_rows_fold_the_gate_into_the_weights_and_select_the_same() -> None:
    sae, x = sae_of(), rows(2000)
    assert torch.equal(sae.encode(x) > 0, torch.cat([sae.encode(part) for part in x.split(10)]) > 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"k": 41}, "k=41"),
        ({"k": 0}, "k=0"),
        ({"activation": "gelu"}, "gelu"),
        ({"m": 0, "k": 1}, "n_features=0"),
        ({"row_scaling": "rows"}, "row_scaling"),
        ({"bandwidth": 0.0}, "bandwidth"),
    ],
)
def test_architectures_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sae_of(**options)


def test_weights_begin_as_the_paper_draws_them() -> None:
    sae = SparseAutoencoder(Architecture(32, 32, 3000, k=4), generator=torch.Generator().manual_seed(0))
    w = sae.W_dec.detach()
    assert float(w.min()) < -0.99 < 0.99 < float(w.max()) and abs(float(w.mean())) < 0.01
    assert abs(float(w.std()) - 3**-0.5) < 0.005
    assert torch.equal(sae.W_enc, sae.W_dec.T) and not sae.b_enc.any() and not sae.b_dec.any()


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(12), "not \\(12,\\)"),
        (torch.zeros(3, 13), "not \\(3, 13\\)"),
        (torch.zeros(3, 12, dtype=torch.float16), "float16"),
        (torch.full((3, 12), torch.nan), "not finite"),
        (torch.zeros(3, 12).numpy(), "not ndarray"),
    ],
)
def test_rows_of_another_kind_are_refused(x: Any, words: str) -> None:
    sae = SparseAutoencoder(Architecture(d_in=12, d_out=12, n_features=20, k=3), generator=torch.Generator())
    for use in (sae.encode, sae.reconstruct):
        with pytest.raises(InputError, match=words):
            use(x)
