"""The native interface: ``FlashTrace(model, tokenizer).attribute(prompt, generation, output_span=…)``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from icml26 import InputError

from icml26_plugin_flashtrace.arguments import flag, text, whole_number
from icml26_plugin_flashtrace.capture import evaluating
from icml26_plugin_flashtrace.encoding import (
    MarkedText,
    content_length,
    content_spans,
    encode,
    rendered_prompt,
    tokenise,
)
from icml26_plugin_flashtrace.explainer import as_json
from icml26_plugin_flashtrace.families import decoder_layers, family_of
from icml26_plugin_flashtrace.files import write_whole
from icml26_plugin_flashtrace.models import check_ids, check_length, max_length, single_sequence
from icml26_plugin_flashtrace.spans import SpanLike, as_chars_or_tokens, token_span
from icml26_plugin_flashtrace.task import Attribution, Example
from icml26_plugin_flashtrace.tracing import MAX_HOPS, RecursionRule, Settings, StartRule, trace


@dataclass(frozen=True)
class TraceResult:
    """An explained generation: the example (tokens, spans) and its attribution, with ways to look at them."""

    example: Example
    attribution: Attribution

    @property
    def prompt_tokens(self) -> tuple[str, ...]:
        """P texts."""
        return self.example.tokens[: self.example.n_prompt]

    @property
    def scores(self) -> np.ndarray:
        """(P,) float32, non-negative: how much each prompt token has to do with the answer."""
        return self.attribution.scores

    @property
    def hops(self) -> np.ndarray:
        """(K + 1, P) what each hop added."""
        return self.attribution.hops

    @property
    def residual_ratios(self) -> np.ndarray:
        """(K + 1,) rho_k, the share of a hop's mass that lies on generated tokens."""
        return self.attribution.residual_ratios

    @property
    def seconds(self) -> dict[str, float]:
        """Wall time of ``forward`` and ``attribution``."""
        return self.attribution.seconds

    @property
    def peak_memory_bytes(self) -> int:
        """Peak above what was in use before, model included there; 0 where the system does not say."""
        return self.attribution.peak_memory_bytes

    def top(self, n: int = 10) -> list[tuple[str, float]]:
        """The ``n`` prompt tokens with the highest scores, highest first."""
        order = np.argsort(-self.scores, kind="stable")[: whole_number(n, "n", 0)]
        return [(self.prompt_tokens[k], float(self.scores[k])) for k in order]

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return as_json(self.example, self.attribution)

    def to_html(self, path: str | Path | None = None, *, title: str = "FlashTrace") -> str:
        """A standalone page: prompt tokens shaded, scores on hover, hops as tabs; written to ``path`` when one is given.

        Raises InputError where no file can be written; nothing half-written stays.
        """
        from icml26_plugin_flashtrace.heatmap import html_page

        example = self.example
        page = html_page(
            example.tokens, example.n_prompt, self.attribution, title=title, output_span=example.output_span
        )
        if path is not None:
            write_whole(path, lambda half: half.write_text(page, encoding="utf-8"))
        return page

    def to_png(self, path: str | Path) -> None:
        """The same as a picture, whatever the file is called; InputError where none can be written."""
        from icml26_plugin_flashtrace.heatmap import draw_png

        draw_png(path, self.example.tokens, self.example.n_prompt, self.attribution)


class FlashTrace:
    """Explains generations of one model.

    ``model``: a ``transformers`` causal language model of a supported family (Llama, Mistral, Qwen2, Qwen3, Gemma 2), any
    attention implementation, which is left as it was; ``tokenizer``: its tokenizer, not needed for ``attribute_ids``.
    ``recursion_span``: what attribution passes through, ``"generation"`` (released code) or ``"reasoning"`` (the paper's text).
    ``start``: what hop 0 explains, ``"answer"`` (the paper) or ``"recursion-span"`` (the package ``flashtrace`` 0.1.1).
    ``chat_template``: put the prompt into the tokenizer's template as a user's message. Other keywords are the fields of
    ``Settings``. Raises InputError when the model is not supported.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any | None = None,
        *,
        recursion_span: RecursionRule = "generation",
        start: StartRule = "answer",
        chat_template: bool = False,
        stop_tokens: Sequence[str] | None = None,
        **settings: Any,
    ) -> None:
        family_of(model)
        decoder_layers(model)
        known = {field.name for field in dataclasses.fields(Settings)}
        unknown = sorted(set(settings) - known)
        if unknown:
            raise InputError(f"FlashTrace has no option {unknown[0]!r} (options: {', '.join(sorted(known))})")
        if stop_tokens is not None:
            settings["stop_tokens"] = stop_tokens
        self.model = model
        self.tokenizer = tokenizer
        self.recursion_span: RecursionRule = recursion_span
        self.start: StartRule = start
        self.chat_template = flag(chat_template, "chat_template")
        self.settings = Settings(**settings)

    def attribute(
        self,
        prompt: str,
        generation: str | None = None,
        *,
        output_span: SpanLike | None = None,
        reasoning_span: SpanLike | None = None,
        hops: int = 1,
        weights: Sequence[float] | np.ndarray | None = None,
        max_new_tokens: int = 256,
    ) -> TraceResult:
        """Which prompt tokens ``output_span`` of the generation came from.

        ``generation``: what the model answered; None lets it answer greedily. Spans are inclusive (first, last) generated
        tokens, ``Chars``, ``Regex``, or a text (its last occurrence); ``output_span`` None: all of the generation;
        ``reasoning_span`` None: everything generated counts as reasoning. ``weights`` of the answer's tokens.
        """
        if self.tokenizer is None:
            raise InputError("FlashTrace was made without a tokenizer: give one, or call attribute_ids")
        text(prompt, "prompt")
        hops = whole_number(hops, "hops", 0, MAX_HOPS)
        if generation is None:
            generation = self.generate(prompt, max_new_tokens)
        text(generation, "generation")
        chars, span = as_chars_or_tokens(output_span, generation, "output span")
        reasoning_chars, reasoning = as_chars_or_tokens(reasoning_span, generation, "reasoning span")
        marked = MarkedText("text", prompt, generation, chars, reasoning_chars, None, span, reasoning)
        example, _ = encode(marked, self.tokenizer, chat_template=self.chat_template)
        return self._result(example, hops, weights)

    def attribute_ids(
        self,
        input_ids: Any,
        n_prompt: int,
        *,
        output_span: tuple[int, int] | None = None,
        reasoning_span: tuple[int, int] | None = None,
        hops: int = 1,
        weights: Sequence[float] | np.ndarray | None = None,
        attention_mask: Any | None = None,
    ) -> TraceResult:
        """The same for ids (N,) or (1, N) of prompt and generation together; the first ``n_prompt`` are the prompt.

        Without a tokenizer no token is a stop token. Batches and left padding are refused.
        """
        ids = single_sequence(input_ids, attention_mask)
        n_prompt = whole_number(n_prompt, "n_prompt", 0)
        if not 0 < n_prompt < len(ids):
            raise InputError(f"n_prompt must leave prompt and generation: 1..{len(ids) - 1}, not {n_prompt}")
        if self.tokenizer is None:
            tokens = tuple(f"<{i}>" for i in ids)
        else:
            tokens = tuple(self.tokenizer.decode([int(i)]) for i in ids)
        n = content_length(ids[n_prompt:], self.tokenizer)
        wanted = None if output_span is None else token_span(output_span, "output span")
        through = None if reasoning_span is None else token_span(reasoning_span, "reasoning span")
        span, through = content_spans(wanted, through, n, len(ids) - n_prompt)
        stop = n_prompt + n
        return self._result(Example("ids", tokens[:stop], ids[:stop], n_prompt, span, through), hops, weights)

    def generate(self, prompt: str, max_new_tokens: int = 256) -> str:
        """The model's greedy answer as text, without special tokens; it ends where the model's context does, too.

        Raises InputError when the context holds no token after the prompt, or the answer is nothing but special tokens.
        """
        import torch

        if self.tokenizer is None:
            raise InputError("FlashTrace was made without a tokenizer, which generating a text needs")
        max_new_tokens = whole_number(max_new_tokens, "max_new_tokens", 1)
        rendered = text(prompt, "prompt")
        if self.chat_template:
            rendered = rendered_prompt(prompt, self.tokenizer)
        pieces = tokenise(rendered, self.tokenizer, special=not self.chat_template)
        check_ids(self.model, pieces.ids, what="the prompt")
        check_length(self.model, len(pieces.ids) + 1, self.settings.max_tokens, what="the prompt and one more token")
        room = max_length(self.model, self.settings.max_tokens)
        pad = self.tokenizer.pad_token_id
        ids = torch.from_numpy(pieces.ids)[None].to(self.model.get_input_embeddings().weight.device)
        with evaluating(self.model):
            found = self.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=max_new_tokens if room is None else min(max_new_tokens, room - len(pieces.ids)),
                pad_token_id=self.tokenizer.eos_token_id if pad is None else pad,
            )
        answer = str(self.tokenizer.decode(found[0, ids.shape[1] :], skip_special_tokens=True))
        if not answer.strip():
            raise InputError("the model answered with nothing but special tokens; give the generation yourself")
        return answer

    def _result(self, example: Example, hops: int, weights: Sequence[float] | np.ndarray | None) -> TraceResult:
        attribution = trace(
            example,
            self.model,
            hops=hops,
            through=self.recursion_span,
            start=self.start,
            settings=self.settings,
            weights=weights,
        )
        return TraceResult(example, attribution)
