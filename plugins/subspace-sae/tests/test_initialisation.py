"""Active Subspace Initialization: what the brief's derivation says must hold of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from icml26.errors import InputError
from icml26_plugin_subspace_sae.autoencoder import Architecture, SparseAutoencoder
from icml26_plugin_subspace_sae.initialisation import (
    COARSE,
    Initialisation,
    decoder_bias,
    initialise,
    initialise_weights,
    search_norm,
)
from icml26_plugin_subspace_sae.lowrank_sparse import LowrankSparse, draw
from icml26_plugin_subspace_sae.subspace import active_subspace, n_directions

D, R = 48, 12


def low_rank(n: int = 3000, d: int = D, r: int = R, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0][:, :r]
    return (rng.standard_normal((n, r)) @ basis.T + noise * rng.standard_normal((n, d))).astype(np.float32)


def new(m: int = 400, d: int = D, k: int = 5, activation: str = "topk", seed: int = 0) -> SparseAutoencoder:
    a = Architecture(d, d, m, k=k, activation=activation)  # type: ignore[arg-type]
    return SparseAutoencoder(a, generator=torch.Generator().manual_seed(seed))


def begin(sae: SparseAutoencoder, x: np.ndarray, **options: object) -> None:
    rows = torch.from_numpy(x)
    initialise(sae, rows, rows, Initialisation(**options))  # type: ignore[arg-type]


def test_every_feature_lies_in_the_active_subspace_which_they_span() -> None:
    x, sae = low_rank(noise=0.01), new()
    begin(sae, x, q=R)
    basis = torch.from_numpy(active_subspace(x, R).basis)
    w = sae.W_dec.detach()
    outside = w - w @ basis @ basis.T
    assert bool((outside.norm(dim=1) <= 1e-5 * w.norm(dim=1)).all())
    values = torch.linalg.svdvals(w.double())
    assert float(values[R - 1]) > 0.1 * float(values[0]) and float(values[R]) < 1e-5 * float(values[0])


def test_with_q_equal_d_rows_are_only_rotated() -> None:
    x, sae = low_rank(r=D), new()
    before = sae.W_dec.detach().clone()
    begin(sae, x, q=D, norm_search=False)
    after = sae.W_dec.detach()
    assert torch.allclose(before @ before.T, after @ after.T, atol=1e-4)
    assert not torch.allclose(before, after, atol=0.1)


def test_the_subspace_is_that_of_de_meaned_data() -> None:
    x = low_rank(noise=0.01)
    offset = 50 * np.random.default_rng(3).standard_normal(D).astype(np.float32)
    plain, shifted = active_subspace(x, R).basis, active_subspace(x + offset, R).basis
    cosines = np.linalg.svd(plain.T.astype(np.float64) @ shifted, compute_uv=False)
    assert np.arccos(np.clip(cosines, -1, 1)).max() < 1e-3


def test_pre_activations_vary_d_over_r_times_as_much_as_the_baselines() -> None:
    x, ours, base = low_rank(), new(m=2500), new(m=2500)
    for sae, subspace in ((ours, "init"), (base, "none")):
        begin(sae, x, subspace=subspace, q=R, norm_search=False, tied=False)
    rows = torch.from_numpy(x)
    unit = [torch.nn.functional.normalize(s.W_dec.detach(), dim=1) for s in (ours, base)]
    variance = [float((rows @ w.T).var(0).mean()) for w in unit]
    assert variance[0] / variance[1] == pytest.approx(D / R, rel=0.15)


def test_tied_start_and_centred_pre_activations() -> None:
    x, sae = low_rank() + 3.0, new()
    begin(sae, x, q=R)
    assert torch.equal(sae.W_enc, sae.W_dec.T)
    h = torch.from_numpy(x).double() @ sae.W_enc.detach().double() + sae.b_enc.detach().double()
    assert float(h.mean(0).abs().max()) < 1e-4
    assert torch.allclose(sae.b_dec.detach(), torch.from_numpy(x).mean(0), atol=1e-4)


def literal_loss(x: torch.Tensor, W: torch.Tensor, b_dec: torch.Tensor, s: float, k: int, activation: str) -> float:
    """The search's loss at norm s without any algebra."""
    rows = torch.nn.functional.normalize(W, dim=1) * s
    h = x @ rows.T - (x @ rows.T).mean(0)
    g = h * s
    if activation == "topk":
        z = torch.zeros_like(g).scatter(1, g.topk(k).indices, 1.0) * torch.relu(g) / s
    elif activation == "relu":
        z = torch.relu(g) / s
    elif activation == "batchtopk":
        edge = g.flatten().sort(descending=True).values[k * len(x) - 1]
        z = torch.where(g >= edge, torch.relu(g), 0.0) / s
    else:
        z = torch.where(g > 0.3, g, 0.0) / s
    return float((z @ rows + b_dec - x).square().sum(1).mean())


@pytest.mark.parametrize("activation", ["topk", "batchtopk", "relu", "jumprelu"])
def test_norm_search_equals_the_literal_one_and_finds_the_least_loss(activation: str) -> None:
    x = torch.from_numpy(low_rank(700, noise=0.05)).double() + 0.5
    W = torch.rand(200, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2 - 1
    mean = x.mean(0)
    norm, norms, losses = search_norm(x, x, W, mean, activation=activation, k=5, threshold=0.3)  # type: ignore[arg-type]
    for i in range(0, len(norms), 13):
        assert losses[i] == pytest.approx(literal_loss(x, W, mean, float(norms[i]), 5, activation), rel=1e-6)
    found = literal_loss(x, W, mean, norm, 5, activation)
    coarse = min(literal_loss(x, W, mean, float(s), 5, activation) for s in COARSE)
    assert found <= coarse + 1e-9 and found == pytest.approx(losses.min(), rel=1e-6)
    assert len(COARSE) == 50 and len(norms) <= 70


def test_q_is_a_number_a_share_of_the_width_a_share_of_the_variance_or_the_effective_rank() -> None:
    values = np.array([2.0, 2.0, 0, 0, 0, 0, 0, 0])
    assert n_directions(3, values) == n_directions("3", values) == 3
    assert n_directions("0.5d", values) == 4
    assert n_directions(0.99, values) == n_directions("99%", values) == n_directions("auto", values) == 2
    assert n_directions("1.0d", values) == 8
    for bad in (0, 9, -1, 2.5, "half", "1.5d", "0%", "120%", True):
        with pytest.raises(InputError, match="q="):
            n_directions(bad, values)


@pytest.mark.parametrize(
    ("rows", "q", "words"),
    [
        (low_rank(8), 10, "8 rows span at most 7"),
        (low_rank(), R + 1, "span only 12"),
        (np.ones((50, 4), np.float32), 2, "constant"),
        (np.full((50, 4), np.nan, np.float32), 2, "not finite"),
        (np.ones(50, np.float32), 2, "shape"),
    ],
)
def test_data_that_has_no_such_subspace_is_refused(rows: np.ndarray, q: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        active_subspace(rows, q)


def test_the_geometric_median_is_the_true_one() -> None:
    rows = torch.cat([torch.zeros(60, 3), torch.full((40, 3), 1000.0)])
    assert torch.allclose(decoder_bias(rows, "mean"), torch.full((3,), 400.0))
    assert float(decoder_bias(rows, "geometric-median").abs().max()) < 1e-2
    triangle = torch.tensor([[0.0, 0.0], [4.0, 0.0], [2.0, 3.0]])
    point = decoder_bias(triangle, "geometric-median")
    pull = torch.nn.functional.normalize(triangle - point, dim=1).sum(0)
    assert float(pull.norm()) < 1e-4
    assert not decoder_bias(rows, "zero").any()


def test_each_part_is_a_switch_of_its_own() -> None:
    x = low_rank(noise=0.1) + 1.0
    off = {"subspace": "none", "bias": "zero", "norm_search": False, "tied": False, "centre": False}
    plain = new()
    begin(plain, x, **off)
    untouched = new()
    for name in ("encoder", "b_enc", "W_dec", "b_dec"):
        assert torch.equal(getattr(plain, name), getattr(untouched, name))
    changed = {
        "subspace": ("init", {"W_dec"}),
        "bias": ("mean", {"b_dec"}),
        "norm_search": (True, {"W_dec"}),
        "centre": (True, {"b_enc"}),
    }
    for part, (value, names) in changed.items():
        sae = new()
        begin(sae, x, **{**off, part: value, "q": R})
        for name in ("encoder", "b_enc", "W_dec", "b_dec"):
            assert torch.equal(getattr(sae, name), getattr(untouched, name)) == (name not in names), (part, name)


class ForeignSae(torch.nn.Module):
    """An autoencoder with the usual parameters and nothing else of ours."""

    def __init__(self, d: int, m: int) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.W_enc = torch.nn.Parameter(torch.randn(d, m, generator=g))
        self.W_dec = torch.nn.Parameter(torch.randn(m, d, generator=g))
        self.b_enc, self.b_dec = torch.nn.Parameter(torch.ones(m)), torch.nn.Parameter(torch.zeros(d))


def test_autoencoders_of_others_are_initialised_in_place() -> None:
    x, sae = low_rank() + 2.0, ForeignSae(D, 300)
    report = initialise_weights(sae, x, q=R, k=5)
    assert report.active is not None and report.active.q == R
    basis = torch.from_numpy(report.active.basis)
    w = sae.W_dec.detach()
    assert float((w - w @ basis @ basis.T).norm()) < 1e-4 * float(w.norm())
    assert torch.allclose(w.norm(dim=1), torch.full((300,), float(report.norm or 0)), rtol=1e-4)
    assert torch.equal(sae.W_enc, sae.W_dec.T)
    h = torch.from_numpy(x) @ sae.W_enc.detach() + sae.b_enc.detach()
    assert float(h.mean(0).abs().max()) < 1e-3
    with pytest.raises(InputError, match="shape"):
        initialise_weights(sae, x[:, :-1])
    wrong = ForeignSae(D, 300)
    wrong.W_enc = torch.nn.Parameter(wrong.W_enc.T.detach())
    with pytest.raises(InputError, match="W_enc"):
        initialise_weights(wrong, x)


def test_a_transcoder_between_widths_cannot_be_tied() -> None:
    sae = SparseAutoencoder(Architecture(D, 20, 100, k=3), generator=torch.Generator().manual_seed(0))
    x, y = torch.from_numpy(low_rank()), torch.from_numpy(low_rank(d=20, r=6))
    with pytest.raises(InputError, match="tied"):
        initialise(sae, x, y, Initialisation(q=6))
    report = initialise(sae, x, y, Initialisation(q=6, tied=False, norm_search=False))
    assert report.active is not None and report.active.basis.shape == (20, 6)


def test_the_norm_search_prefers_smaller_features_inside_the_subspace() -> None:
    """The brief's run: about 0.6 against 0.8."""
    x = draw(np.random.default_rng(0), LowrankSparse(), 3000, 10).train
    x = x * (64**0.5 / np.linalg.norm(x, axis=1).mean())
    norms = {}
    for subspace in ("init", "none"):
        sae, rows = new(m=2048, d=64, k=4), torch.from_numpy(x)
        norms[subspace] = initialise(sae, rows, rows, Initialisation(subspace=subspace, q=16)).norm  # type: ignore[arg-type]
    assert norms["init"] == pytest.approx(0.63, abs=0.06) and norms["none"] == pytest.approx(0.83, abs=0.06)


def plain(m: int = 40, d: int = 8) -> torch.nn.Module:
    sae, generator = torch.nn.Module(), torch.Generator().manual_seed(0)
    for name, shape in {"W_enc": (d, m), "b_enc": (m,), "W_dec": (m, d), "b_dec": (d,)}.items():
        setattr(sae, name, torch.nn.Parameter(torch.rand(shape, generator=generator) - 0.5))
    return sae


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"k": 41}, "k=41"),
        ({"k": 0}, "k=0"),
        ({"k": 2.5}, "k=2.5"),
        ({"bias": "median"}, "bias='median'"),
        ({"activations": np.full((50, 8), "a")}, "not real numbers"),
        ({"activations": np.ones((50, 8), complex)}, "not real numbers"),
        ({"activations": torch.eye(8).to_sparse()}, "dense real numbers"),
        ({"activations": np.full((50, 8), 1e300)}, "not finite"),
        ({"W_dec": torch.zeros(40, 8)}, "zero or not finite"),
        ({"W_dec": torch.full((40, 8), torch.nan)}, "zero or not finite"),
        ({"W_dec": torch.ones(8)}, "are not"),
        ({"W_dec": torch.ones(40, 8, dtype=torch.int64)}, "int64"),
        ({"b_dec": None}, "NoneType"),
    ],
)
def test_what_cannot_be_initialised_is_refused_and_left_as_it_was(options: dict[str, Any], words: str) -> None:
    sae, options = plain(), {"activations": low_rank(100, 8, 4), "k": 4} | options
    for name in ("W_dec", "b_dec"):
        if name in options:
            delattr(sae, name)
            setattr(sae, name, options.pop(name))
    before = [p.detach().clone() for p in sae.parameters()]
    with pytest.raises(InputError, match=words):
        initialise_weights(sae, **options)
    assert all(torch.equal(a, b) for a, b in zip(before, sae.parameters(), strict=True))


def test_every_layout_of_activations_initialises_alike() -> None:
    x = low_rank(100, 8, 4).astype(np.float32)
    read_only = x.copy()
    read_only.setflags(write=False)
    reference = plain()
    initialise_weights(reference, x, q=4, k=4)
    for other in (
        np.asfortranarray(x),
        x[::-1][::-1],
        x.astype(">f4"),
        read_only,
        torch.from_numpy(x),
        x[:, ::-1][:, ::-1],
    ):
        sae = plain()
        initialise_weights(sae, other, q=4, k=4)
        assert torch.equal(sae.W_dec, reference.W_dec)
