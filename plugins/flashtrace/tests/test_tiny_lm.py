"""The tiny model: trained alike from the same seed, stored whole, and judged by what it would generate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from icml26 import InputError, RunContext
from icml26_plugin_flashtrace import tiny_lm
from icml26_plugin_flashtrace.datasets import TinyVariableTracking
from icml26_plugin_flashtrace.symbols import Grammar, draw, draw_lessons
from pydantic import ValidationError

GRAMMAR = Grammar(hops=2, chains=2, noise=1)
SHORT = tiny_lm.TinyTraining(width=16, layers=1, steps=4, batch_size=4, check_every=2)


def short(seed: int) -> tiny_lm.Trained:
    return tiny_lm.train(GRAMMAR, SHORT, np.random.default_rng(seed))


def logits(model: Any) -> torch.Tensor:
    ids = torch.from_numpy(draw(np.random.default_rng(9), GRAMMAR, 2).ids)
    return model(input_ids=ids, use_cache=False).logits


def test_training_is_a_function_of_its_generator_and_moves_no_global_one() -> None:
    before = torch.random.get_rng_state()
    first, same, other = short(1), short(1), short(2)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(logits(first.model), logits(same.model))
    assert not torch.equal(logits(first.model), logits(other.model))
    assert first.steps == 4 and not any(p.requires_grad for p in first.model.parameters())


def test_training_lowers_the_loss() -> None:
    seen: list[float] = []
    training = tiny_lm.TinyTraining(width=32, layers=1, steps=70, warmup=10, check_every=10, recalled=0.0)
    ids, learnt = (torch.from_numpy(x) for x in draw_lessons(np.random.default_rng(1), GRAMMAR, 32))
    untrained = float(tiny_lm.lesson_loss(tiny_lm.build(training, 0), ids, learnt)[0].detach())
    trained = tiny_lm.train(
        GRAMMAR, training, np.random.default_rng(0), log=lambda n, v, s: seen.append(v) if n == "loss" else None
    )
    assert float(tiny_lm.lesson_loss(trained.model, ids, learnt)[0]) < untrained - 1.0
    assert len(seen) == 7 and seen[-1] < untrained - 1.0


def test_stages_follow_each_other_when_mastered() -> None:
    at: list[tuple[str, float, int]] = []
    training = dataclasses.replace(SHORT, steps=8, recalled=0.0, learnt=0.0, stop_at=0.0)
    trained = tiny_lm.train(GRAMMAR, training, np.random.default_rng(0), log=lambda *row: at.append(row))
    # Mastered at once: look-ups until step 2, lessons until 4, and the first check of the last stage stops at 6.
    assert trained.steps == 6 and [step for name, _, step in at if name == "exact"] == [2, 4, 6]
    stuck = dataclasses.replace(training, recalled=1.0)
    assert tiny_lm.train(GRAMMAR, stuck, np.random.default_rng(0)).steps == 8


def test_material_of_each_stage() -> None:
    rng = np.random.default_rng(0)
    for stage in tiny_lm.Stage:
        ids, learnt = tiny_lm.material(stage, GRAMMAR, 3, rng)
        assert ids.shape == learnt.shape and learnt.any() and ids.shape[1] <= tiny_lm.CONTEXT
    assert learnt.sum(dim=1).tolist() == [GRAMMAR.n_reasoning + 2] * 6  # the answer and the end of sequence
    assert tiny_lm.recall_grammar(Grammar(1, 4, 2)) == Grammar(2, 6, 2)
    assert tiny_lm.recall_grammar(Grammar(4, 6, 0)) == Grammar(4, 6, 0)


def test_loss_is_of_the_marked_tokens_and_the_share_that_is_right() -> None:
    ids = torch.tensor([[5, 6, 7, 8]])
    learnt = torch.tensor([[False, False, True, True]])
    logits = torch.zeros(1, 4, 10)
    logits[0, 1, 7] = 2.0  # the third token foreseen, the fourth not

    class Model:
        lm_head = staticmethod(lambda states: states)

        def model(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
            return SimpleNamespace(last_hidden_state=logits)

    loss, right = tiny_lm.lesson_loss(Model(), ids, learnt)
    first = np.log(9 + np.exp(2.0)) - 2.0
    assert right == 0.5 and float(loss) == pytest.approx((first + np.log(10)) / 2, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
def test_it_learns(seed: int) -> None:
    grammar = Grammar()
    trained = tiny_lm.train(grammar, tiny_lm.TinyTraining(), np.random.default_rng(seed))
    assert trained.accuracy >= 0.95
    # Really generated, token by token, not judged with the right tokens before each.
    batch = draw(np.random.default_rng(99), grammar, 64)
    prompts = torch.from_numpy(batch.ids[:, : grammar.n_prompt])
    made = trained.model.generate(
        prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=grammar.n_reasoning + 2, do_sample=False
    )
    right = (made[:, : grammar.n_tokens].numpy() == batch.ids).all(axis=1)
    assert right.mean() >= 0.9
    assert (made[torch.from_numpy(right)][:, grammar.n_tokens] == 1).all(), "and then it stops"


def test_a_stored_model_is_the_same(tmp_path: Path) -> None:
    trained = short(1)
    tiny_lm.save(trained, tmp_path)
    loaded = tiny_lm.load(SHORT, tmp_path)
    assert torch.equal(logits(trained.model), logits(loaded.model))
    assert (loaded.accuracy, loaded.steps) == (trained.accuracy, trained.steps)


def test_one_wrong_token_makes_a_generation_wrong() -> None:
    batch = draw(np.random.default_rng(0), GRAMMAR, 3)
    following = np.roll(batch.ids, -1, axis=1)
    following[1, GRAMMAR.n_prompt + 2] = 0  # one wrong guess inside the generation
    following[2, 3] = 0  # and one in the prompt, where it does not matter

    def model(input_ids: torch.Tensor, use_cache: bool) -> Any:
        return SimpleNamespace(logits=torch.nn.functional.one_hot(torch.from_numpy(following), 64).float())

    assert tiny_lm.is_exact(model, batch.ids, GRAMMAR.n_prompt).tolist() == [True, False, True]


def cache(folder: Path) -> Callable[[str, Callable[[Path], None]], Path]:
    def cached(name: str, build: Callable[[Path], None]) -> Path:
        if not (folder / name).exists():
            (folder / name).mkdir()
            build(folder / name)
        return folder / name

    return cached


def test_the_dataset_is_the_same_from_training_and_from_the_cache(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = TinyVariableTracking.Config(n_examples=2, steps=2, only_correct=False)
    first, again = (TinyVariableTracking(config).load(RunContext(3, stream=0, cache=cache(tmp_path))) for _ in range(2))
    assert "answers 0 % of fresh sequences rightly after 2 steps" in caplog.text
    assert first.info["exact generations"] == 0.0
    grammar = Grammar(config.hops, config.chains, config.noise)
    for a, b, gold in zip(first.inputs.examples, again.inputs.examples, first.truth.gold, strict=True):
        assert np.array_equal(a.input_ids, b.input_ids)
        assert a.n_tokens == grammar.n_tokens and a.n_prompt == grammar.n_prompt
        assert a.tokens[-1].strip() in {a.tokens[k].strip() for k in np.flatnonzero(gold)}
    assert torch.equal(
        first.inputs.model.get_input_embeddings().weight, again.inputs.model.get_input_embeddings().weight
    )


def test_too_few_right_answers_are_refused(tmp_path: Path) -> None:
    config = TinyVariableTracking.Config(n_examples=2, steps=1, only_correct=True)
    with pytest.raises(InputError, match=r"answers only 0 of 64 .* raise dataset\.steps"):
        TinyVariableTracking(config).load(RunContext(0, stream=0, cache=cache(tmp_path)))


def test_heads_that_do_not_share_evenly_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"heads \(4\) must be a multiple of kv_heads \(3\)"):
        TinyVariableTracking.Config(kv_heads=3)


def test_the_model_has_the_sizes_that_are_asked_for(tmp_path: Path) -> None:
    sizes = {"width": 16, "layers": 1, "heads": 2, "kv_heads": 1, "head_width": 8}
    config = TinyVariableTracking.Config(n_examples=1, steps=1, batch_size=2, **sizes)
    model = TinyVariableTracking(config).load(RunContext(0, stream=0, cache=cache(tmp_path))).inputs.model
    c = model.config
    found = (c.hidden_size, c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads, c.head_dim)
    assert found == tuple(sizes.values())


@pytest.mark.parametrize("sizes", [{"hops": 6, "chains": 6}, {"hops": 4, "chains": 6, "noise": 10}])
def test_grammars_that_do_not_fit_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match=r"names|at most 128"):
        TinyVariableTracking.Config(**sizes)
