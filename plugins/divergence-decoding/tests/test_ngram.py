"""Trigram auxiliaries: the brief's small corpus, brute force, caches and alignment."""

from __future__ import annotations

import pytest
import torch
from icml26.errors import InputError
from icml26_plugin_divergence_decoding.ngram import NGramModel

A, B, C, D, Z = range(5)
CORPUS = [A, B, C, A, B, D]


def at(model: NGramModel, u: int, v: int) -> torch.Tensor:
    return model.scores(torch.tensor([u]), torch.tensor([v]))[0]


def test_known_answers() -> None:
    model = NGramModel.count([CORPUS], 5)
    assert at(model, A, B)[C] == 0.5
    unigrams = torch.tensor([2, 2, 1, 1, 0]) / 6
    torch.testing.assert_close(at(model, Z, Z), 0.4**2 * unigrams)
    torch.testing.assert_close(at(model, Z, B)[C], torch.tensor(0.4 * 0.5))
    for u, v in ((A, B), (B, C), (C, A)):
        assert at(model, u, v).sum() >= 1


def brute_force(corpus: list[list[int]], size: int, u: int, v: int, w: int) -> float:
    def count(*gram: int) -> int:
        n = len(gram)
        return sum(tuple(s[i : i + n]) == gram for s in corpus for i in range(len(s) - n + 1))

    def continued(*gram: int) -> int:
        return sum(count(*gram, x) for x in range(size))

    if count(u, v, w):
        return count(u, v, w) / continued(u, v)
    if count(v, w):
        return 0.4 * count(v, w) / continued(v)
    return 0.4**2 * count(w) / sum(map(len, corpus))


def test_every_score_is_that_of_brute_force() -> None:
    generator = torch.Generator().manual_seed(0)
    corpus = [torch.randint(0, 5, (n,), generator=generator).tolist() for n in (1, 2, 7, 30)]
    model = NGramModel.count(corpus, 5)
    u, v = (grid.reshape(-1) for grid in torch.meshgrid(torch.arange(5), torch.arange(5), indexing="ij"))
    scores = model.scores(u, v)
    expected = [
        [brute_force(corpus, 5, a, b, w) for w in range(5)] for a, b in zip(u.tolist(), v.tolist(), strict=True)
    ]
    torch.testing.assert_close(scores, torch.tensor(expected))


def test_a_sequence_at_once_and_token_by_token_are_the_same() -> None:
    model = NGramModel.count([CORPUS, [D, C, B, A]], 5)
    ids = torch.tensor([[A, B, C, A, B], [B, C, A, B, D]])
    whole = model(ids).logits
    torch.testing.assert_close(whole[0, 1], at(model, A, B))  # the token after position 1 follows (0, 1)
    cache = None
    for t in range(5):
        step = model(ids[:, t : t + 1], cache=cache, use_cache=True)
        cache = step.cache
        assert torch.equal(step.logits[:, 0], whole[:, t])
    cache.reorder_cache(torch.tensor([1, 0]))
    swapped = model(torch.tensor([[A], [A]]), cache=cache).logits[:, 0]
    torch.testing.assert_close(swapped, torch.stack([at(model, D, A), at(model, B, A)]))


def test_padding_is_no_context() -> None:
    model = NGramModel.count([CORPUS], 5)
    padded = model(torch.tensor([[A, A, B, C]]), attention_mask=torch.tensor([[0, 0, 1, 1]])).logits
    alone = model(torch.tensor([[B, C]])).logits
    assert torch.equal(padded[:, 2:], alone)


def test_wrong_ids_and_empty_corpora_are_refused() -> None:
    with pytest.raises(InputError, match="at least one token"):
        NGramModel.count([], 5)
    with pytest.raises(InputError, match="outside"):
        NGramModel.count([[5]], 5)


def test_a_cache_follows_reordered_rows() -> None:
    """Beams change places between steps: what comes next is said of the row that took the place."""
    model = NGramModel.count([CORPUS], 5)
    cache = model(torch.tensor([[A], [Z]]), use_cache=True).cache
    cache.reorder_cache(torch.tensor([1, 0]))
    found = model(torch.tensor([[B], [B]]), cache=cache).logits[:, -1]
    assert torch.equal(found, model.scores(torch.tensor([Z, A]), torch.tensor([B, B])))
    assert not torch.equal(found[0], found[1])
