"""Sparse codes against dense products: selection, decoding and all gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from icml26_plugin_subspace_sae.codes import GROUPING_FROM, SparseCodes, sparse_decode, sparse_encode, top_k


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("width", "k"), [(64, 5), (GROUPING_FROM, 7), (4096, 64), (GROUPING_FROM + 1, 3), (4096, 1)])
def test_top_k_holds_the_largest_entries_of_each_row(width: int, k: int) -> None:
    values = torch.randn(33, width, generator=generator())
    best, where = top_k(values, k)
    expected = values.sort(dim=1, descending=True)
    assert torch.equal(best.sort(dim=1, descending=True).values, expected.values[:, :k])
    assert torch.equal(values.gather(1, where), best)
    assert all(len(set(row.tolist())) == k for row in where)


@given(st.integers(0, 2**31), st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_top_k_is_exact_with_ties(seed: int, k: int) -> None:
    values = torch.randint(0, 4, (5, GROUPING_FROM), generator=generator(seed)).float()
    best, where = top_k(values, k)
    assert torch.equal(best.sort(1).values, torch.topk(values, k, dim=1).values.sort(1).values)
    assert all(len(set(row.tolist())) == k for row in where)


def test_rows_with_too_few_positive_entries_keep_those_only() -> None:
    codes = SparseCodes.of_rows(torch.tensor([[3, 1], [0, 2], [4, 0]]), torch.tensor([[1.0, -2], [0, 0], [5, 6]]), 6)
    assert codes.offsets.tolist() == [0, 1, 1, 3]
    expected = torch.zeros(3, 6)
    expected[0, 3], expected[2, 4], expected[2, 0] = 1, 5, 6
    assert torch.equal(codes.dense(), expected)
    assert torch.equal(SparseCodes.of_dense(expected).dense(), expected)


def test_transposed_lists_the_rows_of_each_feature() -> None:
    dense = torch.relu(torch.randn(20, 9, generator=generator(3)) - 0.8)
    codes = SparseCodes.of_dense(dense)
    t = codes.transposed
    for i, feature in enumerate(t.features.tolist()):
        rows = t.rows[t.offsets[i] : t.offsets[i + 1]]
        assert torch.equal(rows, dense[:, feature].nonzero()[:, 0])
    assert set(t.features.tolist()) == set(dense.nonzero()[:, 1].tolist())


def operands(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    g = generator(seed)
    options = {"dtype": torch.float64, "generator": g}
    x, encoder = torch.randn(6, 4, **options), torch.randn(11, 4, **options)
    return x, encoder, torch.randn(11, **options), torch.randn(11, 5, **options)


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_equal_those_of_dense_algebra(sparse: bool) -> None:
    x, encoder, bias, decoder = (t.requires_grad_() for t in operands())
    h = x @ encoder.T + bias
    kept = torch.zeros_like(h).scatter(1, h.topk(3).indices, 1.0) * (h > 0)
    (((h * kept) @ decoder).square().sum()).backward()
    expected = [t.grad.clone() for t in (x, encoder, bias, decoder) if t.grad is not None]
    for t in (x, encoder, bias, decoder):
        t.grad = None
    codes = SparseCodes.of_dense((h * kept).detach())
    values = sparse_encode(x, encoder, bias, codes, sparse_gradient=sparse)
    sparse_decode(values, decoder, codes, sparse_gradient=sparse).square().sum().backward()
    assert encoder.grad is not None and decoder.grad is not None
    assert encoder.grad.is_sparse == sparse and decoder.grad.is_sparse == sparse
    for t, wanted in zip((x, encoder, bias, decoder), expected, strict=True):
        assert t.grad is not None
        found = t.grad.to_dense() if t.grad.is_sparse else t.grad
        assert torch.allclose(found, wanted, atol=1e-12)


def test_gradcheck_in_double_precision_with_the_selection_fixed() -> None:
    x, encoder, bias, decoder = (t.requires_grad_() for t in operands(1))
    codes = SparseCodes.of_dense(torch.relu(x @ encoder.T + bias).detach())

    def reconstruct(x: torch.Tensor, e: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        # sparse_encode takes its values from the codes: they must follow the operands here.
        h = (x @ e.T + b).detach()
        now = codes.with_values(h[codes.rows, codes.features])
        return sparse_decode(sparse_encode(x, e, b, now), w, now)

    assert torch.autograd.gradcheck(reconstruct, (x, encoder, bias, decoder))


def test_rows_without_any_code_decode_to_zero() -> None:
    codes = SparseCodes.of_dense(torch.zeros(4, 7))
    decoder = torch.randn(7, 3, generator=generator()).requires_grad_()
    decoded = sparse_decode(codes.values, decoder, codes)
    decoded.sum().backward()
    assert torch.equal(decoded, torch.zeros(4, 3)) and decoder.grad is not None and not decoder.grad.any()
