"""Recursive attribution: what the answer owes to its reasoning is passed on to what the reasoning owes to the prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

#: Scores (N,) of the span lo..hi, inclusive positions in the whole sequence, with weights (hi - lo + 1,).
SpanScores = Callable[[int, int, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Recursion:
    """The scores of each hop.

    ``hops`` (K + 1, P): what each hop adds to the prompt's scores; ``first`` (N,): hop 0 on every token;
    ``ratios`` (K + 1,): rho_k, the share of hop k's mass that lies in the recursion span (0 for hops that were not needed).
    """

    hops: np.ndarray
    first: np.ndarray
    ratios: np.ndarray

    @property
    def scores(self) -> np.ndarray:
        """(P,) the sum over hops, section 5 of the brief."""
        return np.asarray(self.hops.sum(axis=0), dtype=np.float32)


def trace_back(
    span_scores: SpanScores,
    output: tuple[int, int],
    through: tuple[int, int],
    n_prompt: int,
    hops: int,
    kept: np.ndarray,
    weights: np.ndarray | None = None,
) -> Recursion:
    """Follow the answer back through the generated tokens ``through`` for ``hops`` steps.

    ``output`` and ``through`` are inclusive positions in the whole sequence; ``kept`` (N,) bool is False for stop tokens,
    which are no targets and lose their scores after every hop:

        s_0 = span(output, weights),  rho_k = sum_through s_k / sum s_k,  s_{k+1} = span(through, s_k on through)
        w = s_0 + sum_k (rho_0 ... rho_{k-1}) s_k,  on the prompt

    Ends early, with zeros for the hops that are left, when nothing reaches the generated tokens any more.
    """
    (o_lo, o_hi), (g_lo, g_hi) = output, through
    keep = kept.astype(np.float32)
    start = keep[o_lo : o_hi + 1] if weights is None else weights.astype(np.float32) * keep[o_lo : o_hi + 1]
    score = np.asarray(span_scores(o_lo, o_hi, start), dtype=np.float32) * keep
    first = score
    added = np.zeros((hops + 1, n_prompt), dtype=np.float32)
    ratios = np.zeros(hops + 1, dtype=np.float32)
    added[0] = score[:n_prompt]
    ratios[0], passed = _passed_on(score, g_lo, g_hi)
    carried = float(ratios[0])
    for k in range(1, hops + 1):
        if carried <= 0 or passed.sum() <= 0:
            break
        score = np.asarray(span_scores(g_lo, g_hi, passed), dtype=np.float32) * keep
        added[k] = carried * score[:n_prompt]
        ratios[k], passed = _passed_on(score, g_lo, g_hi)
        carried *= float(ratios[k])
    return Recursion(added, first, ratios)


def _passed_on(score: np.ndarray, lo: int, hi: int) -> tuple[float, np.ndarray]:
    """rho and the next weights."""
    weights = score[lo : hi + 1]
    total = float(score.sum(dtype=np.float64))
    return (float(weights.sum(dtype=np.float64)) / total if total > 0 else 0.0), weights


def recursion_span(
    rule: str, output: tuple[int, int], reasoning: tuple[int, int] | None, n_prompt: int, n_tokens: int
) -> tuple[int, int]:
    """The tokens that attribution passes through, as inclusive positions in the whole sequence.

    ``rule``: ``"generation"`` (the released code: from the first to the last token of reasoning and answer, or everything
    generated when there is no reasoning span) or ``"reasoning"`` (the paper's text: the reasoning alone). ``output`` and
    ``reasoning`` are indices of generated tokens.
    """
    if reasoning is None:
        return n_prompt, n_tokens - 1
    if rule == "reasoning":
        return n_prompt + reasoning[0], n_prompt + reasoning[1]
    return n_prompt + min(reasoning[0], output[0]), n_prompt + max(reasoning[1], output[1])
