"""The sparse autoencoder (sections 1 and 9): one linear encoder, one of four activation functions, one linear decoder.

Symbols: W_E (d_in, m), b_E (m,), W_D (m, d_out), b_D (d_out,); h = x W_E + b_E, g = h ‖W_D row‖, z = act(g) / ‖W_D row‖,
x̂ = z W_D + b_D.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from icml26.errors import InputError
from torch import nn

from icml26_plugin_subspace_sae.codes import SparseCodes, sparse_decode, sparse_encode, top_k
from icml26_plugin_subspace_sae.jumprelu import jumprelu

Activation = Literal["topk", "batchtopk", "relu", "jumprelu"]
RowScaling = Literal["none", "token", "batch"]

# Rows whose pre-activations are held at once: (BLOCK, m) floats.
BLOCK = 512
# A decoder row shorter than this is a dead weight: its gate is 0 and its codes are not divided by it.
SHORTEST = 1e-12


@dataclass(frozen=True)
class Architecture:
    """What a dictionary is, apart from its weights; without it the weights do not say how to infer.

    ``d_in``, ``d_out`` widths of input and target; ``n_features`` m; ``activation`` with ``k`` (topk: at most k features a row;
    batchtopk: k a row on average); ``gate_by_decoder_norm`` selects by h ‖W_D row‖ instead of h; ``bandwidth`` width eps of the
    straight-through window of jumprelu; ``row_scaling``: rows are brought to norm sqrt(d) one by one (``token``) or batch by
    batch (``batch``) before encoding, and back after decoding.
    """

    d_in: int
    d_out: int
    n_features: int
    activation: Activation = "topk"
    k: int = 50
    gate_by_decoder_norm: bool = True
    bandwidth: float = 0.001
    row_scaling: RowScaling = "none"

    def __post_init__(self) -> None:
        if min(self.d_in, self.d_out, self.n_features) < 1:
            raise InputError(
                f"d_in={self.d_in}, d_out={self.d_out} and n_features={self.n_features} must all be at least 1."
            )
        if self.activation not in get_args(Activation):
            raise InputError(f"activation={self.activation!r} is unknown; there are {', '.join(get_args(Activation))}.")
        if self.row_scaling not in get_args(RowScaling):
            raise InputError(
                f"row_scaling={self.row_scaling!r} is unknown; there are {', '.join(get_args(RowScaling))}."
            )
        if self.activation in ("topk", "batchtopk") and not 1 <= self.k <= self.n_features:
            raise InputError(f"k={self.k} must be between 1 and the number of features, {self.n_features}.")
        if not self.bandwidth > 0:
            raise InputError(f"bandwidth={self.bandwidth} must be above 0.")

    def as_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return asdict(self)


class Pass(NamedTuple):
    """One pass of rows (B, d_in) through the autoencoder.

    ``reconstruction`` (B, d_out); ``codes`` without gradients; ``values`` (nnz,) of the same with gradients, or for relu and
    jumprelu the dense codes ``dense`` (B, m) and ``pre_activations`` h (B, m), whose gradients also count where codes are 0.
    """

    reconstruction: torch.Tensor
    codes: SparseCodes
    values: torch.Tensor | None = None
    dense: torch.Tensor | None = None
    pre_activations: torch.Tensor | None = None


class SparseAutoencoder(nn.Module):
    """A sparse autoencoder, or with targets of their own a transcoder.

    Parameters are ``encoder`` (m, d_in), whose transpose is :attr:`W_enc`, ``b_enc`` (m,), ``W_dec`` (m, d_out), ``b_dec``
    (d_out,) and, for jumprelu, ``log_threshold`` (m,). The buffer ``threshold`` () makes batchtopk independent of the batch at
    inference; it is NaN until it is calibrated. Weights begin at U(-1, 1) decoder rows, a tied encoder and zero biases;
    :mod:`.initialisation` does better.

    With ``sparse_gradients`` the encoder's and decoder's gradients are sparse tensors over features, for
    :class:`~icml26_plugin_subspace_sae.optimizers.SparseAdam`.
    """

    threshold: torch.Tensor

    def __init__(
        self,
        architecture: Architecture,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        initial_threshold: float = 0.001,
    ) -> None:
        super().__init__()
        if not initial_threshold > 0:
            raise InputError(f"initial_threshold={initial_threshold} must be above 0: its logarithm is trained.")
        a = self.architecture = architecture
        self.sparse_gradients = False
        # Drawn on the CPU so that a seed gives the same weights on every device.
        rows = torch.rand((a.n_features, a.d_out), generator=generator, dtype=torch.float32).mul_(2).sub_(1)
        if a.d_in == a.d_out:
            encoder = rows.clone()
        else:
            encoder = torch.rand((a.n_features, a.d_in), generator=generator).mul_(2).sub_(1)
        options: dict[str, Any] = {"dtype": dtype, "device": device}
        self.encoder = nn.Parameter(encoder.to(**options))
        self.b_enc = nn.Parameter(torch.zeros(a.n_features, **options))
        self.W_dec = nn.Parameter(rows.to(**options))
        self.b_dec = nn.Parameter(torch.zeros(a.d_out, **options))
        if a.activation == "jumprelu":
            self.log_threshold = nn.Parameter(torch.full((a.n_features,), initial_threshold, **options).log())
        self.register_buffer("threshold", torch.full((), float("nan"), **options))

    @property
    def W_enc(self) -> torch.Tensor:  # noqa: N802 - its name in every SAE library
        """Encoder (d_in, m): a view of :attr:`encoder`."""
        return self.encoder.T

    def decoder_norms(self) -> torch.Tensor:
        """‖W_D row‖ (m,) where the selection is gated by it, else ones."""
        if not self.architecture.gate_by_decoder_norm:
            return torch.ones_like(self.b_enc)
        return torch.linalg.vector_norm(self.W_dec, dim=1)

    # Normalised rows in, normalised rows out: what training works on.

    def forward_pass(self, x: torch.Tensor, k: int | None = None, *, amp: torch.dtype | None = None) -> Pass:
        """A training pass of rows (B, d_in); ``k`` overrides the architecture's; ``amp`` is the type of the dense product.

        batchtopk selects within this batch, whether or not a threshold is calibrated.
        """
        if self.architecture.activation in ("topk", "batchtopk"):
            return self._sparse_pass(x, self.select(x, k, amp=amp))
        return self._dense_pass(x, amp)

    def _sparse_pass(self, x: torch.Tensor, codes: SparseCodes) -> Pass:
        sparse = self.sparse_gradients and torch.is_grad_enabled()
        values = sparse_encode(x, self.encoder, self.b_enc, codes, sparse_gradient=sparse)
        decoded = sparse_decode(values, self.W_dec, codes, sparse_gradient=sparse) + self.b_dec
        return Pass(decoded, codes, values)

    def _dense_pass(self, x: torch.Tensor, amp: torch.dtype | None = None) -> Pass:
        h = _product(x, self.encoder, self.b_enc, amp)
        if self.architecture.activation == "relu":
            z = torch.relu(h)
            z = z * (self.decoder_norms() > SHORTEST) if self.architecture.gate_by_decoder_norm else z
        else:
            norms = self.decoder_norms()
            gate = jumprelu(h * norms, self.log_threshold.exp(), self.architecture.bandwidth)
            z = gate / norms.clamp_min(SHORTEST)
        decoded = z @ self.W_dec + self.b_dec
        return Pass(decoded, SparseCodes.of_dense(z.detach()), dense=z, pre_activations=h)

    @torch.no_grad()
    def select(
        self,
        x: torch.Tensor,
        k: int | None = None,
        *,
        threshold: torch.Tensor | None = None,
        amp: torch.dtype | None = None,
    ) -> SparseCodes:
        """The active features of rows (B, d_in) by topk or batchtopk, without gradients.

        With ``threshold`` () or (m,), all features whose gated pre-activation exceeds it instead.
        """
        a, k = self.architecture, self.architecture.k if k is None else k
        if not 1 <= k <= a.n_features:
            raise InputError(f"k={k} must be between 1 and the number of features, {a.n_features}.")
        norms = self.decoder_norms() if a.gate_by_decoder_norm else None
        # Folding the gate into the weights costs m·d, multiplying the products by it B·m.
        fold = norms is not None and len(x) > 2 * a.d_in
        weights = self.encoder * norms[:, None] if fold and norms is not None else self.encoder
        bias = self.b_enc * norms if fold and norms is not None else self.b_enc

        def gated(rows: torch.Tensor) -> torch.Tensor:
            products = _product(rows, weights, bias, amp)
            return products.mul_(norms) if norms is not None and not fold else products

        if threshold is not None:
            codes = _join([_above(gated(rows), threshold) for rows in x.split(BLOCK)], a.n_features, x)
        elif a.activation == "batchtopk":
            codes = _batch_top_k(gated(x), k)
        else:
            best = [top_k(gated(rows), k) for rows in x.split(BLOCK)]
            values = torch.cat([b[0] for b in best]) if best else x.new_zeros((0, k))
            features = torch.cat([b[1] for b in best]) if best else torch.zeros((0, k), dtype=torch.int64)
            codes = SparseCodes.of_rows(features, values, a.n_features)
        return codes if norms is None else codes.with_values(codes.values / norms[codes.features])

    # Raw rows in, raw rows out: what users call.

    def row_scale(self, x: torch.Tensor) -> torch.Tensor:
        """Factors (n, 1) that ``row_scaling`` brings raw rows to norm sqrt(d_in) by; ones for ``none``."""
        return row_scale(x, self.architecture.row_scaling)

    def _check_rows(self, x: torch.Tensor) -> None:
        """InputError for raw rows of another kind; a single vector would be broadcast, and NaN would just not fire."""
        wanted = f"rows must be a tensor (n, {self.architecture.d_in}) of {self.W_dec.dtype}"
        if not isinstance(x, torch.Tensor):
            raise InputError(f"{wanted}, not {type(x).__name__}.")
        if x.ndim != 2 or x.shape[1] != self.architecture.d_in or x.dtype != self.W_dec.dtype:
            raise InputError(f"{wanted}, not {tuple(x.shape)} of {x.dtype}.")
        if not bool(torch.isfinite(x).all()):
            raise InputError("rows hold values that are not finite: drop those rows.")

    def sparse_codes(self, x: torch.Tensor) -> SparseCodes:
        """Codes of raw rows (n, d_in), sparse; InputError for a batchtopk autoencoder whose threshold is not calibrated."""
        a = self.architecture
        self._check_rows(x)
        rows = x * self.row_scale(x)
        if a.activation == "batchtopk":
            if not bool(torch.isfinite(self.threshold)):
                raise InputError(
                    "This batchtopk autoencoder has no inference threshold yet: what it would select depends on the batch. "
                    "Call calibrate_threshold first (training does)."
                )
            return self.select(rows, threshold=self.threshold)
        if a.activation == "topk":
            return self.select(rows)
        blocks = [SparseCodes.of_dense(self._dense_codes(block)) for block in rows.split(BLOCK)]
        return _join(blocks, a.n_features, rows)

    @torch.no_grad()
    def _dense_codes(self, rows: torch.Tensor) -> torch.Tensor:
        h = _product(rows, self.encoder, self.b_enc, None)
        if self.architecture.activation == "relu":
            norms = self.decoder_norms()
            return torch.relu(h) * (norms > SHORTEST) if self.architecture.gate_by_decoder_norm else torch.relu(h)
        return torch.where(h * self.decoder_norms() > self.log_threshold.exp(), h, 0.0)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Codes (n, m) of raw rows (n, d_in); pass blocks of a few thousand rows."""
        return self.sparse_codes(x).dense()

    def decode(self, z: torch.Tensor, x: torch.Tensor | None = None) -> torch.Tensor:
        """Reconstructions (n, d_out) of codes (n, m); ``x``, the raw rows, are needed under ``row_scaling`` only."""
        if self.architecture.row_scaling == "none":
            return z @ self.W_dec + self.b_dec
        if x is None:
            raise InputError(
                f"row_scaling={self.architecture.row_scaling!r}: decode needs the rows x that the codes came from."
            )
        return (z @ self.W_dec + self.b_dec) / self.row_scale(x)

    @torch.no_grad()
    def reconstruct(self, x: torch.Tensor) -> torch.Tensor:
        """Reconstructions (n, d_out) of raw rows (n, d_in); dense codes are never made."""
        codes = self.sparse_codes(x)
        decoded = sparse_decode(codes.values, self.W_dec, codes) + self.b_dec
        return decoded if self.architecture.row_scaling == "none" else decoded / self.row_scale(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Reconstructions (n, d_out) of raw rows (n, d_in) with gradients; batchtopk selects within the batch."""
        scale = self.row_scale(x)
        return self.forward_pass(x * scale).reconstruction / scale

    @torch.no_grad()
    def fold(self, scale_in: float, scale_out: float) -> None:
        """Turn weights trained on rows times ``scale_in`` and targets times ``scale_out`` into weights for raw ones.

        b_E /= c_in, b_D /= c_out, W_D *= c_in / c_out, and thresholds of the gated pre-activation /= c_out (or c_in ungated).
        """
        gate_scale = scale_out if self.architecture.gate_by_decoder_norm else scale_in
        self.b_enc /= scale_in
        self.b_dec /= scale_out
        self.W_dec *= scale_in / scale_out
        self.threshold /= gate_scale
        if self.architecture.activation == "jumprelu":
            self.log_threshold -= torch.log(torch.tensor(gate_scale, dtype=torch.float64)).to(self.log_threshold)


def row_scale(x: torch.Tensor, scaling: RowScaling) -> torch.Tensor:
    """Factors (n, 1) that bring rows to norm sqrt(d), one by one or on the mean over the batch; zero rows are left alone."""
    if scaling == "none":
        return x.new_ones((len(x), 1))
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    if scaling == "batch":
        norms = norms.mean(0, keepdim=True).expand_as(norms)
    return torch.where(norms > 0, x.shape[1] ** 0.5 / norms, 1.0)


def _product(x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor, amp: torch.dtype | None) -> torch.Tensor:
    """x · weightsᵀ + bias, with the product in ``amp`` if given."""
    if amp is None or amp == x.dtype:
        return torch.addmm(bias, x, weights.T)
    return (x.to(amp) @ weights.T.to(amp)).to(x.dtype) + bias


def _above(gated: torch.Tensor, threshold: torch.Tensor) -> SparseCodes:
    return SparseCodes.of_dense(torch.where((gated > threshold) & (gated > 0), gated, 0.0))


def _batch_top_k(gated: torch.Tensor, k: int) -> SparseCodes:
    """The k·B largest positive entries of the whole batch."""
    n_rows, width = gated.shape
    flat = gated.reshape(-1)
    best = torch.topk(flat, min(k * n_rows, flat.numel()), sorted=False)
    keep = best.indices[best.values > 0].sort().values
    counts = torch.bincount(torch.div(keep, width, rounding_mode="floor"), minlength=n_rows)
    offsets = nn.functional.pad(counts.cumsum(0), (1, 0))
    return SparseCodes(keep % width, flat[keep], offsets, width)


def _join(blocks: list[SparseCodes], n_features: int, like: torch.Tensor) -> SparseCodes:
    """Codes of consecutive blocks of rows as one."""
    if not blocks:
        empty = torch.zeros(0, dtype=torch.int64, device=like.device)
        return SparseCodes(empty, like.new_zeros(0), torch.zeros(1, dtype=torch.int64, device=like.device), n_features)
    counts = torch.cat([b.offsets.diff() for b in blocks])
    return SparseCodes(
        torch.cat([b.features for b in blocks]),
        torch.cat([b.values for b in blocks]),
        nn.functional.pad(counts.cumsum(0), (1, 0)),
        n_features,
    )
