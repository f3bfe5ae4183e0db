"""Trigram auxiliaries with stupid back-off: counts in place of a network.

Scores are probabilities, not logs: S(w | u, v) = c(uvw) / c(uv) where uvw was seen, else 0.4 S(w | v); S(w | v) =
c(vw) / c(v) where vw was seen, else 0.4 c(w) / N. Only what was seen is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from icml26.errors import InputError
from torch import nn

from icml26_plugin_divergence_decoding.calling import LMOutput

UNKNOWN = -1
BACKOFF = 0.4


class NGramCache:
    """The last token (B,) of each row, -1 where there is none: all that a trigram must know of the past."""

    def __init__(self, last: torch.Tensor) -> None:
        self.last = last

    def reorder_cache(self, rows: torch.Tensor) -> None:
        """Take over the pasts of ``rows``."""
        self.last = self.last.index_select(0, rows)


class NGramModel(nn.Module):
    """A trigram model with the call signature of a causal language model; its "logits" are back-off scores."""

    def __init__(self, vocab_size: int, tables: dict[str, torch.Tensor], backoff: float = BACKOFF) -> None:
        super().__init__()
        self.vocab_size, self.backoff = vocab_size, backoff
        for name, table in tables.items():
            self.register_buffer(name, table)

    @classmethod
    def count(cls, sequences: Iterable[Sequence[int]], vocab_size: int, backoff: float = BACKOFF) -> NGramModel:
        """Count token sequences; InputError when there is none or an id is outside of the vocabulary."""
        arrays = [np.asarray(s, dtype=np.int64) for s in sequences]
        everything = np.concatenate(arrays) if arrays else np.empty(0, np.int64)
        if not everything.size:
            raise InputError("An n-gram model needs at least one token to count.")
        if everything.min() < 0 or everything.max() >= vocab_size:
            raise InputError(f"A token id lies outside of the vocabulary of {vocab_size} tokens.")
        unigrams = np.bincount(everything, minlength=vocab_size) / everything.size
        pairs = np.concatenate([np.stack([a[:-1], a[1:]], 1) for a in arrays])
        triples = np.concatenate(
            [np.stack([a[:-2] * vocab_size + a[1:-1], a[2:]], 1) for a in arrays if len(a) > 2] or [pairs[:0]]
        )
        tables = {"unigrams": torch.from_numpy(unigrams.astype(np.float32))}
        for name, rows in (("bigram", pairs), ("trigram", triples)):
            tables |= {f"{name}_{part}": table for part, table in _table(rows).items()}
        return cls(vocab_size, tables, backoff)

    def scores(self, before: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """S (N, V) float32 of what follows tokens ``before``, ``last`` (N,); -1 stands for no token."""
        before, last = (ids.long().masked_fill(ids >= self.vocab_size, UNKNOWN) for ids in (before, last))
        rows = self.backoff**2 * self.unigrams.expand(len(last), -1)
        rows = rows.clone()
        pair = torch.where((before >= 0) & (last >= 0), before * self.vocab_size + last, UNKNOWN)
        self._fill(rows, "bigram", last, self.backoff)
        self._fill(rows, "trigram", pair, 1.0)
        return rows

    def _fill(self, rows: torch.Tensor, name: str, contexts: torch.Tensor, factor: float) -> None:
        """Overwrite in ``rows`` the scores of tokens that were seen after ``contexts``."""
        keys, starts = getattr(self, f"{name}_keys"), getattr(self, f"{name}_starts")
        if not len(keys):
            return
        at = torch.searchsorted(keys, contexts.contiguous()).clamp(max=len(keys) - 1)
        found = torch.nonzero(keys[at] == contexts).squeeze(1)
        at = at[found]
        lengths = starts[at + 1] - starts[at]
        row = found.repeat_interleave(lengths)
        first = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        entry = starts[at].repeat_interleave(lengths) + torch.arange(len(row), device=row.device) - first
        rows[row, getattr(self, f"{name}_tokens")[entry]] = factor * getattr(self, f"{name}_shares")[entry]

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        cache: NGramCache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        **_: Any,
    ) -> LMOutput:
        """Scores (B, T, V) of the token after each of ``input_ids`` (B, T): at t the context is (t - 1, t)."""
        ids = input_ids
        if attention_mask is not None:
            ids = ids.masked_fill(attention_mask[:, -ids.shape[1] :] == 0, UNKNOWN)
        past = ids.new_full((len(ids),), UNKNOWN) if cache is None else cache.last
        before = torch.cat([past[:, None], ids[:, :-1]], dim=1)
        last = ids
        if logits_to_keep:
            before, last = before[:, -logits_to_keep:], last[:, -logits_to_keep:]
        scores = self.scores(before.reshape(-1), last.reshape(-1)).view(*last.shape, self.vocab_size)
        return LMOutput(logits=scores, cache=NGramCache(ids[:, -1]) if use_cache else None)


def check_tables(vocab_size: Any, tables: dict[str, torch.Tensor]) -> None:
    """InputError unless stored tables are whole and fit each other and the vocabulary."""
    parts = ("keys", "starts", "tokens", "shares")
    names = {"unigrams"} | {f"{kind}_{part}" for kind in ("bigram", "trigram") for part in parts}
    fits = isinstance(vocab_size, int) and tables.keys() == names and tables["unigrams"].shape == (vocab_size,)
    for kind in ("bigram", "trigram"):
        if not fits:
            break
        keys, starts, tokens, shares = (tables[f"{kind}_{part}"] for part in parts)
        fits = (
            all(part.ndim == 1 for part in (keys, starts, tokens, shares))
            and len(starts) == len(keys) + 1
            and len(tokens) == len(shares) == int(starts[-1])
            and int(starts[0]) == 0
            and bool((starts.diff() > 0).all() and (keys.diff() > 0).all())
            and bool(((tokens >= 0) & (tokens < vocab_size)).all())
        )
    if not fits:
        raise InputError("The tables of the n-gram model are damaged.")


def scores_are_logits(forget: Any, retain: Any) -> bool:
    """Whether the auxiliaries give logits; False when both are n-gram models. InputError when one is and one is not."""
    counted = [isinstance(model, NGramModel) for model in (forget, retain)]
    if counted[0] != counted[1]:
        raise InputError(
            "One auxiliary is an n-gram model and the other is not: probabilities and logits do not subtract."
        )
    return not counted[0]


def _table(rows: np.ndarray) -> dict[str, torch.Tensor]:
    """(context, token) pairs as sorted ``keys``, ``starts`` into ``tokens``, and the ``shares`` of each token after
    its context.
    """
    unique, counts = np.unique(rows, axis=0, return_counts=True)
    keys, starts, sizes = np.unique(unique[:, 0], return_index=True, return_counts=True)
    totals = np.add.reduceat(counts, starts) if len(starts) else np.empty(0)
    shares = counts / np.repeat(totals, sizes)
    return {
        "keys": torch.from_numpy(keys.astype(np.int64)),
        "starts": torch.from_numpy(np.append(starts, len(unique)).astype(np.int64)),
        "tokens": torch.from_numpy(unique[:, 1].astype(np.int64)),
        "shares": torch.from_numpy(shares.astype(np.float32)),
    }
