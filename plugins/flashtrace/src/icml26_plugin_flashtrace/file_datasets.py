"""The user's own texts: rows with marked spans, RULER's files, and a plain prompt with or without its generation."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from icml26 import InputError, Problem, RunContext
from pydantic import Field

from icml26_plugin_flashtrace.encoding import Chars, MarkedText
from icml26_plugin_flashtrace.problem import ModelConfig, TokenDataset, text_problem
from icml26_plugin_flashtrace.spans import Regex, as_chars_or_tokens
from icml26_plugin_flashtrace.task import Inputs, Truth

_MAX_BYTES = 2 << 30
_GOLD = "gold_char_spans"


class JsonLines(TokenDataset):
    """Rows ``{prompt, target, output_span | output_chars | output_regex, reasoning_…, gold_char_spans}``, one a line.

    ``_span``: inclusive generated tokens, ``_chars``: half-open characters of the target, ``_regex``: the last match.
    """

    class Config(ModelConfig):
        """The file, and the model that reads its texts."""

        path: str = Field(description="A .jsonl file, one JSON object a line, UTF-8.")
        format: Literal["rows", "ruler"] = Field(
            "rows",
            description="rows: as documented; ruler: what NVIDIA's RULER writes (input, outputs, answer_prefix).",
        )
        gold: bool = Field(True, description="The rows say which characters of the prompt are the evidence.")
        max_examples: int | None = Field(None, ge=1, description="Use only the first rows.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Read and check all rows, then open the model."""
        c = self.config
        convert = marked_row if c.format == "rows" else ruler_row
        texts: list[MarkedText] = []
        for number, row in read_rows(Path(c.path)):
            if c.max_examples is not None and len(texts) >= c.max_examples:
                break
            try:
                text = convert(row, f"row {number}")
            except InputError as error:
                raise InputError(f"{c.path}, line {number}: {error}") from error
            texts.append(text if c.gold else _without_gold(text))
        if not texts:
            raise InputError(f"{c.path} holds no row")
        if c.gold and all(text.gold_chars is None for text in texts):
            raise InputError(f"{c.path}: no row has gold_char_spans; set dataset.gold=false to do without")
        model, tokenizer = c.open_model(ctx)
        return text_problem(texts, model, tokenizer, c, {})


class TextFile(TokenDataset):
    """One prompt in a text file, and the generation in another one, or by the model itself (greedily)."""

    class Config(ModelConfig):
        """The files, the model, and which part of the generation is to be explained."""

        path: str = Field(description="The prompt: a text file, UTF-8.")
        generation_path: str | None = Field(
            None, description="What the model answered: a text file; null lets it answer."
        )
        max_new_tokens: int = Field(256, ge=1, description="Tokens to generate at most.")
        output: str | None = Field(
            None, description="Regular expression for the answer in the generation (last match); null: all of it."
        )
        output_group: int = Field(
            0, ge=0, description="Group of the expression that is the answer; 0: the whole match."
        )
        reasoning_before: bool = Field(True, description="What is generated before the answer is its reasoning.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Read the files, open the model, let it answer where nothing is given."""
        c = self.config
        prompt = read_text(Path(c.path))
        given = None if c.generation_path is None else read_text(Path(c.generation_path))
        if given is not None:
            self._marked(prompt, given)
        model, tokenizer = c.open_model(ctx)
        generation = self._generated(prompt, model, tokenizer) if given is None else given
        info = {"generation": generation[:2000]} if given is None else {}
        return text_problem([self._marked(prompt, generation)], model, tokenizer, c, info)

    def _generated(self, prompt: str, model: Any, tokenizer: Any) -> str:
        from icml26_plugin_flashtrace.api import FlashTrace

        tracer = FlashTrace(model, tokenizer, chat_template=self.config.chat_template)
        return tracer.generate(prompt, self.config.max_new_tokens)

    def _marked(self, prompt: str, generation: str) -> MarkedText:
        c = self.config
        output: Chars | None = None
        if c.output is not None:
            pattern = Regex(c.output, group=c.output_group)
            output, _ = as_chars_or_tokens(pattern, generation, "output")
        begin = len(generation[: output[0]].rstrip()) if output is not None else 0
        reasoning = (0, begin) if c.reasoning_before and begin > 0 else None
        return MarkedText(Path(c.path).name, prompt, generation, output, reasoning)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file; InputError naming the file when it is none or is empty."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"{path} is a pipe or a device: reading might wait for ever; save it as a file")
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path} is larger than {_MAX_BYTES >> 30} GiB")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder, not a file") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not text.strip():
        raise InputError(f"{path} is empty")
    return text


def read_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line number (from 1) and object of each line that is not blank; InputError naming file and line."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: no JSON ({error})") from error
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number}: a JSON object is expected, not {type(row).__name__}")
        yield number, row


def marked_row(row: Mapping[str, Any], default_id: str) -> MarkedText:
    """A row in our format; InputError naming the field."""
    known = (
        "output_chars",
        "output_span",
        "output_regex",
        "reasoning_chars",
        "reasoning_span",
        "reasoning_regex",
        _GOLD,
    )
    for name in row:
        if name not in known and name.startswith(("output", "reasoning", "gold")):
            raise InputError(f"there is no field {name!r}; fields that mark something: {', '.join(known)}")
    target = _text(row, "target")
    gold = row.get(_GOLD)
    if gold is not None and not isinstance(gold, list):
        raise InputError(f"{_GOLD} is {gold!r}, not a list of [first, last + 1]")
    return MarkedText(
        id=str(row.get("id", default_id)),
        prompt=_text(row, "prompt"),
        target=target,
        output_chars=_chars(row, "output", target),
        reasoning_chars=_chars(row, "reasoning", target),
        gold_chars=None if gold is None else tuple(_as_pair(pair, _GOLD) for pair in gold),
        output_span=_pair(row, "output_span"),
        reasoning_span=_pair(row, "reasoning_span"),
    )


def ruler_row(row: Mapping[str, Any], default_id: str) -> MarkedText:
    """A row of RULER's JSONL: the answers are given, gold are the sentences of the input that hold one of them."""
    prompt = _text(row, "input")
    outputs = row.get("outputs")
    if not isinstance(outputs, list) or not outputs or not all(isinstance(x, str) and x.strip() for x in outputs):
        raise InputError(f"outputs is {outputs!r}, not a list of texts")
    prefix = row.get("answer_prefix") or ""
    if not isinstance(prefix, str):
        raise InputError(f"answer_prefix is {prefix!r}, not a text")
    words = [re.compile(rf"(?<!\w){re.escape(output)}(?!\w)") for output in outputs]
    gold = [(a, b) for a, b in sentences(prompt) if any(word.search(prompt, a, b) for word in words)]
    target = " " + ", ".join(outputs)
    return MarkedText(
        id=str(row.get("index", default_id)),
        prompt=prompt + prefix,
        target=target,
        output_chars=(0, len(target)),
        gold_chars=tuple(gold),
    )


def sentences(text: str) -> Iterator[Chars]:
    """Character ranges of the sentences of a text: up to . ! ? before white space, or a line break; without the white space."""
    for match in re.finditer(r"\S(?:[^\n]*?(?:[.!?](?=\s|$)|(?=\n)|$))", text):
        yield match.span()


def _without_gold(text: MarkedText) -> MarkedText:
    return dataclasses.replace(text, gold_chars=None)


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise InputError(f"{name} is {'missing' if value is None else repr(value)}, a text is expected")
    if any("\ud800" <= c <= "\udfff" for c in value):
        raise InputError(f"{name} holds half of a surrogate pair, which is no character")
    return value


def _pair(row: Mapping[str, Any], name: str) -> tuple[int, int] | None:
    value = row.get(name)
    return None if value is None else _as_pair(value, name)


def _chars(row: Mapping[str, Any], name: str, target: str) -> Chars | None:
    """Characters that a row marks by their numbers, or by a pattern whose last match (its first group, if it has one) it is."""
    given, pattern = _pair(row, f"{name}_chars"), row.get(f"{name}_regex")
    if pattern is None:
        return given
    if given is not None:
        raise InputError(f"{name}_chars and {name}_regex are both given: give one")
    if not isinstance(pattern, str):
        raise InputError(f"{name}_regex is {pattern!r}, a text is expected")
    try:
        group = 1 if re.compile(pattern).groups else 0
    except re.error as error:
        raise InputError(f"{name}_regex {pattern!r} is no regular expression: {error}") from error
    return as_chars_or_tokens(Regex(pattern, group=group), target, name)[0]


def _as_pair(value: Any, name: str) -> tuple[int, int]:
    whole = isinstance(value, list) and len(value) == 2 and all(type(x) is int for x in value)
    if not whole:
        raise InputError(f"{name} holds {value!r}, two whole numbers are expected")
    return int(value[0]), int(value[1])
