"""Divergence Decoding as pure functions on logits: linear (eq. 1), rank (eqs. 2 and 3), pinning of control tokens.

All logits end in the vocabulary axis V. ``target`` is l_P of the big model, ``forget`` l_p of the auxiliary that saw
what is to be forgotten, ``retain`` l_q of the one that did not. Arithmetic is float32 whatever the models' dtypes are.
"""

from __future__ import annotations

import math
import numbers
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch
from icml26.errors import InputError

RankMode = Literal["hard", "overwrite", "clamp"]
_LARGEST = 1e6  # far beyond use; float32 logits times much more would overflow


@dataclass(frozen=True)
class Fusion:
    """How the three distributions are combined; symbols of the paper in brackets.

    ``alpha``: strength of the linear form, 0 switches it off. ``rank_k`` (k): how many of the most divergent tokens
    the rank form suppresses, 0 switches it off; both together apply the linear form first. ``rank_soft``: what scoring
    does to them, where minus infinity would break losses: "overwrite" sets them to the k-th largest logit, as the
    paper's code does, which *raises* a token that was below it; "clamp" never raises. Generation always masks.
    ``strict_k``: suppress only tokens of positive divergence. ``pinned``: ids that keep the target's probability
    exactly; the others share the rest. ``temperature`` of the others, when ``pinned`` is used.
    """

    alpha: float = 1.5
    rank_k: int = 0
    rank_soft: Literal["overwrite", "clamp"] = "overwrite"
    strict_k: bool = True
    pinned: tuple[int, ...] = ()
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not (_is_number(self.alpha) and 0 <= self.alpha <= _LARGEST):
            raise InputError(
                f"alpha={self.alpha!r} must be a number from 0 to {_LARGEST:g}; 0 leaves the target as it is."
            )
        if not (_is_whole(self.rank_k) and self.rank_k >= 0):
            raise InputError(f"rank_k={self.rank_k!r} must be a whole number from 0 up; 0 leaves the target as it is.")
        if not isinstance(self.pinned, (tuple, list)) or not all(map(_is_whole, self.pinned)):
            raise InputError(f"pinned={self.pinned!r} must be a tuple of token ids.")
        object.__setattr__(self, "pinned", tuple(map(int, self.pinned)))
        if not (_is_number(self.temperature) and self.temperature > 0):
            raise InputError(f"temperature={self.temperature!r} must be a finite number above 0.")
        if self.temperature != 1 and not self.pinned:
            raise InputError(
                f"temperature={self.temperature} is that of tokens that are not pinned, and none are: use generate's own."
            )
        if self.rank_soft not in ("overwrite", "clamp"):
            raise InputError(f"rank_soft={self.rank_soft!r} must be 'overwrite' or 'clamp'.")
        if self.rank_k == 1:
            effect = (
                "sets the most divergent token equal to the most likely one"
                if self.rank_soft == "overwrite"
                else "changes nothing"
            )
            warnings.warn(
                f"rank_k=1 with rank_soft={self.rank_soft!r} {effect} where sequences are scored; use rank_k of 2 or more.",
                stacklevel=3,
            )

    @property
    def idle(self) -> bool:
        """Whether the target's logits stay as they are, so that auxiliaries need not run."""
        return self.alpha == 0 and self.rank_k == 0 and self.temperature == 1

    def check_vocabulary(self, size: int) -> None:
        """InputError when k or a pinned id does not fit a vocabulary of ``size`` tokens."""
        if self.rank_k >= size:
            raise InputError(f"rank_k={self.rank_k} would suppress the whole vocabulary of {size} tokens; choose less.")
        wrong = [i for i in self.pinned if not 0 <= i < size]
        if wrong:
            raise InputError(f"pinned={wrong} are no ids of a vocabulary of {size} tokens.")
        if len(set(self.pinned)) >= size:
            raise InputError("pinned covers the whole vocabulary, nothing is left to steer.")


def fuse(
    target: torch.Tensor,
    forget: torch.Tensor,
    retain: torch.Tensor,
    fusion: Fusion,
    *,
    mode: RankMode = "hard",
    candidates: torch.Tensor | None = None,
    centre: bool = True,
) -> torch.Tensor:
    """Adjusted logits (..., V) float32 of logits (..., V); ``target`` itself when there is nothing to adjust.

    The auxiliaries may cover only the first n <= V tokens: the rest is padding of the target's embedding and keeps its
    logit. ``mode`` says what the rank form does to the tokens it suppresses; ``candidates`` (n,) bool limits which
    these may be. Where other processors forbid all but tokens that the hard form would suppress, it suppresses none there.
    ``centre``: the auxiliaries give logits, in which a constant of a position means nothing; false for
    scores of n-gram models.
    """
    if fusion.idle:
        return target
    forget, retain = _common(target, forget, retain)
    fused = linear(target, forget, retain, fusion.alpha)
    if fusion.rank_k:
        chosen = divergent(forget, retain, fusion.rank_k, candidates=candidates, strict=fusion.strict_k, centre=centre)
        suppress(fused, chosen, fusion.rank_k, mode)
        emptied = fused.amax(-1) == -math.inf
        if bool(emptied.any()):
            fused[emptied] = linear(target[emptied], forget[emptied], retain[emptied], fusion.alpha)
    if fusion.pinned:
        return pin(fused, target, fusion.pinned, fusion.temperature)
    return fused


def _common(target: torch.Tensor, *auxiliaries: torch.Tensor) -> list[torch.Tensor]:
    size = min(logits.shape[-1] for logits in (target, *auxiliaries))
    if all(logits.shape[-1] == target.shape[-1] for logits in auxiliaries):
        return list(auxiliaries)
    # A constant of an auxiliary's position must not tell the common tokens from the padded ones: normalise both.
    return [torch.log_softmax(logits[..., :size].float(), dim=-1) for logits in auxiliaries]


def linear(target: torch.Tensor, forget: torch.Tensor, retain: torch.Tensor, alpha: float) -> torch.Tensor:
    """l_P + alpha (l_q - l_p), a new float32 tensor (eq. 1). One copy of (..., V) is made when all vocabularies are
    one size.
    """
    if alpha == 0:
        return target.to(torch.float32, copy=True)
    steering = retain.to(torch.float32, copy=True).sub_(forget).mul_(alpha)
    if steering.shape[-1] == target.shape[-1]:
        return steering.add_(target)
    fused = target.to(torch.float32, copy=True)
    fused[..., : steering.shape[-1]] += steering
    return fused


def divergent(
    forget: torch.Tensor,
    retain: torch.Tensor,
    k: int,
    *,
    candidates: torch.Tensor | None = None,
    strict: bool = True,
    centre: bool = True,
) -> torch.Tensor:
    """The set K (..., n) bool of the ``k`` tokens with the largest d = l_p - l_q; equal ones by lower id.

    Outside of ``candidates`` (n,) bool d counts as 0. With ``centre`` d is the difference of log-probabilities, so
    that a constant added to the logits of a position changes nothing. With ``strict`` K holds tokens of positive d
    only, and may be smaller than ``k``.
    """
    d = forget.to(torch.float32, copy=True).sub_(retain)
    if centre:
        d.sub_(forget.float().logsumexp(-1, keepdim=True) - retain.float().logsumexp(-1, keepdim=True))
    if candidates is not None:
        d.masked_fill_(~candidates, 0.0)
    values, ids = d.topk(k, dim=-1)
    least = values[..., -1:]
    chosen = torch.zeros_like(d, dtype=torch.bool)
    at_least = d >= least
    if bool((at_least.sum(-1) == k).all()):
        chosen.scatter_(-1, ids, True)
    else:
        above, equal = d > least, d == least
        room = k - above.sum(-1, keepdim=True)
        chosen = above | (equal & (equal.cumsum(-1) <= room))
    if strict:
        chosen &= d > 0
    return chosen


def suppress(fused: torch.Tensor, chosen: torch.Tensor, k: int, mode: RankMode) -> torch.Tensor:
    """Suppress the tokens ``chosen`` (..., n) of logits (..., V) in place: eq. (2) when hard, eq. (3) when soft."""
    part = fused[..., : chosen.shape[-1]]
    if mode == "hard":
        part.masked_fill_(chosen, -math.inf)
        return fused
    kth = fused.topk(k, dim=-1).values[..., -1:]
    replacement = kth.expand_as(part) if mode == "overwrite" else torch.minimum(part, kth)
    part.copy_(torch.where(chosen, replacement, part))
    return fused


def pin(fused: torch.Tensor, target: torch.Tensor, pinned: tuple[int, ...], temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities (..., V) in which ``pinned`` ids keep the target's, and the others share the rest as ``fused``
    has them.
    """
    kept = torch.zeros(fused.shape[-1], dtype=torch.bool, device=fused.device)
    kept[list(pinned)] = True
    original = torch.log_softmax(target.float(), dim=-1)
    rest = original.masked_fill(kept, -math.inf).logsumexp(-1, keepdim=True)
    content = torch.log_softmax((fused / temperature).masked_fill(kept, -math.inf), dim=-1) + rest
    content.masked_fill_(fused == -math.inf, -math.inf)  # NaN where nothing but pinned tokens is left
    return torch.where(kept, original, content)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
