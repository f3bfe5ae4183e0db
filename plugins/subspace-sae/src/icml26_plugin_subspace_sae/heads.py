"""Where the collapse comes from: attention heads before W_O, W_O itself, and their sum after it (section 7).

All follows from one streamed covariance, that of the concatenated head outputs C (H·d_h, H·d_h): the output projection is linear,
so the attention output has covariance W_O C W_Oᵀ and head h alone W_h C_hh W_hᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from icml26.errors import InputError

from icml26_plugin_subspace_sae.rank import Spectrum, effective_rank, spectrum_of_scatter, variance_directions


@dataclass(frozen=True)
class HeadAttribution:
    """Effective ranks along the way, and how much the heads' output subspaces overlap.

    ``before`` of the concatenated heads, of ``width_before`` = H·d_h; ``projection`` of W_O; ``after`` of the attention output,
    of ``width_after`` = d; ``per_head`` (H,) of each head's part of the output. ``overlap`` = 1 - after / sum of per_head, 0 when
    heads write into orthogonal subspaces with spectra that add up; ``mean_squared_cosine`` of the principal angles between pairs
    of heads' 99 % subspaces, 0 to 1, beside ``chance_squared_cosine``, what random subspaces of those sizes have on average.
    """

    before: float
    projection: float
    after: float
    per_head: np.ndarray
    width_before: int
    width_after: int
    overlap: float
    mean_squared_cosine: float
    chance_squared_cosine: float

    def as_json(self) -> dict[str, Any]:
        """JSON values, shares of the widths included."""
        return {
            "before_w_o": self.before,
            "before_w_o_share": self.before / self.width_before,
            "w_o": self.projection,
            "w_o_share": self.projection / min(self.width_before, self.width_after),
            "after_w_o": self.after,
            "after_w_o_share": self.after / self.width_after,
            "per_head": self.per_head.tolist(),
            "overlap": self.overlap,
            "mean_squared_cosine": self.mean_squared_cosine,
            "chance_squared_cosine": self.chance_squared_cosine,
        }


def head_attribution(scatter: np.ndarray, w_o: np.ndarray, n_heads: int, *, count: int = 0) -> HeadAttribution:
    """Attribute the rank of an attention output.

    ``scatter`` (H·d_h, H·d_h): scatter or covariance of the inputs of the output projection, heads one after another; ``w_o``
    (d, H·d_h) its weight, output = W_O input (+ bias, which moves no covariance). Raises InputError when the sizes do not fit.
    """
    w_o = np.asarray(w_o, dtype=np.float64)
    inner = scatter.shape[0]
    if w_o.ndim != 2 or scatter.shape != (inner, inner) or w_o.shape[1] != inner:
        raise InputError(
            f"W_O {w_o.shape} does not fit head outputs of covariance {scatter.shape}: (d, n) and (n, n) are needed."
        )
    if n_heads < 1 or inner % n_heads:
        raise InputError(f"{inner} head dimensions cannot be shared by n_heads={n_heads} heads.")
    size = inner // n_heads
    heads = []
    for head in range(n_heads):
        part = slice(head * size, (head + 1) * size)
        heads.append(_after(scatter[part, part], w_o[:, part], count, f"outputs of head {head}"))
    ranks = np.array([effective_rank(head.singular_values) for head in heads])
    whole = effective_rank(_after(scatter, w_o, count, "attention outputs").singular_values)
    before = spectrum_of_scatter(scatter, count=count, name="head outputs")
    cosine, chance = _subspace_overlap(heads)
    return HeadAttribution(
        before=effective_rank(before.singular_values),
        projection=effective_rank(np.linalg.svd(w_o, compute_uv=False)),
        after=whole,
        per_head=ranks,
        width_before=inner,
        width_after=len(w_o),
        overlap=1.0 - whole / float(ranks.sum()),
        mean_squared_cosine=cosine,
        chance_squared_cosine=chance,
    )


def _after(scatter: np.ndarray, w_o: np.ndarray, count: int, name: str) -> Spectrum:
    """Spectrum of W C Wᵀ (d, d); for a narrow W (d, n) its n directions that may be non-zero, without a d x d decomposition."""
    if w_o.shape[1] >= w_o.shape[0]:
        return spectrum_of_scatter(w_o @ scatter @ w_o.T, count=count, name=name)
    outer, inner = np.linalg.qr(w_o)
    narrow = spectrum_of_scatter(inner @ scatter @ inner.T, count=count, name=name)
    return Spectrum(narrow.singular_values, outer @ narrow.directions, np.zeros(len(w_o)), count)


def squared_cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Squared cosines of the principal angles of two subspaces given by orthonormal columns (d, a) and (d, b)."""
    cosines: np.ndarray = np.linalg.svd(first.T @ second, compute_uv=False).clip(0.0, 1.0) ** 2
    return cosines


def _subspace_overlap(heads: list[Spectrum]) -> tuple[float, float]:
    """Mean squared cosine over pairs of heads, and its expectation max(a, b) / d for random subspaces of the same sizes."""
    bases = [head.top(variance_directions(head.singular_values)) for head in heads]
    found, chance = [], []
    for i, first in enumerate(bases):
        for second in bases[:i]:
            found.append(float(squared_cosines(first, second).mean()))
            # E ||P Q||_F^2 = ab/d, shared by min(a, b) angles.
            chance.append(max(first.shape[1], second.shape[1]) / len(first))
    if not found:
        return 0.0, 0.0
    return float(np.mean(found)), float(np.mean(chance))
