"""Baselines of ``attribution.tokens`` as methods: thin adapters over :mod:`icml26_plugin_flashtrace.baselines`."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Literal

import numpy as np
from icml26 import RunContext
from pydantic import Field

from icml26_plugin_flashtrace.explainer import TokenMethod, TokenMethodConfig, attribution_of
from icml26_plugin_flashtrace.stop_tokens import kept_tokens
from icml26_plugin_flashtrace.task import Attribution, Example, Inputs


class Scored(TokenMethod):
    """A method that gives each token one score, in one piece."""

    @abstractmethod
    def scores(self, example: Example, kept: np.ndarray, inputs: Inputs, ctx: RunContext) -> np.ndarray:
        """(N,) or (P,) scores; ``kept`` (N,) is False for stop tokens."""

    def explain(self, example: Example, inputs: Inputs, ctx: RunContext) -> Attribution:
        """Score one example and measure the time."""
        kept = kept_tokens(example.tokens, self.config.stop_tokens)
        start, busy = time.perf_counter(), time.process_time()
        scores = self.scores(example, kept, inputs, ctx)
        seconds = {"attribution": time.perf_counter() - start, "attribution-cpu": time.process_time() - busy}
        return attribution_of(scores, example, kept, seconds)


class IntegratedGradients(Scored):
    """Integrated gradients from a sequence of end-of-sequence tokens."""

    class Config(TokenMethodConfig):
        """Options of the quadrature."""

        steps: int = Field(20, ge=2, le=2000, description="Points of the trapezoid rule (paper: 20).")
        batch_size: int = Field(8, ge=2, description="Interpolated sequences per forward pass; bounds memory only.")

    def scores(self, example: Example, kept: np.ndarray, inputs: Inputs, ctx: RunContext) -> np.ndarray:
        """Signed, sums to f(x) - f(baseline) over all tokens."""
        from icml26_plugin_flashtrace.baselines.gradients import integrated_gradients
        from icml26_plugin_flashtrace.baselines.targets import answer_weights, ids_of
        from icml26_plugin_flashtrace.likelihood import filler_id

        return integrated_gradients(
            inputs.model,
            ids_of(example, inputs),
            example.n_prompt,
            answer_weights(example, kept),
            baseline=filler_id(inputs.tokenizer, inputs.model, prefer="eos"),
            steps=self.config.steps,
            batch_size=self.config.batch_size,
        )


class AttnLrp(Scored):
    """AttnLRP in one backward pass."""

    class Config(TokenMethodConfig):
        """What is explained."""

        objective: Literal["logit", "log-prob"] = Field(
            "logit", description="Explain the answer's logits or log-probs."
        )

    def scores(self, example: Example, kept: np.ndarray, inputs: Inputs, ctx: RunContext) -> np.ndarray:
        """Signed relevance."""
        from icml26_plugin_flashtrace.baselines.attnlrp import attnlrp
        from icml26_plugin_flashtrace.baselines.targets import answer_weights, ids_of

        ids, weights = ids_of(example, inputs), answer_weights(example, kept)
        return attnlrp(inputs.model, ids, example.n_prompt, weights, objective=self.config.objective)


class GradientTimesInput(Scored):
    """Gradient × input at the embedding layer."""

    class Config(TokenMethodConfig):
        """What is explained."""

        objective: Literal["logit", "log-prob"] = Field(
            "log-prob", description="Explain the answer's logits or log-probs."
        )

    def scores(self, example: Example, kept: np.ndarray, inputs: Inputs, ctx: RunContext) -> np.ndarray:
        """Signed."""
        from icml26_plugin_flashtrace.baselines.gradients import gradient_times_input
        from icml26_plugin_flashtrace.baselines.targets import answer_weights, ids_of

        ids, weights = ids_of(example, inputs), answer_weights(example, kept)
        return gradient_times_input(inputs.model, ids, example.n_prompt, weights, self.config.objective)


class PerturbationConfig(TokenMethodConfig):
    """What is replaced."""

    unit: Literal["sentence", "token"] = Field("sentence", description="What is replaced at once (paper: sentence).")
    batch_size: int = Field(8, ge=1, description="Perturbed prompts per forward pass; bounds memory only.")


class Perturbation(Scored):
    """How much the answer's log-probability falls when a sentence is replaced by end-of-sequence tokens."""

    score: Literal["log-prob", "kl"] = "log-prob"

    class Config(PerturbationConfig):
        """What is replaced."""

    def scores(self, example: Example, kept: np.ndarray, inputs: Inputs, ctx: RunContext) -> np.ndarray:
        """Signed for log-probabilities, non-negative for KL; one value for all tokens of a unit."""
        from icml26_plugin_flashtrace.baselines.perturbation import perturbation, sentence_units, token_units
        from icml26_plugin_flashtrace.baselines.targets import answer_weights, ids_of
        from icml26_plugin_flashtrace.likelihood import filler_id

        units = sentence_units if self.config.unit == "sentence" else token_units
        return perturbation(
            inputs.model,
            ids_of(example, inputs),
            example.n_prompt,
            answer_weights(example, kept),
            units(example.tokens[: example.n_prompt]),
            filler=filler_id(inputs.tokenizer, inputs.model, prefer="eos"),
            score=self.score,
            batch_size=self.config.batch_size,
        )


class Clp(Perturbation):
    """The same with the change of the model's whole next-token distribution in place of the answer's log-probability."""

    score = "kl"

    class Config(PerturbationConfig):
        """What is replaced."""


class MeanAttention(Scored):
    """Attention of the answer's tokens, averaged over layers and heads."""

    def scores(self, example: Example, kept: np.ndarray, inputs: Inputs, ctx: RunContext) -> np.ndarray:
        """Probabilities that sum to 1 over all tokens."""
        from icml26_plugin_flashtrace.baselines.attention import mean_attention, mean_captured_attention
        from icml26_plugin_flashtrace.baselines.targets import answer_weights, ids_of

        rows = example.n_prompt + np.flatnonzero(answer_weights(example, kept))
        if example.captures is not None:
            return mean_captured_attention(example.captures, rows)
        return mean_attention(inputs.model, ids_of(example, inputs), rows)


class Random(Scored):
    """Uniform random scores: the floor."""

    def scores(self, example: Example, kept: np.ndarray, inputs: Inputs, ctx: RunContext) -> np.ndarray:
        """From the run's generator and the example's place, so that a resumed run gives the same."""
        place = next(k for k, other in enumerate(inputs.examples) if other is example)
        return np.random.default_rng((ctx.torch_seed(), place)).random(example.n_tokens)


class Position(Scored):
    """Scores that depend on a token's place only."""

    class Config(TokenMethodConfig):
        """Which end of the prompt counts."""

        first: Literal["latest", "earliest"] = Field("latest", description="Which tokens score highest.")

    def scores(self, example: Example, kept: np.ndarray, inputs: Inputs, ctx: RunContext) -> np.ndarray:
        """(P,) from 1 / P to 1."""
        p = example.n_prompt
        rising = np.arange(1, p + 1) / p
        return rising if self.config.first == "latest" else rising[::-1]
