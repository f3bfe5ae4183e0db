"""Attention probabilities of single rows from queries and keys, exactly as the model computes them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of ``x`` (N, heads, d_h); ``cos`` and ``sin`` (N, d_h) with any scaling already in them."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos[:, None, :] + turned * sin[:, None, :]


@dataclass(frozen=True)
class RecomputedAttention:
    """Rows of softmax(mask(cap(scaling q k^T))), computed when they are asked for; nothing of size N x N is kept.

    ``queries`` (N, H, d_h) and ``keys`` (N, H_kv, d_h) after their norms and rotary embedding. ``window``: a token sees
    itself and window - 1 tokens before it (None: all). ``softcap``: logits become cap * tanh(logit / cap).
    """

    queries: Tensor
    keys: Tensor
    scaling: float
    window: int | None = None
    softcap: float | None = None

    @property
    def n_heads(self) -> int:
        """H, query heads."""
        return self.queries.shape[1]

    def __call__(self, lo: int, hi: int) -> Tensor:
        """Probabilities (H, hi - lo + 1, hi + 1) float32 of the targets lo..hi over the sources 0..hi."""
        n_rows, n_heads, d_h = hi - lo + 1, self.queries.shape[1], self.queries.shape[2]
        n_kv = self.keys.shape[1]
        q = self.queries[lo : hi + 1].float().permute(1, 0, 2).reshape(n_kv, -1, d_h)
        k = self.keys[: hi + 1].float().permute(1, 2, 0)
        logits = torch.bmm(q, k).mul_(self.scaling).reshape(n_heads, n_rows, hi + 1)
        if self.softcap is not None:
            logits = (logits / self.softcap).tanh_().mul_(self.softcap)
        i = torch.arange(lo, hi + 1, device=logits.device)[:, None]
        j = torch.arange(hi + 1, device=logits.device)[None, :]
        hidden = j > i
        if self.window is not None:
            hidden |= j <= i - self.window
        return logits.masked_fill_(hidden, float("-inf")).softmax(dim=-1)
