"""Initialisation (section 2): Active Subspace Initialization, the norm search, the tied encoder and the biases.

Every part is a function on tensors and an independent switch. Order matters: subspace, decoder bias, norm search, tied encoder,
encoder bias. :func:`initialise` runs them on our autoencoder; :func:`initialise_weights` on the parameters of any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from icml26.errors import InputError

from icml26_plugin_subspace_sae.autoencoder import BLOCK, Activation, SparseAutoencoder
from icml26_plugin_subspace_sae.codes import SparseCodes, bag_sum, top_k
from icml26_plugin_subspace_sae.subspace import ActiveSubspace, Dimensions, active_subspace

Bias = Literal["mean", "geometric-median", "zero"]
Subspace = Literal["init", "hard", "none"]

# The paper's search: 50 points of [0.1, 5], then 20 within [best - 0.09, best + 0.10].
COARSE = np.linspace(0.1, 5.0, 50)
FINE = np.linspace(-0.09, 0.10, 20)
SEARCH_ROWS = 2048


@dataclass(frozen=True)
class Initialisation:
    """What is done before training; every field is a switch of its own, and a baseline differs in ``subspace`` alone.

    ``subspace``: ``init`` draws features inside the active subspace, ``hard`` also keeps them there, ``none`` leaves them random;
    ``q`` how many directions; ``bias`` of the decoder; ``norm_search`` for the common norm of decoder rows; ``tied`` sets W_E =
    W_Dᵀ at the start; ``centre`` sets b_E so that mean pre-activations are 0; ``rows`` of the batch it is computed on, None for
    ten a dimension or one training batch, whichever is more.
    """

    subspace: Subspace = "init"
    q: Dimensions = "auto"
    bias: Bias = "mean"
    norm_search: bool = True
    tied: bool = True
    centre: bool = True
    rows: int | None = None


@dataclass(frozen=True)
class InitialisationReport:
    """What initialisation chose: ``active`` directions or None, ``norm`` of decoder rows or None, with the loss at all tried."""

    active: ActiveSubspace | None = None
    norm: float | None = None
    norms: np.ndarray = field(default_factory=lambda: np.zeros(0))
    losses: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def as_json(self) -> dict[str, Any]:
        """Plain values for people."""
        return {"q": None if self.active is None else self.active.q, "norm": self.norm}


class SaeWeights(Protocol):
    """Any sparse autoencoder with the usual parameters: W_enc (d_in, m), b_enc (m,), W_dec (m, d_out), b_dec (d_out,)."""

    W_enc: Any
    b_enc: Any
    W_dec: Any
    b_dec: Any


@torch.no_grad()
def restrict_(W_dec: torch.Tensor, basis: torch.Tensor) -> None:
    """(b) W_D <- W_D[:, :q] U_qᵀ in place: ``W_dec`` (m, d) random, ``basis`` (d, q) orthonormal.

    Every row becomes a random direction inside the subspace; with q = d it is only rotated.
    """
    q = basis.shape[1]
    W_dec.copy_(W_dec[:, :q] @ basis.to(W_dec).T)


def decoder_bias(targets: torch.Tensor, kind: Bias) -> torch.Tensor:
    """(c) The decoder's bias (d,) for targets (n, d): their mean, their true geometric median, or zero."""
    if kind == "zero":
        return targets.new_zeros(targets.shape[1])
    mean = targets.double().mean(0)
    return (mean if kind == "mean" else _geometric_median(targets.double(), mean)).to(targets)


def _geometric_median(rows: torch.Tensor, start: torch.Tensor, steps: int = 100) -> torch.Tensor:
    """Weiszfeld's iteration from ``start``; distances are floored so that a row under the iterate does not stop it."""
    point = start
    scale = (rows - start).norm(dim=1).mean()
    for _ in range(steps):
        weights = 1 / (rows - point).norm(dim=1).clamp_min(float(scale) * 1e-9 + 1e-300)
        moved = (weights[:, None] * rows).sum(0) / weights.sum()
        if float((moved - point).norm()) <= 1e-7 * float(scale):
            return moved
        point = moved
    return point


@torch.no_grad()
def search_norm(
    inputs: torch.Tensor,
    targets: torch.Tensor,
    W_dec: torch.Tensor,
    b_dec: torch.Tensor,
    *,
    activation: Activation = "topk",
    k: int = 50,
    encoder: torch.Tensor | None = None,
    threshold: float = 0.0,
) -> tuple[float, np.ndarray, np.ndarray]:
    """(d) The common norm of decoder rows with the least reconstruction loss for W_E = W_Dᵀ, b_E = -mean(x W_E).

    ``inputs`` (n, d_in) and ``targets`` (n, d_out), at most 2,048 rows of which are used; ``encoder`` (m, d_in) are the tied
    rows when inputs and targets have other coordinates. Returns the norm, all norms tried, and the mean squared error summed
    over dimensions at each.

    With unit rows û, pre-activations at norm s are s times those at norm 1, so top-k and ReLU select the same features with codes
    s·z₁ and x̂ = s² R + b_D: the loss is a quadratic in s², computed from one pass. A jumprelu threshold breaks that; there each
    norm gets a pass.
    """
    x, y = inputs[:SEARCH_ROWS], targets[:SEARCH_ROWS]
    rows = W_dec if encoder is None else encoder
    lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min(1e-12)
    unit_in, unit_out = rows / lengths, W_dec / lengths
    bias = -(x.mean(0) @ unit_in.T)
    residual = (y - b_dec).double()

    if activation == "jumprelu":

        def loss(s: float) -> float:
            return _thresholded_loss(x, residual, unit_in, unit_out, bias, s, threshold)
    else:
        projected = _unit_reconstruction(x, unit_in, unit_out, bias, activation, k).double()
        a = float(projected.square().sum(1).mean())
        b = float((projected * residual).sum(1).mean())
        c = float(residual.square().sum(1).mean())

        def loss(s: float) -> float:
            return s**4 * a - 2 * s**2 * b + c

    losses = [loss(float(s)) for s in COARSE]
    best = float(COARSE[int(np.argmin(losses))])
    fine = [float(s) for s in best + FINE if s > 0]
    losses += [loss(s) for s in fine]
    norms = np.concatenate([COARSE, fine])
    return float(norms[int(np.argmin(losses))]), norms, np.array(losses)


def _unit_reconstruction(
    x: torch.Tensor, unit_in: torch.Tensor, unit_out: torch.Tensor, bias: torch.Tensor, activation: Activation, k: int
) -> torch.Tensor:
    """R (n, d_out): the reconstruction without b_D at row norm 1."""
    m = len(unit_in)
    if activation == "relu":
        return torch.cat([torch.relu(torch.addmm(bias, block, unit_in.T)) @ unit_out for block in x.split(BLOCK)])
    if activation == "batchtopk":
        h = torch.addmm(bias, x, unit_in.T)
        flat = torch.topk(h.reshape(-1), min(k * len(x), h.numel()), sorted=False)
        kept = torch.zeros_like(h).reshape(-1).index_put_((flat.indices,), flat.values.clamp_min(0)).view_as(h)
        return kept @ unit_out
    parts = []
    for block in x.split(BLOCK):
        values, features = top_k(torch.addmm(bias, block, unit_in.T), k)
        codes = SparseCodes.of_rows(features, values, m)
        parts.append(bag_sum(unit_out, codes.features, codes.offsets, codes.values))
    return torch.cat(parts)


def _thresholded_loss(
    x: torch.Tensor,
    residual: torch.Tensor,
    unit_in: torch.Tensor,
    unit_out: torch.Tensor,
    bias: torch.Tensor,
    s: float,
    threshold: float,
) -> float:
    total = 0.0
    for block, target in zip(x.split(BLOCK), residual.split(BLOCK), strict=True):
        h = s * torch.addmm(bias, block, unit_in.T)
        z = torch.where(s * h > threshold, h, 0.0)
        total += float((s * (z @ unit_out) - target).square().sum())
    return total / len(x)


@torch.no_grad()
def set_norm_(W_dec: torch.Tensor, norm: float) -> None:
    """Scale every row of ``W_dec`` (m, d) to ``norm`` in place."""
    W_dec.mul_(norm / torch.linalg.vector_norm(W_dec, dim=1, keepdim=True).clamp_min(1e-12))


@torch.no_grad()
def centre_(b_enc: torch.Tensor, W_enc: torch.Tensor, inputs: torch.Tensor) -> None:
    """(e) b_E = -mean(x W_E) in place, so that the mean pre-activation of ``inputs`` (n, d_in) is 0."""
    b_enc.copy_(-(inputs.double().mean(0) @ W_enc.double()))


def initialise(
    sae: SparseAutoencoder,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    settings: Initialisation,
    *,
    k: int | None = None,
    active: ActiveSubspace | None = None,
    hard_basis: torch.Tensor | None = None,
) -> InitialisationReport:
    """Initialise ``sae`` on a batch of normalised ``inputs`` (n, d_in) and ``targets`` (n, d_out).

    ``active`` is the subspace of the targets when it is known already. With ``hard_basis`` (d_in, q) the decoder works in the
    coordinates of that basis (d_out = q), and tied encoder rows are its rows mapped back.
    """
    if settings.subspace == "init" and active is None:
        active = active_subspace(targets.float().cpu().numpy(), settings.q)
    if settings.subspace == "init" and active is not None:
        restrict_(sae.W_dec, torch.from_numpy(active.basis))
    with torch.no_grad():
        sae.b_dec.copy_(decoder_bias(targets, settings.bias))
    tied_rows = sae.W_dec if hard_basis is None else sae.W_dec.detach() @ hard_basis.to(sae.W_dec).T
    if (settings.tied or settings.norm_search) and tied_rows.shape[1] != inputs.shape[1]:
        raise InputError(
            f"Targets have {tied_rows.shape[1]} dimensions and inputs {inputs.shape[1]}: an encoder cannot start as the "
            "decoder's transpose. Set tied and norm_search to false."
        )
    norm, norms, losses = None, np.zeros(0), np.zeros(0)
    if settings.norm_search:
        a = sae.architecture
        start = float(sae.log_threshold.detach()[0].exp()) if a.activation == "jumprelu" else 0.0
        norm, norms, losses = search_norm(
            inputs,
            targets,
            sae.W_dec.detach(),
            sae.b_dec.detach(),
            activation=a.activation,
            k=a.k if k is None else k,
            encoder=None if hard_basis is None else tied_rows,
            threshold=start if a.gate_by_decoder_norm else 0.0,
        )
        set_norm_(sae.W_dec, norm)
    _tie_and_centre(sae, inputs, settings, hard_basis)
    return InitialisationReport(active, norm, norms, losses)


@torch.no_grad()
def _tie_and_centre(
    sae: SparseAutoencoder, inputs: torch.Tensor, settings: Initialisation, hard_basis: torch.Tensor | None
) -> None:
    if settings.tied:
        sae.encoder.copy_(sae.W_dec if hard_basis is None else sae.W_dec @ hard_basis.to(sae.W_dec).T)
    if settings.centre:
        centre_(sae.b_enc, sae.W_enc, inputs)
    else:
        sae.b_enc.zero_()


@torch.no_grad()
def initialise_weights(
    sae: SaeWeights,
    activations: np.ndarray | torch.Tensor,
    *,
    q: Dimensions = "auto",
    k: int = 50,
    bias: Bias = "mean",
    norm_search: bool = True,
    tied: bool = True,
    centre: bool = True,
) -> InitialisationReport:
    """Active Subspace Initialization of anybody's autoencoder, in place, on ``activations`` (n, d) as its encoder gets them.

    ``sae`` needs ``W_enc`` (d, m), ``b_enc`` (m,), ``W_dec`` (m, d), ``b_dec`` (d,), e.g. a SAELens ``TrainingSAE``; an encoder
    that subtracts b_D from its input is told apart by nothing here: pass activations minus their mean and ``bias="zero"`` then.
    The decoder's present values are the random draw. ``k`` is the number of active features for the norm search. Call it before
    the optimiser is made. Raises InputError, before anything is changed, for other shapes, for k and bias that do not exist, for
    decoder rows that are zero or not finite, and for activations that :func:`.active_subspace` refuses.
    """
    rows = _checked(sae, activations, k, bias)
    active = active_subspace(rows.numpy(), q)
    restrict_(sae.W_dec, torch.from_numpy(active.basis))
    sae.b_dec.copy_(decoder_bias(rows, bias))
    norm, norms, losses = None, np.zeros(0), np.zeros(0)
    if norm_search:
        W_dec, b_dec = sae.W_dec.detach().float().cpu(), sae.b_dec.detach().float().cpu()
        norm, norms, losses = search_norm(rows, rows, W_dec, b_dec, k=k)
        set_norm_(sae.W_dec, norm)
    if tied:
        sae.W_enc.copy_(sae.W_dec.T)
    if centre:
        centre_(sae.b_enc, sae.W_enc.cpu(), rows)
    return InitialisationReport(active, norm, norms, losses)


def _checked(sae: SaeWeights, activations: np.ndarray | torch.Tensor, k: int, bias: str) -> torch.Tensor:
    """``activations`` as float32 (n, d) on the CPU; InputError for what :func:`initialise_weights` cannot work on."""
    weights: dict[str, Any] = {name: getattr(sae, name, None) for name in ("W_dec", "W_enc", "b_enc", "b_dec")}
    for name, value in weights.items():
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            found = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
            raise InputError(
                f"{type(sae).__name__}.{name} must be a tensor of real floating type, not {found}: W_enc (d, m), b_enc (m,), "
                "W_dec (m, d) and b_dec (d,) are needed; give an object that holds views of your weights under these names."
            )
    W_dec, W_enc, b_enc, b_dec = weights.values()
    m, d = W_dec.shape if W_dec.ndim == 2 else (-1, -1)
    if m < 1 or W_enc.shape != (d, m) or b_enc.shape != (m,) or b_dec.shape != (d,):
        raise InputError(
            f"W_dec {tuple(W_dec.shape)}, W_enc {tuple(W_enc.shape)}, b_enc {tuple(b_enc.shape)} and b_dec "
            f"{tuple(b_dec.shape)} are not (m, d), (d, m), (m,) and (d,)."
        )
    lengths = torch.linalg.vector_norm(W_dec.detach().float(), dim=1)
    if not bool((torch.isfinite(lengths) & (lengths > 0)).all()):
        raise InputError(
            "Rows of W_dec are zero or not finite: they are the random draw, fill them before, e.g. with uniform_(-1, 1)."
        )
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= m:
        raise InputError(f"k={k!r} must be a whole number between 1 and the number of features, {m}.")
    if bias not in get_args(Bias):
        raise InputError(f"bias={bias!r} is unknown; there are {', '.join(get_args(Bias))}.")
    if isinstance(activations, torch.Tensor):
        if activations.is_complex() or activations.layout != torch.strided:
            raise InputError(
                f"activations are {activations.dtype}, {activations.layout}: dense real numbers are needed."
            )
        rows = activations.detach().float().cpu()
    else:
        array = np.asarray(activations)
        if array.dtype.kind not in "fiu":
            raise InputError(f"activations hold {array.dtype}, not real numbers.")
        with np.errstate(over="ignore"):  # becomes infinity, which is refused by row
            rows = torch.from_numpy(np.array(array, dtype=np.float32, order="C"))
    if rows.ndim != 2 or rows.shape[1] != d:
        raise InputError(f"activations must have shape (rows, {d}), not {tuple(rows.shape)}.")
    return rows
