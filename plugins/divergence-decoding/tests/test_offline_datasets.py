"""The offline data sets: what is drawn, what is kept apart, and that the same seed gives the same problem."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from icml26 import Problem, RunContext
from icml26.datacache import cached_folder
from icml26.errors import InputError
from icml26.fingerprints import fingerprint
from icml26_plugin_divergence_decoding.digits import START, Digits, as_rows
from icml26_plugin_divergence_decoding.image_metrics import class_share, image_loss, sample
from icml26_plugin_divergence_decoding.invented import ATTRIBUTES, Persons, invent
from icml26_plugin_divergence_decoding.metrics import agg, keyword_forget, mia_gap, privleak, token_loss, verbmem
from icml26_plugin_divergence_decoding.mini_muse import MiniMuse, continuation, passages
from icml26_plugin_divergence_decoding.mini_tofu import MiniTofu
from icml26_plugin_divergence_decoding.task import QA, Output

TINY = {"forget": 3, "retain": 9, "holdout": 3, "pretraining": 6, "judged_retain": 4}
TINY |= {"width": 16, "small_width": 8, "layers": 1, "small_layers": 1, "pretraining_epochs": 1, "epochs": 2}
Load = Callable[..., Problem[Any, Any]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loader(dataset: Any, config: dict[str, Any], seed: int = 0, place: str = "a") -> Problem[Any, Any]:
        def cache(name: str, build: Callable[[Path], None]) -> Path:
            return cached_folder(f"{place}{seed}", name, build, root=tmp_path)

        return dataset(dataset.Config(**config)).load(RunContext(seed, stream=0, cache=cache))

    return loader


def test_names_recur_but_no_person_does() -> None:
    facts = invent(Persons(), np.random.default_rng(0))
    persons = [
        row.question.removesuffix(" ?").split()[-2:] for row in (*facts.forget, *facts.retain, *facts.holdout)[::8]
    ]
    assert len({tuple(person) for person in persons}) == len(persons) == 132
    assert max(np.unique([first for first, _ in persons], return_counts=True)[1]) > 1
    assert [len(rows) for rows in (facts.forget, facts.retain, facts.holdout, facts.world)] == [96, 864, 96, 60]
    assert len(facts.pretraining) == 2 * (8 * 50 + 60)
    assert 400 <= len(facts.words) <= 500


def test_wrong_answers_differ_from_the_right_one_and_word_it_alike() -> None:
    facts = invent(Persons(), np.random.default_rng(3))
    for row in (*facts.forget, *facts.world):
        assert row.keyword is not None
        assert row.paraphrased is not None
        assert len(set(row.perturbed)) == 3
        assert row.answer.split().count(row.keyword) == 1
        for wrong in row.perturbed:
            assert row.keyword not in wrong.split()
            differing = [a != b for a, b in zip(wrong.split(), row.paraphrased.split(), strict=True)]
            assert sum(differing) == 1
    trained = {attribute.trained.format("x") for attribute in ATTRIBUTES}
    assert trained.isdisjoint(attribute.paraphrase.format("x") for attribute in ATTRIBUTES)


def test_mini_tofu_is_what_it_says(load: Load) -> None:
    problem = load(MiniTofu, TINY)
    inputs, truth = problem.inputs, problem.truth
    assert len(inputs.forget) == 24
    assert len(inputs.retain) == 72
    assert len(truth.retain) == 32
    assert set(truth.retain) <= set(inputs.retain)
    assert set(truth.holdout).isdisjoint((*inputs.forget, *inputs.retain))
    assert inputs.background == truth.world
    assert inputs.format is not truth.format
    assert not torch.equal(truth.retrain.lm_head.weight, truth.target.lm_head.weight)
    assert inputs.tokenizer.unk_token_id not in inputs.tokenizer(" ".join(r.answer for r in truth.holdout))["input_ids"]


def test_the_same_seed_gives_the_same_models_and_another_seed_others(load: Load) -> None:
    first, again, other = (load(MiniTofu, TINY, seed, place) for seed, place in ((0, "a"), (0, "b"), (1, "a")))
    assert fingerprint(first.inputs) == fingerprint(again.inputs)
    assert fingerprint(first.truth) == fingerprint(again.truth)
    assert fingerprint(first.inputs) != fingerprint(other.inputs)


def test_loading_moves_no_global_generator(load: Load) -> None:
    before = torch.random.get_rng_state()
    load(MiniTofu, TINY)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_retrained_model_is_its_own_reference(load: Load) -> None:
    truth = load(MiniTofu, TINY).truth
    output = Output(truth.retrain)
    assert agg(output, truth)["priv"] == pytest.approx(1.0)
    assert mia_gap(output, truth) == 0.0
    assert privleak(output, truth) == pytest.approx(0.0)
    assert agg(Output(truth.target), truth)["utility"] in (0.0, pytest.approx(1.0))


@pytest.mark.slow
def test_the_target_knows_what_is_to_be_forgotten_and_the_retrained_model_does_not(load: Load) -> None:
    truth = load(MiniTofu, {}).truth
    assert keyword_forget(Output(truth.target), truth) >= 0.85
    assert keyword_forget(Output(truth.retrain), truth) <= 0.15


def test_digits_are_tokens_behind_a_start_and_classes_are_kept_apart(load: Load) -> None:
    rows = as_rows(np.array([[0.0, 16.0, 3.0]]))
    assert rows.tolist() == [[START, 0, 16, 3]]
    problem = load(Digits, {"images": 300, "epochs": 1, "width": 16, "small_width": 8, "layers": 1, "small_layers": 1})
    inputs, truth = problem.inputs, problem.truth
    known = {tuple(row[1:].tolist()): label for row, label in zip(as_rows(truth.images.pixels), truth.images.labels)}  # noqa: B905
    assert {known[tuple(row[1:].tolist())] for row in (*inputs.forget, *truth.holdout)} == {8}
    assert 8 not in {known[tuple(row[1:].tolist())] for row in (*inputs.retain, *truth.retain)}
    assert not any(np.shares_memory(a, b) for a in inputs.forget for b in truth.forget)
    assert image_loss(Output(truth.target), truth)["gap-share"] == 0.0
    assert image_loss(Output(truth.retrain), truth)["gap-share"] == pytest.approx(1.0)


def test_digits_without_a_forgotten_image_are_refused(load: Load) -> None:
    with pytest.raises(InputError, match="use more"):
        load(Digits, {"images": 200, "held_out": 0.001})


def test_samples_are_images_and_repeat(load: Load) -> None:
    truth = load(
        Digits, {"images": 300, "epochs": 1, "width": 16, "small_width": 8, "layers": 1, "small_layers": 1}
    ).truth
    state = torch.random.get_rng_state()
    one, again, other = (sample(truth.target, 3, seed) for seed in (1, 1, 2))
    assert one.shape == (3, 64)
    assert 0 <= one.min() <= one.max() <= 16
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.slow
def test_class_share_is_relative_to_the_target(load: Load) -> None:
    truth = load(Digits, {"images": 600}).truth
    found = class_share(Output(truth.target), truth, RunContext(0, stream=2))
    assert found["relative"] in (0.0, 1.0)
    assert 0 <= found[""] <= 1


def test_passages_have_one_length_and_continuations_join_to_them() -> None:
    assert passages("a b c d e f g", 6, 2) == ["a b", "c d", "e f"]
    row = continuation("a b c d", 3)
    assert row == QA("a b c", " d")
    assert row.question + row.answer == "a b c d"


def test_mini_muse_keeps_its_parts_apart(load: Load) -> None:
    config = {"topics": 8, "epochs": 1, "topic_words": 80, "width": 16, "small_width": 8, "layers": 1}
    problem = load(MiniMuse, config)
    inputs, truth = problem.inputs, problem.truth
    parts = [set(inputs.forget), set(inputs.retain), set(truth.holdout), set(inputs.background)]
    assert sum(len(part) for part in parts) == len(set.union(*parts))
    ids = inputs.tokenizer(inputs.forget[0], add_special_tokens=False)["input_ids"]
    assert inputs.tokenizer.decode(ids) == inputs.forget[0]
    row = truth.knowledge.verbatim[0]
    split = [inputs.tokenizer(text, add_special_tokens=False)["input_ids"] for text in (row.question, row.answer)]
    assert split[0] + split[1] == ids
    assert 0 <= verbmem(Output(truth.target), truth) <= 1
    assert set(token_loss(Output(truth.target), truth)) == {"forget", "retain", "holdout"}
