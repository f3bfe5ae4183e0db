"""The released package ``flashtrace`` (0.1.1) beside ours, on one tiny Llama: scores and processor time.

``pip install --no-deps flashtrace``; it is only called through its documented interface. Both are given the same prompt and
generation, word by word. The package's method ``flashtrace`` gives the same scores whatever the answer's span is: its hop 0
explains everything that hops pass through, which is our ``start="recursion-span"``; its ``ifr-span`` explains the span.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from icml26_plugin_flashtrace import FlashTrace


def word_tokenizer(words: int) -> Any:
    """A fast tokenizer of ``words`` words between spaces that belong to the word after them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2} | {f"Ġw{k}": k + 3 for k in range(words)}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    split = pre_tokenizers.Split(" ", behavior="merged_with_next")
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def timed(work: Callable[[], Any], repeats: int = 5) -> tuple[float, Any]:
    """Least processor time, and the result."""
    found, result = [], None
    for _ in range(repeats):
        begun = time.process_time()
        result = work()
        found.append(time.process_time() - begun)
    return min(found), result


def compare(package: Any, model: Any, n_prompt: int = 384, n_generated: int = 128) -> None:
    """Print both, for the last 16 generated tokens."""
    tokenizer = word_tokenizer(200)
    rng = np.random.default_rng(0)
    text = ["".join(f" w{k}" for k in rng.integers(0, 200, size=n)) for n in (n_prompt, n_generated)]
    model.set_attn_implementation("eager")
    span, reasoning = (n_generated - 16, n_generated - 1), (0, n_generated - 17)
    theirs = package.FlashTrace(model, tokenizer)
    calls: list[tuple[str, dict[str, Any], dict[str, Any], int]] = [
        ("ifr-span, K = 0", {"method": "ifr-span"}, {}, 0),
        *((f"flashtrace, K = {k}, answer's span", {}, {}, k) for k in (1, 3)),
        *(
            (f"flashtrace, K = {k}, hop 0 from everything generated", {}, {"start": "recursion-span"}, k)
            for k in (0, 1, 3)
        ),
    ]
    for label, their_options, our_options, hops in calls:
        ours = FlashTrace(model, tokenizer, **our_options)
        place = {"output_span": span, "reasoning_span": reasoning, "hops": hops}
        own, mine = timed(lambda o=ours, s=place: o.attribute(*text, **s))
        other, peer = timed(lambda s=place, t=their_options: theirs.trace(prompt=text[0], target=text[1], **s, **t))
        gap = np.abs(np.asarray(peer.scores, dtype=np.float64) - mine.scores).max()
        print(
            f"{label}: ours {own:.4f} s, flashtrace {other:.4f} s ({own / other:.2f} ×), largest difference {gap:.1e}"
        )
