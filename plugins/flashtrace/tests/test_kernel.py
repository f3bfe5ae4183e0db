"""Proximity, span-wise and token-wise scores against closed forms and brute force."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from builders import random_blocks
from hypothesis import given, settings
from hypothesis import strategies as st
from icml26_plugin_flashtrace.kernel import (
    Block,
    StoredAttention,
    proximity,
    reconstruction_error,
    span_shares,
    token_shares,
)


def brute_span(blocks: list[Block], lo: int, hi: int, w: np.ndarray, tau: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """The definition in float64: a loop over layers, sources, heads and targets; scores (N,) and residual shares (L,)."""

    def prox(z: np.ndarray, y: np.ndarray) -> float:
        value = max(0.0, np.abs(y).sum() - np.abs(y - z).sum())
        return value if value >= tau else 0.0

    w = w / w.sum()
    total, residuals = np.zeros(blocks[0].n_tokens), []
    for block in blocks:
        x_prev, x_mid, values, weight = (
            t.double().numpy() for t in (block.x_prev, block.x_mid, block.values, block.out_weight)
        )
        attention = block.attention.weights.double().numpy()  # type: ignore[attr-defined]
        heads, d_h = attention.shape[0], values.shape[2]
        y = sum(w[i - lo] * x_mid[i] for i in range(lo, hi + 1))
        r = prox(sum(w[i - lo] * x_prev[i] for i in range(lo, hi + 1)), y)
        p = np.zeros(blocks[0].n_tokens)
        for j in range(hi + 1):
            for h in range(heads):
                v = weight[:, h * d_h : (h + 1) * d_h] @ values[j, h // (heads // values.shape[1])]
                z = sum(w[i - lo] * attention[h, i, j] * v for i in range(max(lo, j), hi + 1))
                p[j] += prox(z, y)
        total += p / (p.sum() + r + 1e-12)
        residuals.append(r / (p.sum() + r + 1e-12))
    return total, np.array(residuals)


def test_proximity_of_scaled_vectors_is_known() -> None:
    y = torch.tensor([1.0, -2.0, 0.5])
    norm = 3.5
    for c, expected in ((0, 0), (0.25, 0.25), (1, 1), (1.5, 0.5), (2, 0), (2.5, 0), (-1, 0)):
        assert proximity(c * y, y).item() == pytest.approx(expected * norm, abs=1e-6)


@given(st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_proximity_is_at_most_the_summand_and_positively_homogeneous(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    z, y = torch.randn(2, 8, generator=g)
    p = proximity(z, y).item()
    assert 0 <= p <= z.abs().sum().item() + 1e-5
    assert proximity(3 * z, 3 * y).item() == pytest.approx(3 * p, abs=1e-4)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("tau", [0.0, 0.4])
def test_span_scores_are_the_definition(kv_heads: int, tau: float) -> None:
    blocks = random_blocks(kv_heads=kv_heads)
    w = np.random.default_rng(0).uniform(size=5)
    found = span_shares(blocks, 6, 10, torch.tensor(w), renorm_threshold=tau)
    expected, residual = brute_span(blocks, 6, 10, w, tau)
    np.testing.assert_allclose(found.sources, expected, atol=1e-6)
    np.testing.assert_allclose(found.residual, residual, atol=1e-5)


@pytest.mark.parametrize("sink_chunk", [1, 3, 32])
@pytest.mark.parametrize("tau", [0.0, 0.4])
def test_token_scores_are_the_definition(sink_chunk: int, tau: float) -> None:
    blocks = random_blocks()
    found = token_shares(blocks, 4, 11, sink_chunk=sink_chunk, renorm_threshold=tau)
    for row, i in zip(found, range(4, 12), strict=True):
        np.testing.assert_allclose(row, brute_span(blocks, i, i, np.ones(1), tau)[0], atol=1e-6)


def test_a_residual_share_below_the_threshold_is_dropped_like_any_other() -> None:
    blocks = [replace(b, x_prev=0.01 * b.x_prev, x_mid=b.x_mid - 0.99 * b.x_prev) for b in random_blocks(layers=1)]
    found = span_shares(blocks, 6, 10, renorm_threshold=0.4)
    expected, residual = brute_span(blocks, 6, 10, np.ones(5), 0.4)
    assert residual.tolist() == [0.0] and span_shares(blocks, 6, 10).residual.item() > 0
    assert found.residual.tolist() == [0.0]
    np.testing.assert_allclose(found.sources, expected, atol=1e-6)
    rows = token_shares(blocks, 6, 10, renorm_threshold=0.4)
    for row, i in zip(rows, range(6, 11), strict=True):
        np.testing.assert_allclose(row, brute_span(blocks, i, i, np.ones(1), 0.4)[0], atol=1e-6)


def test_a_span_of_one_token_is_its_token_wise_row() -> None:
    blocks = random_blocks(n=30)
    rows = token_shares(blocks, 0, 29)
    for i in (0, 7, 29):
        torch.testing.assert_close(span_shares(blocks, i, i).sources, rows[i], atol=1e-5, rtol=0)


def test_a_span_is_not_the_sum_of_its_rows() -> None:
    """Proximity is not linear: were this equal, the span-wise definition would not have been computed."""
    blocks = random_blocks()
    mean = token_shares(blocks, 6, 10).mean(0)
    assert (span_shares(blocks, 6, 10).sources - mean).abs().max() > 0.01


def test_only_ratios_of_weights_matter_and_none_means_all_alike() -> None:
    blocks = random_blocks()
    w = torch.rand(5, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(span_shares(blocks, 6, 10, w).sources, span_shares(blocks, 6, 10, 7 * w).sources)
    torch.testing.assert_close(span_shares(blocks, 6, 10).sources, span_shares(blocks, 6, 10, torch.ones(5)).sources)


def test_weights_choose_targets() -> None:
    blocks = random_blocks()
    one_hot = span_shares(blocks, 4, 10, torch.tensor([0.0, 0, 0, 2, 0, 0, 0])).sources
    torch.testing.assert_close(one_hot, token_shares(blocks, 7, 7)[0], atol=1e-5, rtol=0)
    absent = span_shares(blocks, 6, 10, torch.tensor([1.0, 2, 3, 0, 0])).sources
    torch.testing.assert_close(absent, span_shares(blocks, 6, 8, torch.tensor([1.0, 2, 3])).sources, atol=1e-6, rtol=0)


def test_shares_of_a_layer_sum_to_one_with_the_residual() -> None:
    blocks = random_blocks(layers=3)
    for block in blocks:
        shares = span_shares([block], 5, 11)
        assert 0 <= shares.sources.sum() <= 1
        assert (shares.sources.sum() + shares.residual.sum()).item() == pytest.approx(1, abs=1e-6)
    assert span_shares(blocks, 5, 11).sources.sum() <= 3


def test_nothing_after_the_span_gets_a_score() -> None:
    blocks = random_blocks()
    assert (span_shares(blocks, 3, 6).sources[7:] == 0).all()
    rows = token_shares(blocks, 3, 8)
    assert all((rows[k, 3 + k + 1 :] == 0).all() for k in range(6))


@pytest.mark.parametrize("chunk", [1, 7, 128, 10**6])
def test_chunks_change_nothing(chunk: int) -> None:
    blocks = random_blocks(n=40)
    whole, part = span_shares(blocks, 20, 39), span_shares(blocks, 20, 39, chunk_tokens=chunk, row_chunk=chunk)
    torch.testing.assert_close(whole.sources, part.sources, atol=1e-6, rtol=0)
    rows = token_shares(blocks, 20, 39, chunk_tokens=chunk, sink_chunk=min(chunk, 64))
    torch.testing.assert_close(rows, token_shares(blocks, 20, 39), atol=1e-6, rtol=0)


def test_the_order_of_heads_does_not_matter() -> None:
    (block,) = random_blocks(kv_heads=4, layers=1)
    order = torch.tensor([2, 0, 3, 1])
    weight = block.out_weight.reshape(16, 4, 4)[:, order].reshape(16, 16)
    permuted = Block(
        block.x_prev, block.x_mid, block.values[:, order], weight, StoredAttention(block.attention.weights[order])  # type: ignore[attr-defined]
    )  # fmt: skip
    torch.testing.assert_close(span_shares([block], 5, 11).sources, span_shares([permuted], 5, 11).sources)


def test_a_rotation_inside_a_head_does_not_matter() -> None:
    (block,) = random_blocks(kv_heads=4, layers=1)
    q, _ = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(0)))
    values, weight = block.values.clone(), block.out_weight.clone().reshape(16, 4, 4)
    values[:, 1] = values[:, 1] @ q
    weight[:, 1] = weight[:, 1] @ q  # W_O^h V = (W_O^h Q)(Q^T V)
    rotated = Block(block.x_prev, block.x_mid, values, weight.reshape(16, 16), block.attention)
    expected = span_shares([block], 5, 11).sources
    torch.testing.assert_close(span_shares([rotated], 5, 11).sources, expected, atol=1e-5, rtol=0)


def test_uniform_attention_over_orthogonal_tokens_has_a_closed_form() -> None:
    """x_prev_j = s e_j, V = W_O = I: every source gets 1 / (2 (i + 1)), the residual stream 1/2."""
    n, s = 9, 3.0
    x = s * torch.eye(n)
    attention = torch.tril(torch.ones(n, n)) / torch.arange(1, n + 1)[:, None]
    block = Block(x, x + attention @ x, x[:, None], torch.eye(n), StoredAttention(attention[None]))
    for i in range(n):
        shares = span_shares([block], i, i)
        expected = torch.where(torch.arange(n) <= i, 1 / (2 * (i + 1)), 0.0)
        torch.testing.assert_close(shares.sources, expected, atol=1e-5, rtol=0)
        assert shares.residual.item() == pytest.approx(0.5, abs=1e-5)


def test_a_target_that_nothing_is_near_gives_zeros_not_nan() -> None:
    block = Block(
        torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(3, 1, 4), torch.eye(4), StoredAttention(torch.zeros(1, 3, 3))
    )
    shares = span_shares([block], 1, 2)
    assert (shares.sources == 0).all()
    assert (shares.residual == 0).all()


def test_the_identity_error_sees_each_part() -> None:
    blocks = random_blocks(layers=1)
    rows = list(range(12))
    assert reconstruction_error(blocks, rows).max() < 1e-5
    (block,) = blocks
    wrong = [
        replace(block, out_bias=None),
        replace(block, values=block.values.flip(1)),
        replace(block, out_weight=block.out_weight.flip(1)),
        replace(block, x_mid=block.x_mid + 0.01),
        replace(block, attention=StoredAttention(block.attention.weights.flip(0))),  # type: ignore[attr-defined]
    ]
    assert all(reconstruction_error([w], rows).max() > 1e-3 for w in wrong)


def test_half_precision_input_is_accumulated_in_float32() -> None:
    blocks = [
        replace(b, x_prev=b.x_prev.bfloat16(), x_mid=b.x_mid.bfloat16(), values=b.values.bfloat16())
        for b in random_blocks()
    ]
    found = span_shares(blocks, 6, 10)
    assert found.sources.dtype is torch.float32
    exact = [replace(b, x_prev=b.x_prev.float(), x_mid=b.x_mid.float(), values=b.values.float()) for b in blocks]
    torch.testing.assert_close(found.sources, span_shares(exact, 6, 10).sources, atol=1e-7, rtol=0)
    assert math.isfinite(found.sources.sum().item())
