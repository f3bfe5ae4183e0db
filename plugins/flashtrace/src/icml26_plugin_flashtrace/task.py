"""Types of the task ``attribution.tokens``; standard library and numpy only.

A sequence is a prompt of P tokens, then generated tokens: reasoning T and answer O. An explainer says how much each prompt
token had to do with the answer. Spans are **inclusive** indices of generated tokens, 0 is the first one.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Span = tuple[int, int]


@dataclass(frozen=True)
class LayerCapture:
    """What one attention block of one forward pass did; N tokens, H query heads, H_kv heads of values, width d.

    ``x_prev`` (N, d) float32, the residual stream before it; ``x_mid`` (N, d), the same after its result was added;
    ``attention`` (H, N, N), row i the probabilities of token i over sources j <= i; ``values`` (N, H_kv, d_h);
    ``out_weight`` (d, H * d_h) and ``out_bias`` (d,) or None, its output projection as ``torch.nn.Linear`` keeps it.
    """

    x_prev: np.ndarray
    x_mid: np.ndarray
    attention: np.ndarray
    values: np.ndarray
    out_weight: np.ndarray
    out_bias: np.ndarray | None = None


@dataclass(frozen=True)
class Captures:
    """The layers of a forward pass, first to last."""

    layers: tuple[LayerCapture, ...]


@dataclass(frozen=True)
class Example:
    """One sequence to explain.

    ``tokens``: N texts; ``input_ids`` (N,) int64, or None where there is no model; ``n_prompt`` = P; ``output_span`` the
    answer O and ``reasoning_span`` the reasoning T (None: there is none), inclusive indices of generated tokens;
    ``captures`` only with the word ``captures``.
    """

    id: str
    tokens: tuple[str, ...]
    input_ids: np.ndarray | None
    n_prompt: int
    output_span: Span
    reasoning_span: Span | None = None
    captures: Captures | None = None

    @property
    def n_tokens(self) -> int:
        """N, the length of the sequence."""
        return len(self.tokens)

    def for_truth(self) -> Example:
        """A copy that shares no array with this one and carries no captures: what the truth may hold."""
        ids = None if self.input_ids is None else self.input_ids.copy()
        return dataclasses.replace(self, input_ids=ids, captures=None)


@dataclass(frozen=True)
class Inputs:
    """What an explainer may see: ``examples``; only with the word ``model`` also a causal language model and its tokenizer."""

    examples: tuple[Example, ...]
    model: Any | None = None
    tokenizer: Any | None = None


@dataclass(frozen=True)
class Truth:
    """What metrics see.

    ``gold``: for each example a (P,) bool array of the prompt tokens that the answer came from, or None where nobody knows;
    ``model``, ``tokenizer`` and ``examples`` (without captures) for metrics that change the prompt and ask the model again.
    """

    gold: tuple[np.ndarray | None, ...]
    model: Any | None = None
    tokenizer: Any | None = None
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class Attribution:
    """One explanation, N = P + G tokens, K hops.

    ``scores`` (P,) float32 over the prompt; ``hops`` (K + 1, P) what each hop added (their sum is ``scores``; one row
    for methods without hops); ``generation_scores`` (N - P,), hop 0 on generated tokens; ``residual_ratios`` (K + 1,)
    the share rho_k of hop k's mass that lies on generated tokens; ``kept`` (N,) bool, False for stop tokens;
    ``seconds`` wall time by part (``forward``, ``attribution``); ``peak_memory_bytes`` 0 when it was not measured.
    """

    scores: np.ndarray
    hops: np.ndarray
    generation_scores: np.ndarray
    residual_ratios: np.ndarray
    kept: np.ndarray
    seconds: dict[str, float] = field(default_factory=dict)
    peak_memory_bytes: int = 0

    def __fingerprint__(self) -> str:
        """A hash of the numbers; time and memory differ between two equal runs."""
        sha = hashlib.sha256()
        for array in (self.scores, self.hops, self.generation_scores, self.residual_ratios, self.kept):
            sha.update(f"{array.dtype.str}{array.shape}".encode())
            sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()


@dataclass(frozen=True)
class Output:
    """One attribution for each example, in their order."""

    attributions: tuple[Attribution, ...]
