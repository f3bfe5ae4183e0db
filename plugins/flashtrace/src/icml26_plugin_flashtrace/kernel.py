"""ALTI proximity and what is built on it: token-wise scores (IFR) and span-wise scores (FlashTrace), layer by layer.

One block of a pre-norm transformer adds to the residual stream of token i what its heads read elsewhere:

    x_mid_i = x_prev_i + sum_{j <= i} sum_h A^h_ij v_j^h + b_O,     v_j^h = W_O^h V_j^{g(h)}

with grouped-query attention g(h) = h // (H / H_kv). How close a summand z is to the sum y is its proximity,
max(0, ||y||_1 - ||y - z||_1). Everything here is float32, whatever the model's type is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

EPSILON = 1e-12
CHUNK_TOKENS = 128
SINK_CHUNK = 32
ROW_CHUNK = 256


class AttentionRows(Protocol):
    """The attention of one block, row by row."""

    @property
    def n_heads(self) -> int:
        """H, query heads."""

    def __call__(self, lo: int, hi: int) -> Tensor:
        """Probabilities (H, hi - lo + 1, hi + 1) float32 of the targets lo..hi over the sources 0..hi."""


@dataclass(frozen=True)
class StoredAttention:
    """Attention that was kept whole: ``weights`` (H, N, N)."""

    weights: Tensor

    @property
    def n_heads(self) -> int:
        """H, query heads."""
        return self.weights.shape[0]

    def __call__(self, lo: int, hi: int) -> Tensor:
        """Rows lo..hi over the sources 0..hi."""
        return self.weights[:, lo : hi + 1, : hi + 1].float()


@dataclass
class Block:
    """One attention block of one forward pass: what proximity needs of it.

    ``x_prev``, ``x_mid`` (N, d); ``values`` (N, H_kv, d_h) after the projection's bias; ``out_weight`` (d, H * d_h);
    ``out_bias`` (d,) or None; ``row_scale`` (N,) or None: where the block's result is normalised before it is added
    (Gemma 2), the frozen factor of each target, while the norm's gain is part of ``out_weight``.
    """

    x_prev: Tensor
    x_mid: Tensor
    values: Tensor
    out_weight: Tensor
    attention: AttentionRows
    out_bias: Tensor | None = None
    row_scale: Tensor | None = None
    _by_head: Tensor | None = field(default=None, init=False, repr=False)

    @property
    def n_tokens(self) -> int:
        """N."""
        return self.x_prev.shape[0]

    def rows(self, lo: int, hi: int) -> Tensor:
        """Effective attention (H, hi - lo + 1, hi + 1) of the targets lo..hi, with their factors."""
        rows = self.attention(lo, hi)
        return rows if self.row_scale is None else rows * self.row_scale[lo : hi + 1].float()[None, :, None]

    def _heads(self) -> Tensor:
        """W_O^h of all heads: (H, d_h, d) float32."""
        if self._by_head is None:
            d, heads = self.out_weight.shape[0], self.attention.n_heads
            self._by_head = self.out_weight.float().reshape(d, heads, -1).permute(1, 2, 0).contiguous()
        return self._by_head

    def vectors(self, lo: int, hi: int) -> Tensor:
        """v_j^h of the sources lo..hi-1: (hi - lo, H, d) float32, without the attention weight."""
        heads, values = self._heads(), self.values[lo:hi].float()
        group = heads.shape[0] // values.shape[1]
        values = values.repeat_interleave(group, dim=1) if group > 1 else values
        return torch.bmm(values.transpose(0, 1), heads).transpose(0, 1)

    def without(self, y: Tensor, lo: int, hi: int, weights: Tensor) -> Tensor:
        """y - a_j^h v_j^h for ``y`` (d,) and ``weights`` a (H, hi - lo): (H, hi - lo, d), in one product with W_O.

        The weight goes onto the d_h numbers of the value instead of the d of its vector.
        """
        values = self.values[lo:hi].float().transpose(0, 1)  # (H_kv, n, d_h)
        by_group = weights.reshape(values.shape[0], -1, hi - lo, 1)
        scaled = (values[:, None] * by_group).reshape(weights.shape[0], hi - lo, -1)
        return torch.baddbmm(y, scaled, self._heads(), alpha=-1)


def proximity(z: Tensor, y: Tensor) -> Tensor:
    """max(0, ||y||_1 - ||y - z||_1) over the last axis; 0 <= proximity <= ||z||_1, and proximity(y, y) = ||y||_1."""
    return (y.abs().sum(-1) - (y - z).abs().sum(-1)).clamp_min(0.0)


@dataclass(frozen=True)
class Shares:
    """How much of a target each source is.

    ``sources`` (N,) the sum over layers of e_j, zero after the target; ``residual`` (L,) the share that stayed in the
    token's own residual stream, so that a layer's sources and residual sum to 1 (or both are 0).
    """

    sources: Tensor
    residual: Tensor


def chunks(stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Half-open ranges of ``size`` that cover 0..stop-1."""
    for lo in range(0, stop, size):
        yield lo, min(stop, lo + size)


def chunk_of(block: Block, chunk_tokens: int | None) -> int:
    """Sources at once: what was asked for, or 128, more where their vectors take less than a MiB."""
    if chunk_tokens is not None:
        return chunk_tokens
    return max(CHUNK_TOKENS, 2**18 // (block.attention.n_heads * block.out_weight.shape[0]))


def span_attention(block: Block, lo: int, hi: int, weights: Tensor, row_chunk: int = ROW_CHUNK) -> Tensor:
    """a_j^h = sum_{i in span, i >= j} w_i A^h_ij: (H, hi + 1), read in chunks of rows."""
    total: Tensor | None = None
    for first, last in reversed(list(chunks(hi - lo + 1, row_chunk))):  # the last rows have the most sources
        part = torch.matmul(weights[first:last], block.rows(lo + first, lo + last - 1))
        if total is None:
            total = part
        else:
            total[:, : part.shape[1]] += part
    assert total is not None
    return total


def span_shares(
    blocks: Sequence[Block],
    lo: int,
    hi: int,
    weights: Tensor | None = None,
    *,
    chunk_tokens: int | None = None,
    row_chunk: int = ROW_CHUNK,
    renorm_threshold: float = 0.0,
) -> Shares:
    """Scores of a whole span lo..hi (inclusive) at once, section 4 of the brief.

    ``weights`` (hi - lo + 1,), non-negative, of the targets (None: all alike); only their ratios matter. The weighted sum of
    the targets is one vector, and so is each source's part of it, since v_j does not depend on the target:

        Y = sum_i w_i x_mid_i,  R = sum_i w_i x_prev_i,  Z_jh = (sum_i w_i A^h_ij) v_j^h
        e_j = sum_h prox(Z_jh, Y) / (prox(R, Y) + sum_jh prox(Z_jh, Y) + 1e-12)

    Costs O(M N H) scalar operations and O(N H d (d_h + 1)) for the vectors, against O(M N H d) token by token.
    """
    device = blocks[0].x_mid.device
    w = torch.ones(hi - lo + 1) if weights is None else weights
    w = w.to(device=device, dtype=torch.float32)
    w = w / (w.sum() + EPSILON)
    norms, away, own_away = [], [], []
    for block in blocks:
        w = w.to(block.x_mid.device)  # the layers may be spread over several devices
        y = w @ block.x_mid[lo : hi + 1].float()
        a = span_attention(block, lo, hi, w, row_chunk)
        distances = [
            block.without(y, first, last, a[:, first:last]).abs_().sum(-1)
            for first, last in chunks(hi + 1, chunk_of(block, chunk_tokens))
        ]
        norms.append(y.abs().sum().to(device))
        own_away.append(torch.addmv(y, block.x_prev[lo : hi + 1].float().T, w, alpha=-1).abs_().sum().to(device))
        away.append((distances[0] if len(distances) == 1 else torch.cat(distances, dim=1)).to(device))
    y_norm = torch.stack(norms)
    r = _above((y_norm - torch.stack(own_away)).clamp_min_(0.0), renorm_threshold)  # (L,)
    p = _above((y_norm[:, None, None] - torch.stack(away)).clamp_min_(0.0), renorm_threshold).sum(1)  # (L, hi + 1)
    whole = p.sum(1) + r + EPSILON
    total = torch.zeros(blocks[0].n_tokens, device=device, dtype=torch.float32)
    torch.sum(p / whole[:, None], dim=0, out=total[: hi + 1])
    return Shares(total, r / whole)


def token_shares(
    blocks: Sequence[Block],
    lo: int,
    hi: int,
    *,
    sink_chunk: int = SINK_CHUNK,
    chunk_tokens: int = CHUNK_TOKENS,
    renorm_threshold: float = 0.0,
) -> Tensor:
    """Scores (hi - lo + 1, N) of each target of lo..hi on its own, section 3 of the brief (IFR); the plain sum over layers.

    ``sink_chunk`` targets are handled at once; 1 is the paper's timing baseline. Costs O(M N H d).
    """
    device = blocks[0].x_mid.device
    total = torch.zeros(hi - lo + 1, blocks[0].n_tokens, device=device, dtype=torch.float32)
    for block in blocks:
        y = block.x_mid[lo : hi + 1].float()
        r = _above(proximity(block.x_prev[lo : hi + 1].float(), y), renorm_threshold)
        y_norm = y.abs().sum(-1)
        p = torch.zeros(hi - lo + 1, hi + 1, device=y.device, dtype=torch.float32)
        vectors = [(first, block.vectors(first, last)) for first, last in chunks(hi + 1, chunk_tokens)]
        for s0, s1 in chunks(hi - lo + 1, sink_chunk):
            rows = block.rows(lo + s0, lo + s1 - 1).permute(1, 2, 0)  # (S, sources, H)
            n_sources = rows.shape[1]
            for first, v in vectors:
                if first >= n_sources:
                    break
                last = min(n_sources, first + v.shape[0])
                part = rows[:, first:last, :, None]
                away = torch.addcmul(-y[s0:s1, None, None, :], v[None, : last - first], part).abs_().sum(-1)
                near = (y_norm[s0:s1, None, None] - away).clamp_min_(0.0)
                p[s0:s1, first:last] = _above(near, renorm_threshold).sum(-1)
        total[:, : hi + 1] += (p / (p.sum(1) + r + EPSILON)[:, None]).to(device)
    return total


def _above(p: Tensor, threshold: float) -> Tensor:
    """Proximities with everything below the threshold set to 0."""
    return p if threshold <= 0 else torch.where(p < threshold, torch.zeros_like(p), p)


def reconstruction_error(blocks: Sequence[Block], rows: Sequence[int], eps: float = 0.0) -> Tensor:
    """(L,) how far x_prev + sum A v + b_O is from x_mid, in the worst of the given rows of each block.

    Relative to what the block added, ||x_mid - x_prev||_2, so that a large residual stream hides no fault; ``eps`` times
    ||x_mid||_2 is allowed for rounding of the stream itself.
    """
    errors = []
    for block in blocks:
        worst = torch.zeros((), device=block.x_mid.device)
        for i in rows:
            weights = block.rows(i, i)[:, 0]  # (H, i + 1)
            values = block.values[: i + 1].float()
            group = weights.shape[0] // values.shape[1]
            read = torch.einsum("gkj,jgd->gkd", weights.reshape(values.shape[1], group, -1), values)
            added = block.out_weight.float() @ read.reshape(-1)
            if block.out_bias is not None:
                bias = block.out_bias.float()
                added = added + (bias if block.row_scale is None else bias * block.row_scale[i].float())
            x_mid, x_prev = block.x_mid[i].float(), block.x_prev[i].float()
            off = (x_prev + added - x_mid).norm() - eps * x_mid.norm()
            worst = torch.maximum(worst, off.clamp_min(0.0) / ((x_mid - x_prev).norm() + EPSILON))
        errors.append(worst.cpu())
    return torch.stack(errors)
