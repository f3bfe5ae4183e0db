"""Prompts whose answer's origin is known: chains of variables, and key-value sentences in a haystack.

After RULER's variable tracking and needle tasks. Everything is drawn from the given generator; the generation is given
(teacher forcing), so that no sampling is needed.
"""

from __future__ import annotations

from itertools import pairwise
from string import ascii_uppercase

import numpy as np

from icml26_plugin_flashtrace.encoding import Chars, MarkedText

_PLACES = ("the harbour", "the old mill", "the north gate", "the market", "the library", "the river", "the station")
_EVENTS = (
    "was quiet that morning",
    "closed before noon",
    "had been painted last year",
    "is known for its clock",
    "lies behind the hill",
    "opened again in spring",
)
_ADJECTIVES = (
    "amber",
    "brave",
    "calm",
    "dusty",
    "eager",
    "faint",
    "gentle",
    "hollow",
    "ivory",
    "jolly",
    "keen",
    "lucid",
)
_NOUNS = (
    "anchor",
    "basket",
    "candle",
    "drum",
    "engine",
    "feather",
    "garden",
    "hammer",
    "island",
    "jacket",
    "kettle",
    "lamp",
)


def variable_tracking(
    rng: np.random.Generator, index: int, *, hops: int = 3, distractor_chains: int = 2, noise_sentences: int = 5
) -> MarkedText:
    """One prompt of ``distractor_chains + 1`` chains of ``hops`` statements each; gold are the queried chain's statements.

    The reasoning walks the chain from the queried variable back to the number; the answer is the number.
    """
    chains = distractor_chains + 1
    names = _names(rng, chains * hops)
    values = rng.choice(np.arange(10_000, 100_000), size=chains, replace=False)
    lines = [_chain(names[c * hops : (c + 1) * hops], int(values[c])) for c in range(chains)]
    statements = [(c, line) for c, chain in enumerate(lines) for line in chain]
    ordered = _shuffled(rng, [c for c, _ in statements], lines)
    noise = [(-1, _filler(rng)) for _ in range(noise_sentences)]
    sentences = _inserted(rng, ordered, noise)
    asked = names[hops - 1]
    prompt, gold = _joined(sentences, {0})
    prompt += f"\nQuestion: what is the value of VAR {asked}?\nAnswer:"
    walked = [f" {line}" for line in reversed(lines[0])]
    reasoning = "".join(walked) + " So the value is"
    answer = f" {values[0]}"
    return MarkedText(
        id=f"vartrack-{index}",
        prompt=prompt,
        target=reasoning + answer,
        output_chars=(len(reasoning), len(reasoning) + len(answer)),
        reasoning_chars=(0, len(reasoning)),
        gold_chars=tuple(gold),
    )


def needles(
    rng: np.random.Generator, index: int, *, pairs: int = 6, asked: int = 2, noise_sentences: int = 6
) -> MarkedText:
    """One prompt of ``pairs`` key-value sentences among noise, ``asked`` of which are queried; gold are their sentences."""
    keys = _keys(rng, pairs)
    values = rng.choice(np.arange(10_000, 100_000), size=pairs, replace=False)
    lines = [
        (k, f"The special number for {key} is {value}.")
        for k, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    chosen = [int(k) for k in rng.choice(pairs, size=asked, replace=False)]
    sentences = _inserted(rng, lines, [(-1, _filler(rng)) for _ in range(noise_sentences)])
    prompt, gold = _joined(sentences, set(chosen))
    wanted = " and ".join(keys[k] for k in chosen)
    prompt += f"\nQuestion: what are the special numbers for {wanted}?\nAnswer:"
    found = [f" The special number for {keys[k]} is {values[k]}." for k in chosen]
    reasoning = "".join(found) + " So the numbers are"
    answer = " " + ", ".join(str(values[k]) for k in chosen)
    return MarkedText(
        id=f"niah-{index}",
        prompt=prompt,
        target=reasoning + answer,
        output_chars=(len(reasoning), len(reasoning) + len(answer)),
        reasoning_chars=(0, len(reasoning)),
        gold_chars=tuple(gold),
    )


def without_reasoning(text: MarkedText) -> MarkedText:
    """The same question answered at once: what the reasoning absorbs is seen by comparing the two."""
    assert text.output_chars is not None
    a, b = text.output_chars
    return MarkedText(
        id=text.id.replace("vartrack", "absorb"),
        prompt=text.prompt,
        target=text.target[a:b],
        output_chars=(0, b - a),
        gold_chars=text.gold_chars,
    )


def _names(rng: np.random.Generator, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choice(list(ascii_uppercase), size=4))] = None
    return list(found)


def _keys(rng: np.random.Generator, count: int) -> list[str]:
    pairs = rng.choice(len(_ADJECTIVES) * len(_NOUNS), size=count, replace=False)
    return [f"{_ADJECTIVES[p // len(_NOUNS)]} {_NOUNS[p % len(_NOUNS)]}" for p in pairs]


def _chain(names: list[str], value: int) -> list[str]:
    lines = [f"VAR {names[0]} = {value}."]
    return lines + [f"VAR {later} = VAR {before}." for before, later in pairwise(names)]


def _shuffled(rng: np.random.Generator, owners: list[int], lines: list[list[str]]) -> list[tuple[int, str]]:
    """The statements of all chains in a random order that keeps the order inside each chain."""
    order = rng.permutation(owners)
    waiting = [iter(chain) for chain in lines]
    return [(int(c), next(waiting[c])) for c in order]


def _inserted(
    rng: np.random.Generator, sentences: list[tuple[int, str]], noise: list[tuple[int, str]]
) -> list[tuple[int, str]]:
    """Noise at random places among the sentences, whose order stays."""
    slots = rng.permutation(len(sentences) + len(noise))[: len(noise)]
    is_noise = np.isin(np.arange(len(sentences) + len(noise)), slots)
    real, other = iter(sentences), iter(noise)
    return [next(other) if noisy else next(real) for noisy in is_noise]


def _filler(rng: np.random.Generator) -> str:
    place = _PLACES[rng.integers(len(_PLACES))]
    return f"{place.capitalize()} {_EVENTS[rng.integers(len(_EVENTS))]}."


def _joined(sentences: list[tuple[int, str]], gold: set[int]) -> tuple[str, list[Chars]]:
    """The sentences with spaces between them, and the character ranges of those whose owner is gold."""
    text, marked = "", []
    for owner, sentence in sentences:
        if text:
            text += " "
        if owner in gold:
            marked.append((len(text), len(text) + len(sentence)))
        text += sentence
    return text, marked
