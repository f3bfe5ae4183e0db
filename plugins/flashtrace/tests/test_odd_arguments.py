"""Odd values of every argument are refused as InputError, and forms that mean the same give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from builders import tiny_model, token_ids, words_tokenizer
from icml26 import InputError
from icml26_plugin_flashtrace import Chars, FlashTrace, Regex
from icml26_plugin_flashtrace.encoding import MarkedText, encode

PROMPT, GENERATION = "w1 w2, w3 w4. the w5", "w2 w3, the answer is w7 w9"
NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model(seed=2)


@pytest.fixture(scope="module")
def tracer(model: Any) -> FlashTrace:
    return FlashTrace(model, words_tokenizer())


def by_ids(model: Any, ids: Any = None, n_prompt: Any = 10, **options: Any) -> np.ndarray:
    options = {"output_span": (10, 13), **options}
    return FlashTrace(model).attribute_ids(token_ids(24) if ids is None else ids, n_prompt, **options).scores


@pytest.mark.parametrize("hops", ["a", NAN, INF, 1.5, True, None, [1], 1j, -1, 65, 10**9, 10**30, np.array([1])])
def test_hops_are_a_whole_number_up_to_a_limit(model: Any, hops: Any) -> None:
    with pytest.raises(InputError, match="hops must be"):
        by_ids(model, hops=hops)


@pytest.mark.parametrize("hops", [2.0, np.int8(2), np.array(2), torch.tensor(2)])
def test_hops_of_other_types_are_the_same(model: Any, hops: Any) -> None:
    np.testing.assert_array_equal(by_ids(model, hops=hops), by_ids(model, hops=2))


@pytest.mark.parametrize(
    "weights", ["abc", ["a"] * 4, ["1"] * 4, {"a": 1}, [1j] * 4, [None] * 4, [[1, 2, 3, 4]], 5, [], [0, 0, 0, INF]]
)
def test_weights_that_are_none_are_refused(model: Any, weights: Any) -> None:
    with pytest.raises(InputError, match="weights"):
        by_ids(model, weights=weights)


@pytest.mark.parametrize("scale", [1e-46, 1e-30, 1e37, 1e300])
def test_tiny_and_huge_weights_count_by_their_ratios(model: Any, scale: float) -> None:
    expected = by_ids(model, weights=[1, 2, 3, 4])
    assert expected.sum() > 0.1
    np.testing.assert_allclose(by_ids(model, weights=np.array([1, 2, 3, 4]) * scale), expected, atol=1e-6)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64, torch.int32])
def test_weights_may_be_tensors(model: Any, kind: torch.dtype) -> None:
    weights = torch.tensor([1, 2, 3, 4], dtype=kind)
    np.testing.assert_array_equal(by_ids(model, weights=weights), by_ids(model, weights=[1, 2, 3, 4]))
    leaf = torch.tensor([1.0, 2, 3, 4], requires_grad=True)
    np.testing.assert_array_equal(by_ids(model, weights=leaf), by_ids(model, weights=[1, 2, 3, 4]))


def test_weights_on_stop_tokens_alone_are_refused(tracer: FlashTrace) -> None:
    with pytest.raises(InputError, match="no stop tokens"):  # the span is a blank, then w3
        tracer.attribute(PROMPT, GENERATION, output_span=(1, 2), weights=[1, 0])


BAD_SPANS = [
    (1.5, 2), ("a", "b"), (1,), (1, 2, 3), 5, {1, 3}, (None, 3), (True, 3), (NAN, 2), (INF, 2), b"w7", object(), np.ones((2, 2)),
]  # fmt: skip


@pytest.mark.parametrize("span", BAD_SPANS)
@pytest.mark.parametrize("name", ["output", "reasoning"])
def test_spans_of_another_form_are_refused(model: Any, tracer: FlashTrace, span: Any, name: str) -> None:
    with pytest.raises(InputError, match=f"{name} span"):
        by_ids(model, **{f"{name}_span": span})
    with pytest.raises(InputError, match=f"{name} span"):
        tracer.attribute(PROMPT, GENERATION, **{f"{name}_span": span})


@pytest.mark.parametrize("span", ["w7", Chars(0, 3), Regex("w")])
def test_spans_of_text_need_a_text(model: Any, span: Any) -> None:
    with pytest.raises(InputError, match="needs the generation's text"):
        by_ids(model, output_span=span)


@pytest.mark.parametrize("span", [[10, 13], np.array([10, 13]), torch.tensor([10, 13]), (np.int64(10), 13.0)])
def test_spans_of_other_types_are_the_same(model: Any, span: Any) -> None:
    np.testing.assert_array_equal(by_ids(model, output_span=span), by_ids(model))


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (Chars("a", 2), "whole characters"),
        (Chars(0.5, 2.5), "whole characters"),
        (Chars(None, None), "whole characters"),
        (Chars(5, 2), "do not lie"),
        (Regex(5), "must be a text"),
        (Regex("w", which="a"), "whole numbers"),
        (Regex("w", which=1.5), "whole numbers"),
        (Regex("w", group=None), "no group"),
        (Regex("boxed"), "ends with 'w2 w3, the answer is w7 w9'"),
        ("absent", "ends with"),
    ],
)
def test_odd_characters_and_patterns_are_refused(tracer: FlashTrace, span: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tracer.attribute(PROMPT, GENERATION, output_span=span)


@pytest.mark.parametrize("n_prompt", [1.5, "a", None, True, NAN, 0, 24, -1])
def test_odd_prompt_lengths_are_refused(model: Any, n_prompt: Any) -> None:
    with pytest.raises(InputError, match="n_prompt"):
        by_ids(model, n_prompt=n_prompt)


@pytest.mark.parametrize("value", [5, b"x", ["a"], [{"role": "user", "content": "x"}]])
def test_texts_that_are_none_are_refused(tracer: FlashTrace, value: Any) -> None:
    with pytest.raises(InputError, match="the prompt must be a text"):
        tracer.attribute(value, GENERATION)
    with pytest.raises(InputError, match="the prompt must be a text"):
        tracer.generate(value)
    with pytest.raises(InputError, match="the generation must be a text"):
        tracer.attribute(PROMPT, value)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("stop_tokens", ["abc", 5, [1, 2], [None], b"x", [b","]]),
        ("renorm_threshold", [NAN, -1, INF, "a", None, True, [1]]),
        ("chunk_tokens", [0, -1, 1.5, "a", True, NAN]),
        ("precision", ["float16", 32, None]),
        ("max_tokens", [0, -1, 1, "a", 2.5, NAN, True]),
        ("recompute_attention", ["no", None, 0]),
        ("check_identity", ["no", None, 0]),
        ("chat_template", ["yes", 1]),
    ],
)
def test_odd_options_are_refused_when_the_tracer_is_made(model: Any, name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InputError, match=name):
            FlashTrace(model, **{name: value})


def test_options_may_be_huge_or_of_other_types(model: Any) -> None:
    expected = by_ids(model)
    for options in (
        {"chunk_tokens": 10**30},
        {"chunk_tokens": np.int64(4)},
        {"chunk_tokens": 4.0},
    ):
        found = FlashTrace(model, **options).attribute_ids(token_ids(24), 10, output_span=(10, 13))  # type: ignore[arg-type]
        np.testing.assert_allclose(found.scores, expected, atol=1e-6)


@pytest.mark.parametrize("n", [1.5, "a", None, -1])
def test_an_odd_number_of_top_tokens_is_refused(tracer: FlashTrace, n: Any) -> None:
    with pytest.raises(InputError, match="n must be"):
        tracer.attribute(PROMPT, GENERATION).top(n)


def test_an_id_below_zero_is_named(model: Any) -> None:
    with pytest.raises(InputError, match="token id -1"):
        by_ids(model, ids=np.array([3] * 23 + [-1]))


@pytest.mark.parametrize("count", [0, -1, 1.5, "a", None, True])
def test_odd_lengths_of_a_generation_are_refused(tracer: FlashTrace, count: Any) -> None:
    with pytest.raises(InputError, match="max_new_tokens"):
        tracer.generate(PROMPT, count)


def test_a_generation_ends_where_the_context_does(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 words and 63 blanks leave one token of 128; what was longer than allowed used to fail after it was generated."""
    asked: list[int] = []
    real = type(model).generate

    def generate(self: Any, *args: Any, max_new_tokens: int, **options: Any) -> Any:
        asked.append(max_new_tokens)
        return real(self, *args, max_new_tokens=max_new_tokens, **options)

    monkeypatch.setattr(type(model), "generate", generate)
    tracer = FlashTrace(model, words_tokenizer(), stop_tokens=[])
    found = tracer.attribute("w1 w2, w3 w4. the w5", max_new_tokens=10**9)
    assert asked == [128 - found.example.n_prompt]
    assert found.example.n_tokens <= 128
    FlashTrace(model, words_tokenizer(), max_tokens=16).generate("w1 w2, w3 w4. the w5", 100)
    assert asked[1:] == [16 - found.example.n_prompt]


@pytest.mark.parametrize(
    ("words", "options", "limit"), [(65, {}, "context 128"), (10, {"max_tokens": 19}, "max_tokens=19")]
)
def test_a_prompt_that_leaves_no_room_for_an_answer_is_refused(
    model: Any, monkeypatch: pytest.MonkeyPatch, words: int, options: dict[str, Any], limit: str
) -> None:
    monkeypatch.setattr(type(model), "generate", lambda *a, **k: pytest.fail("work began"))
    prompt = " ".join(["w1"] * words)
    with pytest.raises(InputError, match=f"the prompt and one more token has {2 * words} tokens.*{limit}"):
        FlashTrace(model, words_tokenizer(), **options).attribute(prompt)


def test_closing_ends_of_sequence_are_never_explained(model: Any, tracer: FlashTrace) -> None:
    """Neither as target nor between hops, whatever span is asked for."""
    ids, closed = token_ids(24), np.append(token_ids(24), [2, 2])
    for start in ("answer", "recursion-span"):
        with_words = FlashTrace(model, words_tokenizer(), start=start, stop_tokens=[])  # type: ignore[arg-type]
        expected = with_words.attribute_ids(ids, 10, output_span=(10, 13))
        for span in ((10, 13), (10, 15)):
            found = with_words.attribute_ids(closed, 10, output_span=span)
            np.testing.assert_array_equal(found.scores, expected.scores)
            assert found.example.output_span == (10, 13)
    text = tracer.attribute(PROMPT, GENERATION + "</s>")
    np.testing.assert_array_equal(text.scores, tracer.attribute(PROMPT, GENERATION).scores)


def test_a_generation_of_nothing_but_the_end_is_refused(tracer: FlashTrace) -> None:
    with pytest.raises(InputError, match="nothing but the end of sequence"):
        tracer.attribute(PROMPT, "</s>")
    with pytest.raises(InputError, match="nothing but the end of sequence"):
        tracer.attribute_ids(np.append(token_ids(10), 2), 10)
    with pytest.raises(InputError, match="nothing but the end of sequence"):
        tracer.attribute_ids(np.append(token_ids(24), 2), 10, output_span=(14, 14))


def test_marks_are_placed_in_the_users_message_not_in_the_templates_own_words() -> None:
    tokenizer = words_tokenizer()
    tokenizer.chat_template = "the answer is {% for m in messages %}w1 {{ m.content }}{% endfor %} w9 "
    example, gold = encode(MarkedText("t", "w1", "w3", None, None, ((0, 2),)), tokenizer, chat_template=True)
    assert gold is not None
    assert np.flatnonzero(gold).tolist() == [8] and example.tokens[8] == "w1" == example.tokens[6]


def test_a_template_that_fails_is_named(model: Any) -> None:
    tokenizer = words_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('system prompt first') }}"
    tracer = FlashTrace(model, tokenizer, chat_template=True)
    with pytest.raises(InputError, match="system prompt first"):
        tracer.attribute("w1", "w2")
    with pytest.raises(InputError, match="system prompt first"):
        tracer.generate("w1")
