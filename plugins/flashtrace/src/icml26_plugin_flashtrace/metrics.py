"""Metrics that need no model: recovery of gold prompt tokens, and where the mass of an attribution lies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from icml26 import InputError

from icml26_plugin_flashtrace.task import Attribution, Output, Truth


def top_tokens(scores: np.ndarray, kept: np.ndarray, fraction: float = 0.1) -> np.ndarray:
    """Indices of the ceil(fraction * n) highest clamped scores among the n kept tokens; equal scores by index."""
    candidates = np.flatnonzero(kept)
    k = math.ceil(fraction * len(candidates) - 1e-9)
    clamped = np.maximum(scores[candidates], 0.0)
    return candidates[np.argsort(-clamped, kind="stable")[:k]]


def recovery_of(scores: np.ndarray, gold: np.ndarray, kept: np.ndarray, fraction: float = 0.1) -> float:
    """|top ∩ gold| / |gold|, in 0..1; NaN when no token is gold. All arrays (P,)."""
    if not gold.any():
        return math.nan
    return float(gold[top_tokens(scores, kept, fraction)].sum() / gold.sum())


def recovery_ceiling(gold: np.ndarray, kept: np.ndarray, fraction: float = 0.1) -> float:
    """The best recovery that any scores could have: gold may exceed the top tokens, or lie on stop tokens; NaN without gold."""
    if not gold.any():
        return math.nan
    k = math.ceil(fraction * int(kept.sum()) - 1e-9)
    return float(min(k, int((gold & kept).sum())) / gold.sum())


def gold_share_of(scores: np.ndarray, gold: np.ndarray) -> float:
    """The part of the (clamped) prompt mass that lies on gold, in 0..1; 0 without mass, NaN without gold."""
    if not gold.any():
        return math.nan
    mass = np.maximum(scores.astype(np.float64), 0.0)
    total = mass.sum()
    return float(mass[gold].sum() / total) if total > 0 else 0.0


def recovery(output: Output, truth: Truth, *, fraction: float = 0.1) -> dict[str, float]:
    """Recovery of gold among the top ``fraction`` of kept prompt tokens, a mean over the examples with gold.

    ``ceiling`` is what the best scores could reach; ``gold-share`` the part of the prompt mass on gold; ``without-first`` is
    the recovery when the first token, which small models use as a sink, may not be chosen. NaN when no example has gold.
    """
    if not 0 < fraction <= 1:
        raise InputError(f"recovery: fraction is {fraction}, it must lie in (0, 1]")
    rows = []
    for attribution, gold in _pairs(output, truth):
        if gold is None:
            continue
        p = len(gold)
        kept = attribution.kept[:p]
        inner = kept.copy()
        inner[:1] = False
        rows.append(
            (
                recovery_of(attribution.scores, gold, kept, fraction),
                recovery_ceiling(gold, kept, fraction),
                gold_share_of(attribution.scores, gold),
                recovery_of(attribution.scores, gold, inner, fraction),
            )
        )
    names = ("", "ceiling", "gold-share", "without-first")
    return {name: mean_of([row[k] for row in rows]) for k, name in enumerate(names)}


def mass(output: Output, truth: Truth) -> dict[str, float]:
    """Shares of the hop-0 mass on prompt, reasoning and answer (they sum to 1), and what later hops brought.

    ``later-hops`` is the part of the final prompt mass that hops after the first brought; ``prompt-growth`` the final
    prompt mass over that of hop 0 (1 or more for methods with hops).
    """
    rows = []
    for attribution, example in zip(output.attributions, truth.examples, strict=True):
        prompt = _total(attribution.hops[0])
        parts = {"reasoning": example.reasoning_span, "output": example.output_span}
        found = {
            name: 0.0 if span is None else _total(attribution.generation_scores[span[0] : span[1] + 1])
            for name, span in parts.items()
        }
        whole = prompt + _total(attribution.generation_scores)
        final = sum(_total(hop) for hop in attribution.hops)
        rows.append(
            (
                prompt / whole if whole > 0 else math.nan,
                found["reasoning"] / whole if whole > 0 else math.nan,
                found["output"] / whole if whole > 0 else math.nan,
                1.0 - prompt / final if final > 0 else math.nan,
                final / prompt if prompt > 0 else math.nan,
            )
        )
    names = ("prompt", "reasoning", "output", "later-hops", "prompt-growth")
    return {name: mean_of([row[k] for row in rows]) for k, name in enumerate(names)}


def residual_ratio(output: Output, truth: Truth) -> dict[str, float]:
    """rho_k, the share of hop k's mass on generated tokens, for the first four hops (a mean over examples)."""
    hops = min(4, max(len(a.residual_ratios) for a in output.attributions))
    return {
        f"hop-{k}": mean_of([float(a.residual_ratios[k]) for a in output.attributions if len(a.residual_ratios) > k])
        for k in range(hops)
    }


def cost(output: Output, truth: Truth) -> dict[str, float]:
    """Mean seconds of an example: wall time, whole and by part, and processor time of the attribution alone.

    ``peak-memory`` is the highest peak in bytes (0: not measured). What no attribution measured is left out.
    """
    parts = ("forward", "attribution", "attribution-cpu")
    seconds = {name: mean_of([a.seconds.get(name, math.nan) for a in output.attributions]) for name in parts}
    whole = mean_of([_wall_time(a.seconds) for a in output.attributions])
    peak = max((a.peak_memory_bytes for a in output.attributions), default=0)
    found = {"": whole, **seconds, "peak-memory": float(peak)}
    return {name: value for name, value in found.items() if not math.isnan(value)}


def mean_of(values: Sequence[float]) -> float:
    """The mean of the values that are not NaN; NaN when there is none."""
    real = [value for value in values if not math.isnan(value)]
    return float(np.mean(real)) if real else math.nan


def _wall_time(seconds: dict[str, float]) -> float:
    parts = [value for name, value in seconds.items() if not name.endswith("-cpu")]
    return sum(parts) if parts else math.nan


def _total(scores: np.ndarray) -> float:
    return float(np.maximum(scores.astype(np.float64), 0.0).sum())


def _pairs(output: Output, truth: Truth) -> list[tuple[Attribution, np.ndarray | None]]:
    return list(zip(output.attributions, truth.gold, strict=True))
