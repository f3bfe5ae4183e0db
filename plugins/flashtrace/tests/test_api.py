"""FlashTrace on texts and ids: what it returns, and what it refuses before work starts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import tiny_model, token_ids, words_tokenizer
from icml26 import InputError
from icml26_plugin_flashtrace import LAST_BOXED, Chars, FlashTrace, Regex
from icml26_plugin_flashtrace.capture import capture_blocks
from icml26_plugin_flashtrace.kernel import span_shares, token_shares
from icml26_plugin_flashtrace.rollout import exhaustive_rollout, normalised_rows
from icml26_plugin_flashtrace.task import Example
from icml26_plugin_flashtrace.tracing import Settings, token_wise, trace

PROMPT = "w1 w2, w3 w4. the w5"
GENERATION = "w2 w3, the answer is \\boxed{w7} w9"


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


@pytest.fixture(scope="module")
def tracer(model: Any) -> FlashTrace:
    return FlashTrace(model, words_tokenizer())


def ids_example(n_prompt: int = 10, n: int = 24, output: tuple[int, int] = (10, 13), **more: Any) -> Example:
    ids = token_ids(n)
    return Example("ids", tuple(f"t{i}" for i in ids), ids, n_prompt, output, **more)


def test_the_algorithm_step_by_step(model: Any) -> None:
    """One hop through the whole generation, from the kernel's own spans."""
    example = ids_example()
    blocks = capture_blocks(model, example.input_ids)
    first = span_shares(blocks, 20, 23).sources
    rho = first[10:].sum() / first.sum()
    second = span_shares(blocks, 10, 23, first[10:]).sources
    found = trace(example, model, hops=1)
    np.testing.assert_allclose(found.scores, first[:10] + rho * second[:10], rtol=1e-5)
    np.testing.assert_allclose(found.generation_scores, first[10:], rtol=1e-5)
    np.testing.assert_allclose(found.residual_ratios, [rho, second[10:].sum() / second.sum()], rtol=1e-5)
    assert found.scores.dtype == np.float32
    assert set(found.seconds) == {"forward", "forward-cpu", "attribution", "attribution-cpu"}


def test_no_hop_is_span_wise_attribution_and_scores_are_bounded_by_layers(model: Any) -> None:
    example = ids_example()
    found = trace(example, model, hops=0)
    expected = span_shares(capture_blocks(model, example.input_ids), 20, 23).sources
    np.testing.assert_allclose(found.scores, expected[:10], rtol=1e-5)
    assert found.hops.shape == (1, 10)
    assert (trace(example, model, hops=4).hops >= 0).all()
    assert found.scores.sum() + found.generation_scores.sum() <= 2


def test_token_wise_is_the_sum_of_normalised_rows(model: Any) -> None:
    example = ids_example()
    rows = token_shares(capture_blocks(model, example.input_ids), 20, 23).numpy()
    np.testing.assert_allclose(token_wise(example, model).scores, normalised_rows(rows).sum(0)[:10], rtol=1e-5)


@pytest.mark.parametrize("rollout", [False, True])
def test_stop_tokens_of_the_answer_are_no_targets_token_by_token(model: Any, rollout: bool) -> None:
    example = ids_example()
    marked = dataclasses.replace(example, tokens=(*example.tokens[:21], ",", ",", ","))
    found = token_wise(marked, model, rollout=rollout)
    expected = token_wise(dataclasses.replace(example, output_span=(10, 10)), model, rollout=rollout)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-6)


def test_rollout_ends_on_the_prompt(model: Any) -> None:
    """Replaced exhaustively, what the answer owes lies on the prompt, but for what tokens owe to themselves."""
    found = token_wise(ids_example(), model, rollout=True)
    plain = token_wise(ids_example(), model)
    assert found.scores.sum() > plain.scores.sum()
    assert found.residual_ratios[0] < plain.residual_ratios[0]


def test_rollout_is_that_of_the_answers_rows(model: Any) -> None:
    example = ids_example()
    rows = token_shares(capture_blocks(model, example.input_ids), 10, 23).numpy()
    expected = exhaustive_rollout(rows, 10, np.arange(10, 14))
    found = token_wise(example, model, rollout=True)
    np.testing.assert_allclose(found.scores, expected[:10], rtol=1e-5)


def test_reasoning_and_generation_are_two_spans(model: Any) -> None:
    example = ids_example(reasoning_span=(2, 8))
    blocks = capture_blocks(model, example.input_ids)
    first = span_shares(blocks, 20, 23).sources
    for rule, (lo, hi) in (("reasoning", (12, 18)), ("generation", (12, 23))):
        rho = first[lo : hi + 1].sum() / first.sum()
        second = span_shares(blocks, lo, hi, first[lo : hi + 1]).sources
        found = trace(example, model, through=rule)  # type: ignore[arg-type]
        np.testing.assert_allclose(found.scores, first[:10] + rho * second[:10], rtol=1e-5)


def test_hop_0_may_start_at_all_that_hops_pass_through(model: Any) -> None:
    """Then the answer's own span plays no part beyond the recursion span's ends."""
    example = ids_example(reasoning_span=(2, 8))
    found = trace(example, model, start="recursion-span")
    np.testing.assert_allclose(found.scores, trace(ids_example(output=(2, 13)), model, hops=0).scores + found.hops[1])
    blocks = capture_blocks(model, example.input_ids)
    first = span_shares(blocks, 12, 23).sources
    second = span_shares(blocks, 12, 23, first[12:]).sources
    np.testing.assert_allclose(found.hops[1], first[12:].sum() / first.sum() * second[:10], rtol=1e-5)
    with pytest.raises(InputError, match="start must be"):
        trace(example, model, start="end")  # type: ignore[arg-type]


def test_stored_and_recomputed_attention_agree(model: Any) -> None:
    stored = trace(ids_example(), model, settings=Settings(recompute_attention=False))
    np.testing.assert_allclose(stored.scores, trace(ids_example(), model).scores, atol=1e-6)


def test_text_in_scores_out(tracer: FlashTrace) -> None:
    found = tracer.attribute(PROMPT, GENERATION, output_span=LAST_BOXED)
    assert "".join(found.example.tokens) == PROMPT + GENERATION
    assert found.prompt_tokens == tuple(found.example.tokens[: len(found.scores)])
    lo, hi = found.example.output_span
    assert found.example.tokens[found.example.n_prompt + lo : found.example.n_prompt + hi + 1] == ("w7",)
    stops = [k for k, token in enumerate(found.prompt_tokens) if token.strip() in ("", ",", ".")]
    assert stops
    assert (found.scores[stops] == 0).all()
    assert (np.delete(found.scores, stops) > 0).any()
    assert found.top(3)[0][1] == found.scores.max()
    assert found.to_json()["scores"] == pytest.approx(found.scores.tolist(), abs=1e-6)


def test_spans_say_the_same_in_four_ways(tracer: FlashTrace) -> None:
    begin = GENERATION.index("w7")
    same = [
        tracer.attribute(PROMPT, GENERATION, output_span=span, reasoning_span=Regex("w2.*is")).scores
        for span in ("w7", Chars(begin, begin + 2), Regex("w7"), LAST_BOXED)
    ]
    example = tracer.attribute(PROMPT, GENERATION, output_span="w7").example
    same.append(
        tracer.attribute(PROMPT, GENERATION, output_span=example.output_span, reasoning_span=Regex("w2.*is")).scores
    )
    for scores in same[1:]:
        np.testing.assert_array_equal(scores, same[0])


def test_without_stop_tokens_everything_counts(model: Any) -> None:
    plain = FlashTrace(model, words_tokenizer(), stop_tokens=[])
    found = plain.attribute(PROMPT, GENERATION, output_span="w7")
    assert found.attribution.kept.all()
    assert (found.scores > 0).sum() > 7


def test_the_model_answers_itself() -> None:
    model = tiny_model(seed=2)
    tracer = FlashTrace(model, words_tokenizer())
    text = tracer.generate(PROMPT, 4)
    assert text.strip()
    found = tracer.attribute(PROMPT, max_new_tokens=4)
    assert "".join(found.example.tokens[found.example.n_prompt :]).split() == text.split()
    assert not model.training


def test_ids_without_a_tokenizer(model: Any) -> None:
    ids = token_ids(24)
    found = FlashTrace(model).attribute_ids(torch.from_numpy(ids)[None], 10, output_span=(10, 13))
    np.testing.assert_allclose(found.scores, trace(ids_example(), model).scores, rtol=1e-6)


def test_a_final_end_of_sequence_is_no_part_of_the_answer(model: Any) -> None:
    ids = np.append(token_ids(24), 2)
    found = FlashTrace(model, words_tokenizer()).attribute_ids(ids, 10)
    assert found.example.output_span == (0, 13)


def test_weights_choose_the_answers_tokens(model: Any) -> None:
    tracer = FlashTrace(model)
    one = tracer.attribute_ids(token_ids(24), 10, output_span=(10, 13), weights=[0, 0, 3, 0], hops=0)
    same = tracer.attribute_ids(token_ids(24), 10, output_span=(12, 12), hops=0)
    np.testing.assert_allclose(one.scores, same.scores, atol=1e-6)


def test_heat_maps_are_written(tracer: FlashTrace, tmp_path: Path) -> None:
    found = tracer.attribute(PROMPT, GENERATION, output_span="w7", hops=2)
    page = found.to_html(tmp_path / "map.html")
    assert (tmp_path / "map.html").read_text(encoding="utf-8") == page
    assert "w5" in page
    found.to_png(tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hops": -1}, "hops must be"),
        ({"hops": 1.5}, "hops must be"),
        ({"output_span": (5, 3)}, "reversed"),
        ({"output_span": (0, 99)}, "outside"),
        ({"output_span": (-3, 2)}, "outside"),
        ({"output_span": (0, 1), "reasoning_span": (1, 3)}, "before"),
        ({"output_span": (1, 1)}, "only stop tokens"),
        ({"output_span": "nowhere"}, "does not occur"),
        ({"generation": " "}, "empty"),
        ({"prompt": ""}, "empty"),
        ({"weights": [1.0]}, "weights have shape"),
        ({"output_span": (2, 3), "weights": [-1.0, 2.0]}, "non-negative"),
        ({"output_span": (2, 3), "weights": [0.0, 0.0]}, "not all zero"),
        ({"output_span": (2, 3), "weights": [float("nan"), 1.0]}, "finite"),
    ],
)
def test_wrong_requests_are_refused_before_the_model_runs(
    monkeypatch: pytest.MonkeyPatch, tracer: FlashTrace, changes: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr("icml26_plugin_flashtrace.tracing.capture_blocks", lambda *a, **k: pytest.fail("work began"))
    with pytest.raises(InputError, match=message):
        tracer.attribute(**{"prompt": PROMPT, "generation": GENERATION, **changes})


@pytest.mark.parametrize(
    ("ids", "n_prompt", "mask", "message"),
    [
        (np.ones((2, 9), dtype=np.int64), 4, None, "batch"),
        (np.ones(9, dtype=np.int64), 4, [0, 0, 1, 1, 1, 1, 1, 1, 1], "left"),
        (np.ones(9, dtype=np.int64), 9, None, "n_prompt"),
        (np.ones(9, dtype=np.int64), 0, None, "n_prompt"),
        (np.ones(200, dtype=np.int64), 4, None, "128"),
    ],
)
def test_wrong_ids_are_refused(model: Any, ids: np.ndarray, n_prompt: int, mask: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FlashTrace(model).attribute_ids(ids, n_prompt, attention_mask=mask)


def test_too_long_for_the_user(model: Any) -> None:
    with pytest.raises(InputError, match="max_tokens=20"):
        FlashTrace(model, max_tokens=20).attribute_ids(token_ids(24), 10)


def test_characters_need_a_fast_tokenizer(model: Any) -> None:
    tokenizer = words_tokenizer()

    class Slow:
        is_fast = False
        eos_token_id = 2

        def __call__(self, text: str, **options: Any) -> dict[str, Any]:
            return {"input_ids": tokenizer(text, add_special_tokens=False)["input_ids"]}

        def decode(self, ids: list[int]) -> str:
            return str(tokenizer.decode(ids))

    with pytest.raises(InputError, match="offsets"):
        FlashTrace(model, Slow()).attribute(PROMPT, GENERATION, output_span="w7")


def test_wrong_options_are_refused(model: Any) -> None:
    with pytest.raises(InputError, match="no option 'hop'"):
        FlashTrace(model, hop=2)
    with pytest.raises(InputError, match="chunk_tokens"):
        FlashTrace(model, chunk_tokens=0)
    with pytest.raises(InputError, match="renorm_threshold"):
        FlashTrace(model, renorm_threshold=-1.0)
    with pytest.raises(InputError, match="without a tokenizer"):
        FlashTrace(model).attribute("a", "b")
    with pytest.raises(InputError, match="chat template"):
        FlashTrace(model, words_tokenizer(), chat_template=True).attribute(PROMPT, GENERATION)


def test_an_example_with_nothing_to_run_on_is_refused() -> None:
    with pytest.raises(InputError, match="neither captures nor a model"):
        trace(ids_example())
    with pytest.raises(InputError, match="no prompt"):
        trace(ids_example(n_prompt=0))


def test_a_chat_template_wraps_the_prompt(model: Any) -> None:
    tokenizer = words_tokenizer()
    tokenizer.chat_template = "<s>{% for m in messages %}the {{ m.content }}{% endfor %} is "
    found = FlashTrace(model, tokenizer, chat_template=True).attribute("w1 w2", "w3")
    assert "w1 w2" in "".join(found.prompt_tokens)
    assert "".join(found.prompt_tokens).rstrip().endswith("is")
