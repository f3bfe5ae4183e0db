"""The tiny model: trained alike from the same seed, stored whole, and judged by what it would generate."""

from __future__ import annotations

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
    training = tiny_lm.TinyTraining(width=32, layers=1, steps=60, warmup=10, check_every=60)
    ids, learnt = (torch.from_numpy(x) for x in draw_lessons(np.random.default_rng(1), GRAMMAR, 32))
    untrained = float(tiny_lm.lesson_loss(tiny_lm.build(training, 0), ids, learnt).detach())
    trained = tiny_lm.train(GRAMMAR, training, np.random.default_rng(0), log=lambda n, v, s: seen.append(v))
    assert float(tiny_lm.lesson_loss(trained.model, ids, learnt)) < untrained - 1.0
    assert len(seen) == 2 and seen[0] < untrained - 1.0


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


@pytest.mark.parametrize("sizes", [{"hops": 6, "chains": 6}, {"hops": 4, "chains": 6, "noise": 10}])
def test_grammars_that_do_not_fit_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match=r"names|at most 128"):
        TinyVariableTracking.Config(**sizes)
