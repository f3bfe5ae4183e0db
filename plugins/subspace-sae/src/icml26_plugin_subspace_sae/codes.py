"""Sparse codes: which features are active for which row, and encoding and decoding that touch those only.

A top-k autoencoder needs one dense product a step, the pre-activations. Decoding, the gradient of the codes and both weight
gradients cost B·k·d instead of B·m·d when they gather. The weight gradients are bags over the *transposed* index (rows of a
feature instead of features of a row), so that one kernel, ``embedding_bag``, serves all of them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch.nn import functional

# Members of a group whose maxima are ranked first: the k largest entries lie in the k groups with the largest maxima.
GROUP = 32
# Below this many entries a row, ranking the row at once is quicker.
GROUPING_FROM = 2048


class Transposed(NamedTuple):
    """Codes ordered by feature: the active ``features`` (r,), and for each its ``rows`` from ``offsets`` (r+1,) on.

    ``order`` (nnz,) maps positions of this order to those of the codes.
    """

    features: torch.Tensor
    rows: torch.Tensor
    offsets: torch.Tensor
    order: torch.Tensor


class SparseCodes:
    """Positive codes of B rows in compressed row form.

    ``features`` (nnz,) int64 in [0, m), those of row i from ``offsets[i]`` to ``offsets[i+1]``; ``values`` (nnz,) > 0;
    ``n_features`` m.
    """

    def __init__(self, features: torch.Tensor, values: torch.Tensor, offsets: torch.Tensor, n_features: int) -> None:
        self.features, self.values, self.offsets, self.n_features = features, values, offsets, n_features

    @classmethod
    def of_rows(cls, features: torch.Tensor, values: torch.Tensor, n_features: int) -> SparseCodes:
        """From at most k entries a row, ``features`` and ``values`` (B, k); entries that are not positive are dropped."""
        n_rows, k = features.shape
        positive = values > 0
        if bool(positive.all()):
            offsets = torch.arange(0, n_rows * k + 1, k, device=features.device) if k else _zeros(n_rows + 1, features)
            return cls(features.reshape(-1), values.reshape(-1), offsets, n_features)
        return cls(features[positive], values[positive], _offsets(positive.sum(1)), n_features)

    @classmethod
    def of_dense(cls, codes: torch.Tensor) -> SparseCodes:
        """From dense codes (B, m) ≥ 0."""
        rows, features = codes.nonzero(as_tuple=True)
        counts = torch.bincount(rows, minlength=len(codes))
        return cls(features, codes[rows, features], _offsets(counts), codes.shape[1])

    def __len__(self) -> int:
        """Number of rows B."""
        return len(self.offsets) - 1

    @cached_property
    def rows(self) -> torch.Tensor:
        """Row (nnz,) of each entry."""
        counts = self.offsets.diff()
        return torch.repeat_interleave(torch.arange(len(self), device=counts.device), counts)

    @cached_property
    def transposed(self) -> Transposed:
        """The same entries ordered by feature."""
        ordered, order = torch.sort(self.features.to(torch.int32), stable=True)
        features, counts = torch.unique_consecutive(ordered, return_counts=True)
        return Transposed(features.to(torch.int64), self.rows[order], _offsets(counts), order)

    def with_values(self, values: torch.Tensor) -> SparseCodes:
        """The same pattern with other values (nnz,)."""
        other = SparseCodes(self.features, values, self.offsets, self.n_features)
        other.__dict__.update({k: v for k, v in self.__dict__.items() if k in ("rows", "transposed")})
        return other

    def dense(self) -> torch.Tensor:
        """Codes (B, m)."""
        codes = self.values.new_zeros((len(self), self.n_features))
        return codes.index_put((self.rows, self.features), self.values)


def _zeros(n: int, like: torch.Tensor) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.int64, device=like.device)


def _offsets(counts: torch.Tensor) -> torch.Tensor:
    return functional.pad(counts.cumsum(0), (1, 0))


def top_k(values: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest entries of each row of ``values`` (B, m): values and indices (B, k), in no particular order.

    Exact. Long rows are ranked in two passes: the k largest entries lie in the k groups of largest maximum.
    """
    n_rows, width = values.shape
    if width < GROUPING_FROM or width % GROUP or k * GROUP * 2 > width or not values.is_contiguous():
        return torch.topk(values, k, dim=1, sorted=False)
    n_groups = width // GROUP
    members = values.view(
        n_rows, GROUP, n_groups
    )  # group j holds j, j + n_groups, ...: the maximum runs over whole vectors
    groups = torch.topk(members.amax(1), k, dim=1, sorted=False).indices
    step = torch.arange(0, width, n_groups, device=values.device)
    candidates = (groups[:, :, None] + step).reshape(n_rows, k * GROUP)
    best, position = torch.topk(values.gather(1, candidates), k, dim=1, sorted=False)
    return best, candidates.gather(1, position)


def bag_sum(table: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Σ over each bag of weights · table[index]: (n_bags, width)."""
    if len(indices) == 0:
        return table.new_zeros((len(offsets) - 1, table.shape[1]))
    return functional.embedding_bag(
        indices, table, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
    )


def _row_gradient(codes: SparseCodes, table: torch.Tensor, weights: torch.Tensor, sparse: bool) -> torch.Tensor:
    """Gradient (m, width) whose row f is Σ weights · table[row] over the rows where f is active."""
    transposed = codes.transposed
    values = bag_sum(table, transposed.rows, transposed.offsets, weights[transposed.order])
    shape = (codes.n_features, table.shape[1])
    if sparse:
        return torch.sparse_coo_tensor(
            transposed.features[None], values, shape, is_coalesced=True, check_invariants=False
        )
    return table.new_zeros(shape).index_copy_(0, transposed.features, values)


class _Encode(torch.autograd.Function):
    """Values of the active pre-activations, already computed, with gradients for what they came from."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, encoder: torch.Tensor, b_enc: torch.Tensor, codes: SparseCodes, sparse: bool
    ) -> torch.Tensor:
        ctx.save_for_backward(x, encoder)
        ctx.codes, ctx.sparse = codes, sparse
        return codes.values.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (grad,) = grads
        x, encoder = ctx.saved_tensors
        codes: SparseCodes = ctx.codes
        wants_x, wants_encoder, wants_bias = ctx.needs_input_grad[:3]
        d_x = bag_sum(encoder, codes.features, codes.offsets, grad) if wants_x else None
        d_encoder = _row_gradient(codes, x, grad, ctx.sparse) if wants_encoder else None
        d_bias = grad.new_zeros(codes.n_features).index_add_(0, codes.features, grad) if wants_bias else None
        return d_x, d_encoder, d_bias, None, None


class _Decode(torch.autograd.Function):
    """Σ of the active decoder rows, weighted by their codes."""

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, decoder: torch.Tensor, codes: SparseCodes, sparse: bool
    ) -> torch.Tensor:
        ctx.save_for_backward(values, decoder)
        ctx.codes, ctx.sparse = codes, sparse
        return bag_sum(decoder, codes.features, codes.offsets, values)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        grad = grads[0].contiguous()
        values, decoder = ctx.saved_tensors
        codes: SparseCodes = ctx.codes
        d_values = _row_dots(decoder, grad, codes) if ctx.needs_input_grad[0] else None
        d_decoder = _row_gradient(codes, grad, values, ctx.sparse) if ctx.needs_input_grad[1] else None
        return d_values, d_decoder, None, None


def _row_dots(decoder: torch.Tensor, rows: torch.Tensor, codes: SparseCodes) -> torch.Tensor:
    """decoder[feature] · rows[row] for every entry (nnz,)."""
    if len(codes.features) == 0:
        return rows.new_zeros(0)
    return torch.ops.aten._embedding_bag_per_sample_weights_backward(
        rows, decoder, codes.features, codes.offsets[:-1], codes.rows, 0
    )


def sparse_encode(
    x: torch.Tensor, encoder: torch.Tensor, b_enc: torch.Tensor, codes: SparseCodes, *, sparse_gradient: bool = False
) -> torch.Tensor:
    """``codes.values`` (nnz,) as a function of x (B, d), ``encoder`` (m, d) and ``b_enc`` (m,): x·encoder[f] + b_enc[f].

    The values are taken from ``codes``, whatever their computation; the gradient is that of the formula. With
    ``sparse_gradient`` the encoder's is a sparse tensor over features.
    """
    values: torch.Tensor = _Encode.apply(x, encoder, b_enc, codes, sparse_gradient)
    return values


def sparse_decode(
    values: torch.Tensor, decoder: torch.Tensor, codes: SparseCodes, *, sparse_gradient: bool = False
) -> torch.Tensor:
    """Σ_f values · decoder[f] (B, d_out) over the active features of each row; ``decoder`` (m, d_out), no bias."""
    decoded: torch.Tensor = _Decode.apply(values, decoder, codes, sparse_gradient)
    return decoded
