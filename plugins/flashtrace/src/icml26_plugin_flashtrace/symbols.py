"""The symbolic twin of variable tracking: one token a name, so that a tiny language model learns it within minutes.

A statement is ``a = 7 ;`` or ``b = a ;``. A prompt holds chains of statements, shuffled but in order inside each chain, noise,
and the question ``? c :``. The generation walks back, ``c = b ; b = a ; a = 7 ;``, and then answers ``7``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from string import ascii_lowercase
from typing import Any

import numpy as np

PAD, EOS = "<pad>", "<eos>"
NAMES = tuple(ascii_lowercase)
VALUES = tuple(str(k) for k in range(20))
MARKS = ("=", ";", "?", ":")
NOISE = tuple(f"#{k}" for k in range(12))
#: 64 symbols; a token's id is its place here.
VOCABULARY = (PAD, EOS, *NAMES, *VALUES, *MARKS, *NOISE)
_ID = {symbol: k for k, symbol in enumerate(VOCABULARY)}


@dataclass(frozen=True)
class Grammar:
    """``chains`` chains of ``hops`` statements, and ``noise`` statements of three meaningless tokens."""

    hops: int = 3
    chains: int = 4
    noise: int = 2

    @property
    def n_prompt(self) -> int:
        """P, the tokens of a prompt."""
        return 4 * self.hops * self.chains + 4 * self.noise + 3

    @property
    def n_reasoning(self) -> int:
        """The tokens of the walk back."""
        return 4 * self.hops

    @property
    def n_tokens(self) -> int:
        """N, without the final EOS."""
        return self.n_prompt + self.n_reasoning + 1

    @cached_property
    def template(self) -> np.ndarray:
        """(slots, 4) ids of the statements with 0 where a name, value or noise token goes."""
        rows = np.zeros((self.hops * self.chains + self.noise, 4), dtype=np.int64)
        rows[: self.hops * self.chains, 1] = _ID["="]
        rows[:, 3] = _ID[";"]
        return rows


@dataclass(frozen=True)
class SymbolBatch:
    """B sequences: ``ids`` (B, N) and ``gold`` (B, P) bool, the tokens of the queried chain's statements."""

    ids: np.ndarray
    gold: np.ndarray


def draw(rng: np.random.Generator, grammar: Grammar, size: int) -> SymbolBatch:
    """``size`` independent sequences, drawn at once."""
    h, c, w = grammar.hops, grammar.chains, grammar.noise
    names = _choices(rng, size, len(NAMES), h * c).reshape(size, c, h) + _ID["a"]
    values = _choices(rng, size, len(VALUES), c) + _ID["0"]
    rows = np.tile(grammar.template, (size, 1, 1))
    chains = rows[:, : h * c].reshape(size, c, h, 4)
    chains[..., 0] = names
    chains[:, :, 0, 2] = values
    chains[:, :, 1:, 2] = names[:, :, :-1]
    rows[:, : h * c] = chains.reshape(size, h * c, 4)
    rows[:, h * c :, :3] = rng.integers(len(NOISE), size=(size, w, 3)) + _ID["#0"]

    # Random keys, sorted inside each chain, give every interleaving that keeps a chain's order.
    keys = rng.random((size, h * c + w))
    keys[:, : h * c] = np.sort(keys[:, : h * c].reshape(size, c, h), axis=2).reshape(size, h * c)
    order = np.argsort(keys, axis=1)
    owner = np.concatenate([np.repeat(np.arange(c), h), np.full(w, -1)])
    shuffled = np.take_along_axis(rows, order[..., None], axis=1)
    asked = names[:, 0, -1]
    question = np.stack([np.full(size, _ID["?"]), asked, np.full(size, _ID[":"])], axis=1)
    walk = chains[:, 0, ::-1].reshape(size, 4 * h)
    ids = np.concatenate([shuffled.reshape(size, -1), question, walk, values[:, :1]], axis=1)
    gold = np.repeat(owner[order] == 0, 4, axis=1)
    return SymbolBatch(ids, np.concatenate([gold, np.zeros((size, 3), dtype=bool)], axis=1))


def symbol_tokenizer() -> Any:
    """A fast ``transformers`` tokenizer of the 64 symbols, separated by white space."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel(dict(_ID), unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=PAD)


def texts_of(ids: np.ndarray) -> tuple[str, ...]:
    """The symbols of ids (N,), each but the first with the space before it."""
    return tuple((" " if k else "") + VOCABULARY[int(i)] for k, i in enumerate(ids))


def _choices(rng: np.random.Generator, size: int, n: int, k: int) -> np.ndarray:
    """(size, k) draws of k different numbers below n."""
    return np.argsort(rng.random((size, n)), axis=1)[:, :k]
