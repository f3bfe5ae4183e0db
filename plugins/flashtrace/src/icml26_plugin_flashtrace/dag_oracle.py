"""``dag-oracle``: information flow that is known by construction, prompt -> reasoning -> answer, without any model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from icml26 import DatasetConfig, Problem, RunContext
from pydantic import Field, model_validator

from icml26_plugin_flashtrace.problem import TokenDataset
from icml26_plugin_flashtrace.task import Captures, Example, Inputs, LayerCapture, Truth


@dataclass(frozen=True)
class Sizes:
    """Tokens (P, T, O), gold prompt tokens, width d, heads H and layers L."""

    n_prompt: int = 100
    n_reasoning: int = 20
    n_output: int = 4
    n_gold: int = 10
    width: int = 64
    n_heads: int = 2
    n_layers: int = 2

    @property
    def n_tokens(self) -> int:
        """N."""
        return self.n_prompt + self.n_reasoning + self.n_output


def attention_of(sizes: Sizes, gold: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(H, N, N) float32: reasoning rows read a gold token and the token before them, answer rows read the reasoning.

    Weights: reasoning 0.6 on a random one of ``gold``, 0.2 on the generated token before it (the last prompt token for the
    first one), 0.2 at random; answer 0.6 spread over 3 random reasoning tokens, 0.4 at random.
    """
    n, p, t = sizes.n_tokens, sizes.n_prompt, sizes.n_reasoning
    weights = np.tril(rng.uniform(size=(sizes.n_heads, n, n)))
    weights /= weights.sum(axis=2, keepdims=True)
    for head in weights:
        for i in range(p, n):
            reasoning = i < p + t
            head[i] *= 0.2 if reasoning else 0.4
            if reasoning:
                head[i, rng.choice(gold)] += 0.6
                head[i, i - 1] += 0.2
            else:
                read = rng.choice(t, size=min(3, t), replace=False)
                head[i, p + read] += 0.6 / len(read)
    return weights.astype(np.float32)


def draw_captures(sizes: Sizes, gold: np.ndarray, rng: np.random.Generator) -> Captures:
    """Random vectors that flow along ``attention_of``: x ~ N(0, I), values x W_v with W_v ~ N(0, 1/d), W_O ~ N(0, 1/d_h)."""
    n, d, heads = sizes.n_tokens, sizes.width, sizes.n_heads
    d_h = d // heads
    x = rng.standard_normal((n, d)).astype(np.float32)
    layers = []
    for _ in range(sizes.n_layers):
        attention = attention_of(sizes, gold, rng)
        w_v = rng.standard_normal((d, heads * d_h)).astype(np.float32) / np.float32(np.sqrt(d))
        w_o = rng.standard_normal((d, heads * d_h)).astype(np.float32) / np.float32(np.sqrt(d_h))
        values = (x @ w_v).reshape(n, heads, d_h)
        read = np.einsum("hij,jhk->ihk", attention, values).reshape(n, heads * d_h)
        x_mid = (x + read @ w_o.T).astype(np.float32)
        layers.append(LayerCapture(x, x_mid, attention, values, w_o))
        x = x_mid.copy()
    return Captures(tuple(layers))


class DagOracle(TokenDataset):
    """Made-up forward passes in which the answer reads the reasoning, and the reasoning reads the gold prompt tokens."""

    class Config(DatasetConfig):
        """Sizes; the defaults are those of the acceptance bars."""

        n_examples: int = Field(5, ge=1, le=10_000, description="Graphs to draw.")
        n_prompt: int = Field(100, ge=4, le=20_000, description="Prompt tokens P.")
        n_reasoning: int = Field(20, ge=1, le=20_000, description="Reasoning tokens T.")
        n_output: int = Field(4, ge=1, le=10_000, description="Answer tokens O.")
        n_gold: int = Field(10, ge=1, le=10_000, description="Prompt tokens that the reasoning reads.")
        width: int = Field(64, ge=2, le=8192, description="Width d of the residual stream.")
        n_heads: int = Field(2, ge=1, le=128, description="Attention heads H; they divide the width.")
        n_layers: int = Field(2, ge=1, le=128, description="Layers L.")

        @model_validator(mode="after")
        def _fits(self) -> DagOracle.Config:
            if self.width % self.n_heads:
                raise ValueError(f"n_heads ({self.n_heads}) must divide width ({self.width})")
            if self.n_gold > self.n_prompt:
                raise ValueError(f"n_gold ({self.n_gold}) cannot exceed n_prompt ({self.n_prompt})")
            return self

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Draw the graphs."""
        c = self.config
        sizes = Sizes(**c.model_dump(exclude={"n_examples"}))
        tokens = [f" p{k}" for k in range(c.n_prompt)] + [f" t{k}" for k in range(c.n_reasoning)]
        tokens += [f" o{k}" for k in range(c.n_output)]
        examples, gold = [], []
        for number in range(c.n_examples):
            chosen = np.sort(ctx.rng.choice(c.n_prompt, size=c.n_gold, replace=False))
            examples.append(
                Example(
                    id=f"graph-{number + 1}",
                    tokens=tuple(tokens),
                    input_ids=None,
                    n_prompt=c.n_prompt,
                    output_span=(c.n_reasoning, c.n_reasoning + c.n_output - 1),
                    reasoning_span=(0, c.n_reasoning - 1),
                    captures=draw_captures(sizes, chosen, ctx.rng),
                )
            )
            marks = np.zeros(c.n_prompt, dtype=bool)
            marks[chosen] = True
            gold.append(marks)
        truth = Truth(tuple(gold), examples=tuple(example.for_truth() for example in examples))
        info = {"examples": c.n_examples, "tokens": sizes.n_tokens, "gold": c.n_gold}
        return Problem(Inputs(tuple(examples)), truth, info)
