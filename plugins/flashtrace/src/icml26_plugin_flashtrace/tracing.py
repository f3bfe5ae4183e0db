"""One example in, one attribution out: FlashTrace, token-wise IFR and exhaustive rollout on one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from icml26 import InputError

from icml26_plugin_flashtrace.arguments import flag, real_number, target_weights, whole_number, words
from icml26_plugin_flashtrace.capture import Precision, capture_blocks, check_identity, rows_to_check
from icml26_plugin_flashtrace.encoding import check_spans
from icml26_plugin_flashtrace.explainer import attribution_of
from icml26_plugin_flashtrace.kernel import (
    CHUNK_TOKENS,
    SINK_CHUNK,
    Block,
    StoredAttention,
    span_shares,
    token_shares,
)
from icml26_plugin_flashtrace.measuring import measured
from icml26_plugin_flashtrace.recursion import recursion_span, trace_back
from icml26_plugin_flashtrace.rollout import exhaustive_rollout, ifr_row
from icml26_plugin_flashtrace.stop_tokens import STOP_TOKENS, kept_tokens
from icml26_plugin_flashtrace.task import Attribution, Captures, Example

RecursionRule = Literal["generation", "reasoning"]
StartRule = Literal["answer", "recursion-span"]

#: More hops than this cannot matter: what is carried shrinks with every one.
MAX_HOPS = 64


@dataclass(frozen=True)
class Settings:
    """What all three read-outs share; defaults are the released code's.

    ``stop_tokens``: stripped texts that never count. ``renorm_threshold``: proximities below it become 0.
    ``chunk_tokens``: sources at once (None: 128, more for narrow models). ``recompute_attention``: rows on demand instead of
    the model's own N x N matrices. ``check_identity``: refuse a model whose forward pass is not the one we know.
    ``precision``: evaluate bfloat16 and float16 models in float32, or as the "model" itself does. ``max_tokens``: refuse
    longer sequences.
    """

    stop_tokens: tuple[str, ...] = STOP_TOKENS
    renorm_threshold: float = 0.0
    chunk_tokens: int | None = None
    recompute_attention: bool = True
    check_identity: bool = True
    precision: Precision = "float32"
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        def keep(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        keep("stop_tokens", words(self.stop_tokens, "stop_tokens"))
        keep("renorm_threshold", real_number(self.renorm_threshold, "renorm_threshold", 0))
        for name, low in (("chunk_tokens", 1), ("max_tokens", 2)):
            value = getattr(self, name)
            keep(name, None if value is None else whole_number(value, name, low))
        for name in ("recompute_attention", "check_identity"):
            keep(name, flag(getattr(self, name), name))
        if self.precision not in ("float32", "model"):
            raise InputError(f"precision must be 'float32' or 'model', not {self.precision!r}")


def blocks_of_captures(captures: Captures) -> list[Block]:
    """Ready-made captures as the kernel's blocks; the arrays are not copied."""
    return [
        Block(
            torch.from_numpy(layer.x_prev),
            torch.from_numpy(layer.x_mid),
            torch.from_numpy(layer.values),
            torch.from_numpy(layer.out_weight),
            StoredAttention(torch.from_numpy(layer.attention)),
            None if layer.out_bias is None else torch.from_numpy(layer.out_bias),
        )
        for layer in captures.layers
    ]


def blocks_of(example: Example, model: Any, settings: Settings) -> list[Block]:
    """The example's blocks, from its captures or from a forward pass, with the residual identity checked."""
    spans = [(example.n_prompt + lo, example.n_prompt + hi) for lo, hi in _spans(example)]
    if example.captures is not None:
        blocks = blocks_of_captures(example.captures)
    elif model is None or example.input_ids is None:
        raise InputError(f"example {example.id!r} has neither captures nor a model to run")
    else:
        blocks = capture_blocks(
            model,
            example.input_ids,
            recompute_attention=settings.recompute_attention,
            precision=settings.precision,
            max_tokens=settings.max_tokens,
        )
    if settings.check_identity:
        check_identity(blocks, rows_to_check(example.n_tokens, spans))
    return blocks


def without_autocast(device: Any) -> AbstractContextManager[Any]:
    """No autocast of the caller's reaches model and kernel: products in bfloat16 would pass for float32."""
    return torch.autocast(getattr(device, "type", "cpu"), enabled=False)


def checked_targets(example: Example, settings: Settings) -> np.ndarray:
    """The (N,) bool array of kept tokens; InputError for spans that cannot be explained, before any work."""
    n_generated = example.n_tokens - example.n_prompt
    if example.n_prompt < 1:
        raise InputError(f"example {example.id!r} has no prompt: there is nothing that the answer could come from")
    if n_generated < 1:
        raise InputError(f"example {example.id!r} has no generated token")
    check_spans(example.output_span, example.reasoning_span, n_generated)
    kept = kept_tokens(example.tokens, settings.stop_tokens)
    lo, hi = (example.n_prompt + k for k in example.output_span)
    if not kept[lo : hi + 1].any():
        raise InputError(
            f"example {example.id!r}: the answer {''.join(example.tokens[lo : hi + 1])!r} has only stop tokens; choose another "
            "span, or stop_tokens=[]"
        )
    return kept


def trace(
    example: Example,
    model: Any = None,
    *,
    hops: int = 1,
    through: RecursionRule = "generation",
    start: StartRule = "answer",
    settings: Settings | None = None,
    weights: Sequence[float] | np.ndarray | None = None,
) -> Attribution:
    """FlashTrace: the span-wise scores of the answer, followed back through the reasoning for ``hops`` hops.

    ``start``: hop 0 explains the answer (the paper), or the whole of ``through`` (what the package ``flashtrace`` 0.1.1 does,
    measured from outside: its scores do not depend on the answer's span). ``weights`` of the tokens that hop 0 explains,
    non-negative (None: all alike). Raises InputError.
    """
    settings = Settings() if settings is None else settings
    kept = checked_targets(example, settings)
    hops = whole_number(hops, "hops", 0, MAX_HOPS)
    if through not in ("generation", "reasoning"):
        raise InputError(f"recursion_span must be 'generation' or 'reasoning', not {through!r}")
    if start not in ("answer", "recursion-span"):
        raise InputError(f"start must be 'answer' or 'recursion-span', not {start!r}")
    p, n = example.n_prompt, example.n_tokens
    passed = recursion_span(through, example.output_span, example.reasoning_span, p, n)
    lo, hi = passed if start == "recursion-span" else (p + example.output_span[0], p + example.output_span[1])
    chosen = None if weights is None else target_weights(weights, hi - lo + 1)
    if chosen is not None and not chosen[kept[lo : hi + 1]].any():
        raise InputError("weights are zero on all tokens that are no stop tokens: nothing is left to explain")
    device = None if model is None else model.get_input_embeddings().weight.device
    with measured(device) as cost, torch.no_grad(), without_autocast(device):
        with cost.part("forward", device):
            blocks = blocks_of(example, model, settings)

        def span(first: int, last: int, w: np.ndarray) -> np.ndarray:
            shares = span_shares(
                blocks,
                first,
                last,
                torch.from_numpy(np.ascontiguousarray(w)),
                chunk_tokens=settings.chunk_tokens,
                renorm_threshold=settings.renorm_threshold,
            )
            return np.asarray(shares.sources.cpu().numpy())

        with cost.part("attribution", device):
            result = trace_back(span, (lo, hi), passed, p, hops, kept, chosen)
    return Attribution(
        scores=result.scores,
        hops=result.hops,
        generation_scores=result.first[p:].copy(),
        residual_ratios=result.ratios,
        kept=kept,
        seconds=cost.seconds,
        peak_memory_bytes=cost.peak_bytes,
    )


def token_wise(
    example: Example,
    model: Any = None,
    *,
    rollout: bool = False,
    sink_chunk: int = SINK_CHUNK,
    settings: Settings | None = None,
) -> Attribution:
    """IFR: the normalised rows of the answer's tokens, summed.

    With ``rollout`` what they owe to generated tokens is replaced by what those owe, exhaustively (CAGE). Stop tokens
    are no targets. Raises InputError.
    """
    settings = Settings() if settings is None else settings
    kept = checked_targets(example, settings)
    sink_chunk = whole_number(sink_chunk, "sink_chunk", 1)
    p = example.n_prompt
    lo, hi = example.output_span
    first, last = (0, hi) if rollout else (lo, hi)
    device = None if model is None else model.get_input_embeddings().weight.device
    with measured(device) as cost, torch.no_grad(), without_autocast(device):
        with cost.part("forward", device):
            blocks = blocks_of(example, model, settings)
        with cost.part("attribution", device):
            rows = token_shares(
                blocks,
                p + first,
                p + last,
                sink_chunk=sink_chunk,
                chunk_tokens=settings.chunk_tokens or CHUNK_TOKENS,
                renorm_threshold=settings.renorm_threshold,
            )
            table = rows.cpu().numpy()
            targets = kept[p + lo : p + hi + 1]
            if rollout:
                scores = exhaustive_rollout(table, p, lo + np.flatnonzero(targets))
            else:
                scores = ifr_row(table, targets)
    return attribution_of(scores, example, kept, cost.seconds, cost.peak_bytes)


def _spans(example: Example) -> list[tuple[int, int]]:
    return [span for span in (example.output_span, example.reasoning_span) if span is not None]
