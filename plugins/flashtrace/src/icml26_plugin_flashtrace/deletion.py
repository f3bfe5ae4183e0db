"""Deletion curves: how fast does the answer become improbable when the tokens that an attribution ranks highest are taken away?

RISE is the area under the normalised curve, MAS also charges the attribution for claiming more (or less) than it takes
away. Lower is better for both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from icml26 import InputError, RunContext

from icml26_plugin_flashtrace.metrics import mean_of
from icml26_plugin_flashtrace.task import Example, Output, Truth


@dataclass(frozen=True)
class DeletionAreas:
    """Areas in 0..1 (``rise_ap`` in 0..2), and whether the answer depended on the prompt at all (``flat``: it did not)."""

    rise: float
    mas: float
    rise_ap: float
    flat: bool


def deletion_groups(scores: np.ndarray, kept: np.ndarray, steps: int = 20) -> list[np.ndarray]:
    """The kept prompt tokens by falling score in ``steps`` groups; the remainder goes to the first groups."""
    order = np.flatnonzero(kept)
    order = order[np.argsort(-scores[order], kind="stable")]
    return [np.asarray(group) for group in np.array_split(order, steps)]


def deleted_sequences(ids: np.ndarray, groups: list[np.ndarray], filler: int) -> np.ndarray:
    """(steps + 1, N): the sequence, then with one group after the other replaced by ``filler``, cumulatively."""
    rows = np.tile(ids, (len(groups) + 1, 1))
    for k, group in enumerate(groups, start=1):
        rows[k:, group] = filler
    return rows


def deletion_areas(log_likelihood: np.ndarray, scores: np.ndarray, groups: list[np.ndarray]) -> DeletionAreas:
    """The areas of a curve ``log_likelihood`` (k + 1,) of the target, s_0 intact to s_k with everything replaced.

    n_t = clip((s_t - s_k) / |s_0 - s_k|, 0, 1) and its running minimum; density_t = 1 - the share of the score that was
    removed (a linear ramp when there is none). A target that does not change at all (s_0 = s_k) counts as the ramp 1 → 0.
    """
    s = np.asarray(log_likelihood, dtype=np.float64)
    ramp = np.linspace(1.0, 0.0, len(s))
    drop = abs(s[0] - s[-1])
    flat = drop == 0.0
    n = ramp if flat else np.minimum.accumulate(np.clip((s - s[-1]) / drop, 0.0, 1.0))
    removed = np.array([np.maximum(scores[group].astype(np.float64), 0.0).sum() for group in groups])
    total = removed.sum()
    density = ramp if total <= 0 else 1.0 - np.concatenate([[0.0], np.cumsum(removed)]) / total
    penalised = n + np.abs(n - density)
    return DeletionAreas(_area(n), _area(_rescaled(np.clip(penalised, 0.0, 1.0), ramp)), _area(penalised), flat)


def deletion_of(
    example: Example,
    scores: np.ndarray,
    kept: np.ndarray,
    likelihood: Callable[[np.ndarray], np.ndarray],
    filler: int,
    steps: int = 20,
) -> DeletionAreas:
    """The areas of one example; ``likelihood`` maps ids (B, N) to the target's log-likelihood (B,)."""
    if example.input_ids is None:
        raise InputError(f"{example.id}: a deletion curve asks the model again, but there are no input ids")
    groups = deletion_groups(scores, kept, steps)
    return deletion_areas(likelihood(deleted_sequences(example.input_ids, groups, filler)), scores, groups)


def deletion(
    output: Output, truth: Truth, ctx: RunContext, *, steps: int = 20, batch_size: int = 8
) -> dict[str, float]:
    """RISE, MAS and RISE+AP on all generated tokens and the end of sequence, means over examples.

    ``flat`` is the share of examples whose target does not depend on the prompt at all; they count as a random curve.
    """
    from icml26_plugin_flashtrace.likelihood import filler_id

    if steps < 1:
        raise InputError(f"deletion: steps is {steps}, it must be at least 1")
    model, tokenizer = _model_of(truth)
    filler = filler_id(tokenizer, model)
    found = []
    pairs = list(zip(truth.examples, output.attributions, strict=True))
    for example, attribution in ctx.progress(pairs, "deletion curves"):
        kept = attribution.kept[: example.n_prompt]
        target = target_likelihood(model, tokenizer, example, batch_size)
        areas = deletion_of(example, attribution.scores, kept, target, filler, steps)
        if areas.flat:
            ctx.logger.warning("%s: the target does not depend on the prompt; its curve counts as 1 to 0", example.id)
        found.append(areas)
    return {
        "rise": mean_of([areas.rise for areas in found]),
        "mas": mean_of([areas.mas for areas in found]),
        "rise-ap": mean_of([areas.rise_ap for areas in found]),
        "flat": mean_of([float(areas.flat) for areas in found]),
    }


def target_likelihood(
    model: Any, tokenizer: Any, example: Example, batch_size: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Ids (B, N) to log p(T O EOS | prompt) (B,); EOS is added where the sequence does not end with it."""
    from icml26_plugin_flashtrace.likelihood import eos_id, log_probs

    end = eos_id(tokenizer, model)

    def likelihood(ids: np.ndarray) -> np.ndarray:
        if end is not None and ids[0, -1] != end:
            ids = np.concatenate([ids, np.full((len(ids), 1), end, dtype=ids.dtype)], axis=1)
        return log_probs(model, ids, example.n_prompt, batch_size=batch_size).sum(axis=1)

    return likelihood


def leave_one_out(
    example: Example, kept: np.ndarray, likelihood: Callable[[np.ndarray], np.ndarray], filler: int
) -> np.ndarray:
    """(P,) how much the target's log-likelihood falls when one kept prompt token is replaced; 0 for the others."""
    if example.input_ids is None:
        raise InputError(f"{example.id}: leave-one-out asks the model again, but there are no input ids")
    places = np.flatnonzero(kept)
    rows = np.tile(example.input_ids, (len(places) + 1, 1))
    rows[np.arange(1, len(rows)), places] = filler
    values = likelihood(rows)
    effect = np.zeros(len(kept))
    effect[places] = values[0] - values[1:]
    return effect


def leave_one_out_correlation(
    output: Output, truth: Truth, ctx: RunContext, *, batch_size: int = 8
) -> dict[str, float]:
    """Spearman's correlation of the scores with leave-one-out effects over kept prompt tokens; one forward pass a token."""
    from icml26_plugin_flashtrace.likelihood import filler_id

    model, tokenizer = _model_of(truth)
    filler = filler_id(tokenizer, model)
    found = []
    pairs = list(zip(truth.examples, output.attributions, strict=True))
    for example, attribution in ctx.progress(pairs, "leave one out"):
        kept = attribution.kept[: example.n_prompt]
        effect = leave_one_out(example, kept, target_likelihood(model, tokenizer, example, batch_size), filler)
        found.append(spearman(attribution.scores[kept], effect[kept]))
    return {"": mean_of(found)}


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation with average ranks for ties; 0 where one side is constant or has fewer than two values."""
    if len(x) < 2:
        return 0.0
    a, b = (ranks - ranks.mean() for ranks in (_average_ranks(x), _average_ranks(y)))
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 0 else 0.0


def _average_ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]


def _area(curve: np.ndarray) -> float:
    return float(((curve[1:] + curve[:-1]) / 2.0).mean())


def _rescaled(curve: np.ndarray, ramp: np.ndarray) -> np.ndarray:
    low, high = curve.min(), curve.max()
    return ramp if high == low else (curve - low) / (high - low)


def _model_of(truth: Truth) -> tuple[Any, Any]:
    if truth.model is None:
        raise InputError("this metric asks the model again; the dataset gives none")
    return truth.model, truth.tokenizer
