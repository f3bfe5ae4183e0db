"""What a model says of rows, against the same numbers computed row by row."""

from __future__ import annotations

import gc
import math
import weakref

import numpy as np
import pytest
import torch
from icml26.errors import InputError
from icml26_plugin_divergence_decoding.encoding import Encoded
from icml26_plugin_divergence_decoding.evaluation import Rows, evaluate
from icml26_plugin_divergence_decoding.scoring import greedy, row_scores, token_scores
from icml26_plugin_divergence_decoding.task import QA, Format, Truth
from icml26_plugin_divergence_decoding.tiny_models import word_tokenizer
from tiny import llama

WORDS = ("what", "is", "it", "a", "cat", "dog", "they", "keep")
TOKENIZER = word_tokenizer(WORDS)
MODEL = llama(0, vocab=len(TOKENIZER))
ROWS = (QA("what is it", "a cat"), QA("is it", "they keep a dog"), QA("it", "dog"))


def test_log_probabilities_equal_those_of_each_row_alone() -> None:
    for row, found in zip(ROWS, row_scores(MODEL, ROWS, TOKENIZER, Format()), strict=True):
        prompt, answer = (TOKENIZER(text, add_special_tokens=False)["input_ids"] for text in (row.question, row.answer))
        logits = MODEL(input_ids=torch.tensor([prompt + answer])).logits[0].double()
        every = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
        expected = every[torch.arange(len(answer)), torch.tensor(answer)]
        np.testing.assert_allclose(found.log_probs, expected.detach(), atol=1e-5)
        assert found.right.tolist() == (every.argmax(-1) == torch.tensor(answer)).tolist()
        mean = (every.exp() * every).sum(-1)
        np.testing.assert_allclose(found.mean, mean.detach(), atol=1e-5)
        variance = (every.exp() * every**2).sum(-1) - mean**2
        np.testing.assert_allclose(found.variance, variance.detach(), atol=1e-4)


def test_the_end_mark_is_not_scored() -> None:
    found = row_scores(MODEL, ROWS, TOKENIZER, Format())
    assert [len(s.log_probs) for s in found] == [2, 4, 1]


def test_batches_change_nothing() -> None:
    whole, single = (row_scores(MODEL, ROWS, TOKENIZER, Format(), batch_size=size) for size in (8, 1))
    for a, b in zip(whole, single, strict=True):
        np.testing.assert_allclose(a.log_probs, b.log_probs, atol=1e-5)


def test_blocks_of_a_text_are_joined() -> None:
    text = "they keep a cat is it a dog"
    (found,) = row_scores(MODEL, [text], TOKENIZER, Format(max_length=4))
    assert len(found.log_probs) == 6  # two blocks of four tokens, the first token of each has no context
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    blocks = token_scores(MODEL, [Encoded(ids[:4], 1), Encoded(ids[4:], 1)])
    np.testing.assert_allclose(found.log_probs, np.concatenate([b.log_probs for b in blocks]), atol=1e-6)


def test_an_empty_answer_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="no token to score"):
        row_scores(MODEL, [QA("what is it", "")], TOKENIZER, Format())


def test_nan_logits_are_refused() -> None:
    broken = llama(1, vocab=len(TOKENIZER))
    with torch.no_grad():
        broken.model.norm.weight.fill_(math.nan)
    with pytest.raises(InputError, match="NaN"):
        row_scores(broken, ROWS, TOKENIZER, Format())


def test_masked_tokens_give_finite_moments() -> None:
    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = MODEL

        def forward(self, **options: torch.Tensor) -> object:
            output = self.inner(**options)
            output.logits[..., 5] = -math.inf
            return output

    found = row_scores(Masked(), [QA("what is it", "a cat")], TOKENIZER, Format())[0]
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.variance).all()


def test_greedy_answers_of_a_batch_equal_single_ones_and_end_at_the_end_mark() -> None:
    prompts = [[3, 4, 5], [4, 5], [5], [10, 9, 8, 7]]
    batch = greedy(MODEL, prompts, 6, TOKENIZER)
    assert batch == [greedy(MODEL, [prompt], 6, TOKENIZER)[0] for prompt in prompts]
    assert all(TOKENIZER.eos_token_id not in ids for ids in batch)


def test_an_evaluation_is_kept_until_the_weights_change() -> None:
    model = llama(2, vocab=len(TOKENIZER))
    truth = Truth(model, TOKENIZER, ROWS, ROWS)
    first = evaluate(model, truth)
    before = first.forget.probability
    assert evaluate(model, truth) is first
    with torch.no_grad():
        model.lm_head.weight.mul_(3.0)
    assert evaluate(model, truth) is not first
    assert evaluate(model, truth).forget.probability != before


def test_an_evaluation_keeps_neither_model_nor_truth_alive() -> None:
    model, other = llama(3, vocab=len(TOKENIZER)), llama(4, vocab=len(TOKENIZER))
    truth = Truth(model, TOKENIZER, ROWS, ROWS, retrain=other)
    for each in (model, other):
        assert 0 <= evaluate(each, truth).forget.probability <= 1
    gone = [weakref.ref(model), weakref.ref(other), weakref.ref(truth)]
    del model, other, truth, each
    gc.collect()
    assert [r() for r in gone] == [None, None, None]


def test_keyword_share_counts_right_answers_only() -> None:
    rows = Rows(MODEL, [QA("it", "a cat", keyword="cat"), QA("is it", "a dog", keyword="dog")], TOKENIZER, Format())
    rows.__dict__["answers"] = ["a cat", "a cat"]
    assert rows.keyword_share == 0.5


def test_keyword_tokens_are_found_inside_the_answer() -> None:
    rows = Rows(MODEL, [QA("it", "they keep a cat dog", keyword="cat dog")], TOKENIZER, Format())
    assert rows._keyword_positions(rows.questions[0]) == [3, 4]
    (score,) = rows.scores
    rows.__dict__["scores"] = [score._replace(right=np.array([True, True, True, True, False]))]
    assert rows.keyword_exact == 0.5
    assert rows.exact == 0.8
