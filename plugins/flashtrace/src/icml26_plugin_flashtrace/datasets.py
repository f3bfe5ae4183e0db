"""Datasets with a model: generated prompts for a real one, and the symbolic twin whose tiny model is trained in the run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from icml26 import DatasetConfig, InputError, Problem, RunContext
from pydantic import Field, model_validator

from icml26_plugin_flashtrace.encoding import MarkedText
from icml26_plugin_flashtrace.problem import ModelConfig, TokenDataset, problem_of, text_problem
from icml26_plugin_flashtrace.task import Example, Inputs, Truth
from icml26_plugin_flashtrace.vartrack import needles, variable_tracking, without_reasoning

#: A tiny model below this share of exact generations comes with a warning.
HEALTHY = 0.95


class VariableTracking(TokenDataset):
    """Chains of variables among distractors; the generation walks the queried chain back, then answers."""

    class Config(ModelConfig):
        """The prompts, and the model that reads them."""

        n_examples: int = Field(20, ge=1, le=100_000, description="Prompts to generate.")
        hops: int = Field(3, ge=1, le=50, description="Statements of a chain.")
        distractor_chains: int = Field(2, ge=0, le=200, description="Chains that are not asked for.")
        noise_sentences: int = Field(5, ge=0, le=10_000, description="Sentences without any variable.")

    def texts(self, rng: np.random.Generator) -> list[MarkedText]:
        """The prompts, from ``rng`` alone, independent of the model."""
        c = self.config
        sizes = {"hops": c.hops, "distractor_chains": c.distractor_chains, "noise_sentences": c.noise_sentences}
        return [variable_tracking(rng, k + 1, **sizes) for k in range(c.n_examples)]

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Generate the prompts and open the model."""
        texts = self.texts(ctx.rng)
        model, tokenizer = self.config.open_model(ctx)
        return text_problem(texts, model, tokenizer, self.config, {})


class Absorb(VariableTracking):
    """The same prompts answered at once, without reasoning: the other end of the absorption curve."""

    def texts(self, rng: np.random.Generator) -> list[MarkedText]:
        """The prompts of variable tracking with only the answer as generation."""
        return [without_reasoning(text) for text in super().texts(rng)]


class Needles(TokenDataset):
    """Key-value sentences in noise, some of which are asked for."""

    class Config(ModelConfig):
        """The prompts, and the model that reads them."""

        n_examples: int = Field(20, ge=1, le=100_000, description="Prompts to generate.")
        pairs: int = Field(6, ge=1, le=144, description="Key-value sentences of a prompt.")
        asked: int = Field(2, ge=1, le=144, description="Keys that are asked for.")
        noise_sentences: int = Field(6, ge=0, le=10_000, description="Sentences without any key.")

        @model_validator(mode="after")
        def _fits(self) -> Needles.Config:
            if self.asked > self.pairs:
                raise ValueError(f"asked ({self.asked}) cannot exceed pairs ({self.pairs})")
            return self

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Generate the prompts and open the model."""
        c = self.config
        sizes = {"pairs": c.pairs, "asked": c.asked, "noise_sentences": c.noise_sentences}
        texts = [needles(ctx.rng, k + 1, **sizes) for k in range(c.n_examples)]
        model, tokenizer = c.open_model(ctx)
        return text_problem(texts, model, tokenizer, c, {})


class TinyVariableTracking(TokenDataset):
    """Variable tracking in symbols, read by a tiny Llama that is trained on it first (once: the weights are cached)."""

    class Config(DatasetConfig):
        """The grammar, and the training of the model."""

        n_examples: int = Field(20, ge=1, le=10_000, description="Sequences to explain.")
        hops: int = Field(3, ge=1, le=6, description="Statements of a chain.")
        chains: int = Field(4, ge=1, le=6, description="Chains of a prompt, one of which is asked for.")
        noise: int = Field(2, ge=0, le=10, description="Meaningless statements of a prompt.")
        steps: int = Field(2000, ge=1, le=100_000, description="Training steps at most.")
        stop_at: float = Field(0.97, gt=0, le=1, description="Stop training at this share of exact generations.")
        batch_size: int = Field(16, ge=1, le=4096, description="Training sequences of a step.")
        learning_rate: float = Field(4e-3, gt=0, le=1, description="Learning rate of AdamW after the warm-up.")
        width: int = Field(64, ge=8, le=1024, description="Width of the residual stream; the MLPs are twice as wide.")
        layers: int = Field(3, ge=1, le=24, description="Layers of the model.")
        heads: int = Field(4, ge=1, le=64, description="Attention heads.")
        kv_heads: int = Field(2, ge=1, le=64, description="Heads of keys and values.")
        head_width: int = Field(32, ge=2, le=256, multiple_of=2, description="Width of a head.")
        only_correct: bool = Field(False, description="Explain only what the model itself would have generated.")

        @model_validator(mode="after")
        def _fits(self) -> TinyVariableTracking.Config:
            from icml26_plugin_flashtrace.symbols import NAMES, Grammar

            if self.heads % self.kv_heads:
                raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
            grammar = Grammar(self.hops, self.chains, self.noise)
            if grammar.names > len(NAMES):
                raise ValueError(f"hops * chains is {grammar.names}, there are {len(NAMES)} names")
            if grammar.n_lesson > 128:
                raise ValueError(
                    f"a training sequence would have {grammar.n_lesson} tokens, at most 128 fit: fewer chains"
                )
            return self

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Train the model, or take it from the cache, and draw sequences that it answers rightly."""
        from icml26_plugin_flashtrace import tiny_lm
        from icml26_plugin_flashtrace.symbols import Grammar, symbol_tokenizer

        c = self.config
        grammar = Grammar(c.hops, c.chains, c.noise)
        own = {field.name for field in dataclasses.fields(tiny_lm.TinyTraining)}
        training = tiny_lm.TinyTraining(**c.model_dump(include=own))
        # One draw, whether the model is trained or read, so that what is drawn later does not depend on the cache.
        seed = int(ctx.rng.integers(2**62))

        def build(folder: Path) -> None:
            trained = tiny_lm.train(
                grammar,
                training,
                np.random.default_rng(seed),
                log=lambda name, value, step: ctx.log(f"tiny-{name}", value, step),
                progress=lambda steps: ctx.progress(steps, "train the tiny model"),
            )
            tiny_lm.save(trained, folder)

        trained = tiny_lm.load(training, ctx.cached("tiny-lm-2", build))
        if trained.accuracy < HEALTHY:
            ctx.logger.warning(
                "the tiny model answers %.0f %% of fresh sequences rightly after %d steps: what it attends to says little; "
                "raise dataset.steps",
                100 * trained.accuracy,
                trained.steps,
            )
        ids, gold = self._sequences(trained.model, grammar, ctx.rng)
        model = trained.model.to(ctx.device)
        examples = [_symbol_example(k, row, grammar) for k, row in enumerate(ids)]
        info = {"exact generations": trained.accuracy, "training steps": trained.steps}
        return problem_of(examples, list(gold), model, symbol_tokenizer(), info)

    def _sequences(self, model: Any, grammar: Any, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        from icml26_plugin_flashtrace.symbols import draw
        from icml26_plugin_flashtrace.tiny_lm import is_exact

        n = self.config.n_examples
        if not self.config.only_correct:
            batch = draw(rng, grammar, n)
            return batch.ids, batch.gold
        batch = draw(rng, grammar, max(64, 4 * n))
        right = np.flatnonzero(is_exact(model, batch.ids, grammar.n_prompt))[:n]
        if len(right) < n:
            raise InputError(
                f"the tiny model answers only {len(right)} of {len(batch.ids)} sequences rightly, {n} are asked for: raise "
                "dataset.steps, or set dataset.only_correct=false"
            )
        return batch.ids[right], batch.gold[right]


def _symbol_example(k: int, ids: np.ndarray, grammar: Any) -> Example:
    from icml26_plugin_flashtrace.symbols import texts_of

    t = grammar.n_reasoning
    return Example(
        id=f"tiny-{k + 1}",
        tokens=texts_of(ids),
        input_ids=np.array(ids),
        n_prompt=grammar.n_prompt,
        output_span=(t, t),
        reasoning_span=(0, t - 1),
    )
