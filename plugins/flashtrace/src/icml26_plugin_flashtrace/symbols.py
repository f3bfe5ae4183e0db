"""The symbolic twin of variable tracking: one token a name, so that a tiny language model learns it within minutes.

A statement gives a name a value, ``a 7 ;``, or that of another name, ``b a ;``. A prompt holds chains of statements, shuffled
but in order inside each chain, noise, and the question ``? c :``. The generation walks back, ``c b ; b a ; a 7 ;``, and then
answers ``= 7``.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    """``chains`` chains of ``hops`` statements, and ``noise`` statements of two meaningless tokens."""

    hops: int = 3
    chains: int = 4
    noise: int = 2

    @property
    def n_prompt(self) -> int:
        """P, the tokens of a prompt."""
        return 3 * self.hops * self.chains + 3 * self.noise + 3

    @property
    def n_reasoning(self) -> int:
        """The tokens of the walk back and the equals sign."""
        return 3 * self.hops + 1

    @property
    def n_tokens(self) -> int:
        """N, without the final EOS."""
        return self.n_prompt + self.n_reasoning + 1

    @property
    def names(self) -> int:
        """The names of a prompt, each of which has one statement."""
        return self.hops * self.chains

    @property
    def n_lesson(self) -> int:
        """The tokens of a training sequence that asks for every chain."""
        return self.n_prompt - 3 + self.chains * (4 + self.n_reasoning)


@dataclass(frozen=True)
class SymbolBatch:
    """B sequences: ``ids`` (B, N) and ``gold`` (B, P) bool, the tokens of the queried chain's statements."""

    ids: np.ndarray
    gold: np.ndarray


@dataclass(frozen=True)
class Statements:
    """B shuffled lists of statements: ``rows`` (B, slots, 3) ids, ``owner`` (B, slots) the chain of each (-1: noise), and
    the ``chains`` (B, chains, hops, 3) in their own order."""

    rows: np.ndarray
    owner: np.ndarray
    chains: np.ndarray


def draw(rng: np.random.Generator, grammar: Grammar, size: int) -> SymbolBatch:
    """``size`` independent sequences, drawn at once; the first chain is asked for."""
    drawn = _statements(rng, grammar, size)
    ids = np.concatenate([drawn.rows.reshape(size, -1), _answered(drawn.chains[:, 0])], axis=1)
    gold = np.repeat(drawn.owner == 0, 3, axis=1)
    return SymbolBatch(ids, np.concatenate([gold, np.zeros((size, 3), dtype=bool)], axis=1))


def draw_lessons(rng: np.random.Generator, grammar: Grammar, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences (B, L) in which every chain is asked for in turn, and which tokens (B, L) are to be learnt.

    The questions themselves are not: they cannot be foreseen.
    """
    drawn = _statements(rng, grammar, size)
    blocks = [_answered(drawn.chains[:, c]) for c in range(grammar.chains)]
    ids = np.concatenate([drawn.rows.reshape(size, -1), *blocks], axis=1)
    learnt = np.tile(np.arange(blocks[0].shape[1]) >= 3, grammar.chains)
    before = np.zeros(ids.shape[1] - len(learnt), dtype=bool)
    return ids, np.tile(np.concatenate([before, learnt]), (size, 1))


def draw_recall(rng: np.random.Generator, grammar: Grammar, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Statements, then every name's statement again in a random order; ids (B, L) and which tokens (B, L) are to be learnt.

    Those are what each name was given, which is to be looked up; which name comes next cannot be foreseen.
    """
    drawn = _statements(rng, grammar, size)
    said = drawn.rows.reshape(size, -1)
    order = np.argsort(rng.random((size, grammar.names)), axis=1)
    again = np.take_along_axis(drawn.chains.reshape(size, -1, 3), order[..., None], axis=1).reshape(size, -1)
    learnt = np.concatenate([np.zeros(said.shape[1], dtype=bool), np.tile([False, True, False], grammar.names)])
    return np.concatenate([said, again], axis=1), np.tile(learnt, (size, 1))


def _statements(rng: np.random.Generator, grammar: Grammar, size: int) -> Statements:
    h, c, w = grammar.hops, grammar.chains, grammar.noise
    names = _choices(rng, size, len(NAMES), h * c).reshape(size, c, h) + _ID["a"]
    chains = np.empty((size, c, h, 3), dtype=np.int64)
    chains[..., 0] = names
    chains[:, :, 0, 1] = _choices(rng, size, len(VALUES), c) + _ID["0"]
    chains[:, :, 1:, 1] = names[:, :, :-1]
    chains[..., 2] = _ID[";"]
    noise = rng.integers(len(NOISE), size=(size, w, 3)) + _ID["#0"]
    noise[..., 2] = _ID[";"]
    rows = np.concatenate([chains.reshape(size, h * c, 3), noise], axis=1)

    # Random keys, sorted inside each chain, give every interleaving that keeps a chain's order.
    keys = rng.random((size, h * c + w))
    keys[:, : h * c] = np.sort(keys[:, : h * c].reshape(size, c, h), axis=2).reshape(size, h * c)
    order = np.argsort(keys, axis=1)
    owner = np.concatenate([np.repeat(np.arange(c), h), np.full(w, -1)])
    return Statements(np.take_along_axis(rows, order[..., None], axis=1), owner[order], chains)


def _answered(chain: np.ndarray) -> np.ndarray:
    """Question, walk back and answer (B, 3 + 3 hops + 2) of chains (B, hops, 3)."""
    size = len(chain)
    ask, then, equals = (np.full((size, 1), _ID[mark]) for mark in ("?", ":", "="))
    walk = chain[:, ::-1].reshape(size, -1)
    return np.concatenate([ask, chain[:, -1, :1], then, walk, equals, chain[:, 0, 1:2]], axis=1)


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
