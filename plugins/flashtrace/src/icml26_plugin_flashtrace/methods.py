"""Adapters between the task ``attribution.tokens`` and FlashTrace, IFR and exhaustive rollout."""

from __future__ import annotations

from typing import Literal

from icml26 import RunContext
from pydantic import Field

from icml26_plugin_flashtrace.capture import Precision
from icml26_plugin_flashtrace.explainer import TokenMethod, TokenMethodConfig
from icml26_plugin_flashtrace.kernel import SINK_CHUNK
from icml26_plugin_flashtrace.task import Attribution, Example, Inputs
from icml26_plugin_flashtrace.tracing import MAX_HOPS, Settings, token_wise, trace


class KernelConfig(TokenMethodConfig):
    """Options of everything that reads captured attention."""

    renorm_threshold: float = Field(
        0.0, ge=0, le=1e6, description="Proximities below this become 0 before they are normalised (0: none)."
    )
    chunk_tokens: int | None = Field(
        None, ge=1, le=10_000_000, description="Source tokens handled at once (none: 128, more for narrow models)."
    )
    recompute_attention: bool = Field(
        True, description="Compute rows of attention when needed; false keeps the model's own (eager, memory N^2)."
    )
    precision: Precision = Field(
        "float32",
        description="Evaluate a model of bfloat16 or float16 weights in float32, layer by layer, or as the model itself does.",
    )
    check_identity: bool = Field(
        True, description="Refuse a model whose residual stream is not what its captured attention gives."
    )
    max_tokens: int | None = Field(
        None, ge=2, le=10_000_000, description="Refuse longer sequences (none: the model's)."
    )

    def settings(self) -> Settings:
        """The native settings."""
        return Settings(
            stop_tokens=self.stop_tokens,
            renorm_threshold=self.renorm_threshold,
            chunk_tokens=self.chunk_tokens,
            recompute_attention=self.recompute_attention,
            precision=self.precision,
            check_identity=self.check_identity,
            max_tokens=self.max_tokens,
        )


class FlashTraceMethod(TokenMethod):
    """Span-wise attribution of the answer, followed back through the reasoning."""

    class Config(KernelConfig):
        """Hops and what they pass through."""

        hops: int = Field(1, ge=0, le=MAX_HOPS, description="Hops K through the reasoning; the paper's default is 1.")
        recursion_span: Literal["generation", "reasoning"] = Field(
            "generation",
            description="What hops pass through: reasoning and answer (released code) or the reasoning alone.",
        )
        start: Literal["answer", "recursion-span"] = Field(
            "answer",
            description="What hop 0 explains: the answer (paper), or all that hops pass through (package 0.1.1).",
        )

    def explain(self, example: Example, inputs: Inputs, ctx: RunContext) -> Attribution:
        """See ``trace``."""
        c = self.config
        return trace(example, inputs.model, hops=c.hops, through=c.recursion_span, start=c.start, settings=c.settings())


class IfrMethod(TokenMethod):
    """Token-wise IFR: one normalised row for each token of the answer."""

    class Config(KernelConfig):
        """Batching of the targets."""

        sink_chunk: int = Field(
            SINK_CHUNK, ge=1, le=100_000, description="Target tokens handled at once; 1: one by one."
        )

    def explain(self, example: Example, inputs: Inputs, ctx: RunContext) -> Attribution:
        """See ``token_wise``."""
        c = self.config
        return token_wise(example, inputs.model, sink_chunk=c.sink_chunk, settings=c.settings())


class CageMethod(TokenMethod):
    """Exhaustive rollout of token-wise IFR through every generated token."""

    class Config(IfrMethod.Config):
        """As IFR."""

    def explain(self, example: Example, inputs: Inputs, ctx: RunContext) -> Attribution:
        """See ``token_wise``."""
        c = self.config
        return token_wise(example, inputs.model, rollout=True, sink_chunk=c.sink_chunk, settings=c.settings())
