"""From texts with marked characters to tokens with marked indices.

Prompt and generation are tokenised apart, as they are when a model really generates, so that no token ever reaches across the
border; marks are mapped by the tokenizer's offsets, never by searching for sub-sequences of ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from icml26 import InputError

from icml26_plugin_flashtrace.arguments import text as text_of
from icml26_plugin_flashtrace.task import Example, Span

Chars = tuple[int, int]

#: Characters of private use, which no template and no prompt has a reason to hold.
_MARK = "\ue000prompt\ue001"


@dataclass(frozen=True)
class MarkedText:
    """A prompt and its generation. Character ranges are half-open; those of the answer and the reasoning count from the
    beginning of ``target``, gold ones from that of ``prompt``.

    The answer is given as ``output_chars`` or, for one known tokenizer, ``output_span`` (inclusive generation tokens);
    neither: the whole target. ``gold_chars`` None: nobody knows.
    """

    id: str
    prompt: str
    target: str
    output_chars: Chars | None = None
    reasoning_chars: Chars | None = None
    gold_chars: tuple[Chars, ...] | None = None
    output_span: Span | None = None
    reasoning_span: Span | None = None


@dataclass(frozen=True)
class Pieces:
    """A tokenised text: ids (N,), offsets (N, 2) in characters or None (slow tokenizers), and the tokens' texts."""

    ids: np.ndarray
    offsets: np.ndarray | None
    texts: tuple[str, ...]


def encode(text: MarkedText, tokenizer: Any, *, chat_template: bool = False) -> tuple[Example, np.ndarray | None]:
    """The example and its gold prompt tokens (P,) bool. Raises InputError naming the example and what is wrong with it."""
    try:
        return _encode(text, tokenizer, chat_template)
    except InputError as error:
        raise InputError(f"example {text.id!r}: {error}") from error


def _encode(text: MarkedText, tokenizer: Any, chat_template: bool) -> tuple[Example, np.ndarray | None]:
    text_of(text.prompt, "prompt")
    text_of(text.target, "generation")
    if not text.prompt.strip():
        raise InputError("the prompt is empty")
    if not text.target.strip():
        raise InputError("the target is empty: there is nothing to explain")
    rendered, start = _rendered(text.prompt, tokenizer) if chat_template else (text.prompt, 0)
    prompt = tokenise(rendered, tokenizer, special=not chat_template)
    target = tokenise(text.target, tokenizer, special=False)
    output = _span(target, text.output_chars, text.output_span, "output", text.target)
    reasoning = _span(target, text.reasoning_chars, text.reasoning_span, "reasoning", text.target)
    n = content_length(target.ids, tokenizer)
    output, reasoning = content_spans(output, reasoning, n, len(target.ids))
    gold = None
    if text.gold_chars is not None:
        gold = np.zeros(len(prompt.ids), dtype=bool)
        for a, b in text.gold_chars:
            _check_chars((a, b), len(text.prompt), "gold", "prompt")
            gold |= tokens_of(prompt, (a + start, b + start))
    example = Example(
        id=text.id,
        tokens=prompt.texts + target.texts[:n],
        input_ids=np.concatenate([prompt.ids, target.ids[:n]]),
        n_prompt=len(prompt.ids),
        output_span=output,
        reasoning_span=reasoning,
    )
    return example, gold


def tokenise(text: str, tokenizer: Any, *, special: bool) -> Pieces:
    """Ids, offsets and texts; ``special`` adds what the tokenizer puts around a text (e.g. a first token), but no final EOS."""
    fast = bool(getattr(tokenizer, "is_fast", False))
    try:
        found = tokenizer(text, add_special_tokens=special, return_offsets_mapping=fast, verbose=False)
    except (TypeError, UnicodeError) as error:
        raise InputError(f"the tokenizer cannot read the text ({error})") from error
    ids = np.asarray(found["input_ids"], dtype=np.int64).reshape(-1)
    offsets = np.asarray(found["offset_mapping"], dtype=np.int64).reshape(-1, 2) if fast else None
    end = getattr(tokenizer, "eos_token_id", None)
    if special and len(ids) > 1 and end is not None and ids[-1] == end and not text.endswith(tokenizer.eos_token):
        ids = ids[:-1]  # some tokenizers close a text; here the generation follows
        offsets = None if offsets is None else offsets[:-1]
    if not len(ids):
        raise InputError("the tokenizer makes no token of the text")
    return Pieces(ids, offsets, _texts(text, ids, offsets, tokenizer))


def tokens_of(pieces: Pieces, chars: Chars) -> np.ndarray:
    """(N,) bool: the tokens that share a character with the half-open range ``chars``."""
    if pieces.offsets is None:
        raise InputError(
            "the tokenizer gives no character offsets (it is a slow one): load the fast one, or give token spans"
        )
    a, b = chars
    begin, end = pieces.offsets[:, 0], pieces.offsets[:, 1]
    return (begin < b) & (end > a) & (end > begin)


def check_spans(output: Span, reasoning: Span | None, n: int) -> None:
    """Raise InputError unless both inclusive spans lie in 0..n-1, forwards, the reasoning before the answer."""
    for name, span in (("output", output), ("reasoning", reasoning)):
        if span is None:
            continue
        lo, hi = span
        if lo > hi:
            raise InputError(f"the {name} span [{lo}, {hi}] is reversed: it is [first, last] token, both inclusive")
        if lo < 0 or hi >= n:
            raise InputError(
                f"the {name} span [{lo}, {hi}] lies outside the generation's tokens 0..{n - 1} "
                "(spans count generated tokens; the prompt has none)"
            )
    if reasoning is not None and reasoning[1] >= output[0]:
        raise InputError(
            f"the reasoning span [{reasoning[0]}, {reasoning[1]}] must end before the output span "
            f"[{output[0]}, {output[1]}] begins"
        )


def content_length(generated: np.ndarray, tokenizer: Any) -> int:
    """How many of the generated ids (G,) come before the end-of-sequence tokens that close them.

    What closes a sequence is no content: nothing before it can read it, and it is never explained. InputError when
    nothing else is there.
    """
    end = getattr(tokenizer, "eos_token_id", None)
    n = len(generated)
    while n > 0 and end is not None and generated[n - 1] == end:
        n -= 1
    if n == 0 and len(generated):
        raise InputError("the generation is nothing but the end of sequence: there is nothing to explain")
    return n


def content_spans(output: Span | None, reasoning: Span | None, n: int, n_generated: int) -> tuple[Span, Span | None]:
    """Checked spans without the closing end-of-sequence tokens n..n_generated-1; an ``output`` of None is all content.

    Raises InputError, also when a span holds nothing but them.
    """
    output = (0, n - 1) if output is None else output
    check_spans(output, reasoning, n_generated)
    for name, span in (("output", output), ("reasoning", reasoning)):
        if span is not None and span[0] >= n:
            raise InputError(f"the {name} span [{span[0]}, {span[1]}] is nothing but the end of sequence")
    cut = None if reasoning is None else (reasoning[0], min(reasoning[1], n - 1))
    return (output[0], min(output[1], n - 1)), cut


def _span(pieces: Pieces, chars: Chars | None, span: Span | None, name: str, text: str) -> Span | None:
    if chars is None:
        return span
    if span is not None:
        raise InputError(f"the {name} is given both in characters and in tokens: give one")
    _check_chars(chars, len(text), name, "target")
    inside = np.flatnonzero(tokens_of(pieces, chars))
    if not len(inside):
        raise InputError(f"the {name} characters {list(chars)} hold no token")
    return int(inside[0]), int(inside[-1])


def _check_chars(chars: Chars, length: int, name: str, where: str) -> None:
    a, b = chars
    if not 0 <= a < b <= length:
        raise InputError(
            f"the {name} characters [{a}, {b}] do not lie in the {where}, which has {length} characters "
            "(half-open: [first, last + 1])"
        )


def rendered_prompt(prompt: str, tokenizer: Any) -> str:
    """The prompt as a user's message in the tokenizer's chat template, ready for the answer; InputError when it cannot be."""
    from jinja2 import TemplateError

    if not getattr(tokenizer, "chat_template", None):
        raise InputError("the tokenizer has no chat template: set chat_template=false")
    messages = [{"role": "user", "content": prompt}]
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except (TemplateError, TypeError, ValueError) as error:
        raise InputError(f"the tokenizer's chat template fails on the prompt ({error}): switch it off") from error


def _rendered(prompt: str, tokenizer: Any) -> tuple[str, int]:
    """The prompt in the chat template, and where in it the user's text begins.

    The place is that of a mark put through the same template: searching for the prompt itself would find it in a system
    prompt or a role's name, too.
    """
    rendered = rendered_prompt(prompt, tokenizer)
    start = rendered_prompt(_MARK, tokenizer).find(_MARK)
    for text, before in ((prompt, 0), (prompt.strip(), len(prompt) - len(prompt.lstrip()))):
        if start >= 0 and rendered.startswith(text, start):
            return rendered, start - before
        if rendered.count(text) == 1:
            return rendered, rendered.find(text) - before
    raise InputError("the chat template changes the prompt's text, so that marks cannot be placed: switch it off")


def _texts(text: str, ids: np.ndarray, offsets: np.ndarray | None, tokenizer: Any) -> tuple[str, ...]:
    """What each token stands for; a joined string gives the text back where every character has one token."""
    if offsets is None:
        return tuple(tokenizer.decode([int(i)]) for i in ids)
    texts, last = [], 0
    for i, (begin, end) in zip(ids, offsets, strict=True):
        # A character of several tokens belongs to the first; the others show what they decode to, usually U+FFFD.
        piece = text[last:end] if end > last and end > begin else ""
        texts.append(piece or tokenizer.decode([int(i)]))
        last = max(last, int(end))
    return tuple(texts)
