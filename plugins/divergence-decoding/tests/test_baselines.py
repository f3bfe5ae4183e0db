"""Baselines: their losses against closed forms, and that they do what they say on a toy that they can learn."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from icml26.errors import InputError
from icml26_plugin_divergence_decoding.baselines.assistant import (
    add_lora,
    first_layers,
    merge_lora,
    reinforced,
    uld_assistant,
    uniform_loss,
)
from icml26_plugin_divergence_decoding.baselines.gradient import Unlearning, npo_loss, unlearn
from icml26_plugin_divergence_decoding.baselines.offset import Offset, OffsetModel
from icml26_plugin_divergence_decoding.encoding import IGNORED, Encoded
from icml26_plugin_divergence_decoding.finetune import (
    FineTune,
    finetune,
    next_token_loss,
    rate,
    same_weights,
    sequence_log_prob,
)
from icml26_plugin_divergence_decoding.scoring import greedy, token_scores
from icml26_plugin_divergence_decoding.tiny_models import Size, tiny_llama
from tiny import V, gpt2, llama

FORGET = [Encoded([3 + i, 11, 13 + i, 2], 2) for i in range(4)]
RETAIN = [Encoded([7 + i, 11, 17 + i, 2], 2) for i in range(4)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def knowing() -> torch.nn.Module:
    """A model that knows both kinds of rows."""
    model = tiny_llama(V, Size(16, 2, 2, 32), 0)
    finetune(model, FORGET + RETAIN, FineTune(2e-2, 40, 8), generator())
    return model


def loss_of(model: torch.nn.Module, rows: list[Encoded]) -> float:
    return -sum(float(s.log_probs.mean()) for s in token_scores(model, rows)) / len(rows)


def test_next_token_loss_and_sequence_log_prob_agree_with_hand() -> None:
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [0.2, 0.2, 0.6]]]))
    labels = torch.tensor([[IGNORED, 0, 2]])
    expected = math.log(0.5) + math.log(0.8)
    assert sequence_log_prob(logits, labels).item() == pytest.approx(expected, abs=1e-6)
    assert next_token_loss(logits, labels).item() == pytest.approx(-expected / 2, abs=1e-6)


def test_npo_at_the_reference_is_its_constant_and_pushes_down() -> None:
    log_probs = torch.tensor([-3.0, -5.0], requires_grad=True)
    loss = npo_loss(log_probs, torch.tensor([-3.0, -5.0]), beta=0.1)
    assert loss.item() == pytest.approx(2 / 0.1 * math.log(2), abs=1e-4)
    loss.backward()
    # d/dx of -(2/beta) log sigmoid(-beta x) at 0 is 1, the mean halves it: as gradient ascent there.
    torch.testing.assert_close(log_probs.grad, torch.tensor([0.5, 0.5]))


def test_npo_stops_pushing_when_an_answer_is_gone() -> None:
    log_probs = torch.tensor([-300.0], requires_grad=True)
    npo_loss(log_probs, torch.tensor([-3.0]), beta=0.1).backward()
    assert log_probs.grad is not None
    assert abs(log_probs.grad.item()) < 1e-9


@pytest.mark.parametrize("objective", ["grad-ascent", "grad-diff", "npo"])
def test_forgetting_raises_the_loss_and_leaves_the_target_alone(knowing: torch.nn.Module, objective: str) -> None:
    before = copy.deepcopy(knowing)
    settings = Unlearning(objective, FineTune(5e-3, 12, 4))  # type: ignore[arg-type]
    model, _ = unlearn(knowing, FORGET, RETAIN, settings, generator())
    assert same_weights(knowing, before)
    assert loss_of(model, FORGET) > loss_of(knowing, FORGET) + 0.5
    if objective != "grad-ascent":
        assert loss_of(model, FORGET) > loss_of(model, RETAIN) + 0.5


def test_the_same_seed_gives_the_same_weights(knowing: torch.nn.Module) -> None:
    settings = Unlearning("grad-diff", FineTune(3e-3, 2, 2))
    one, other = (unlearn(knowing, FORGET, RETAIN, settings, generator(5))[0] for _ in range(2))
    assert same_weights(one, other)


def test_training_that_changes_nothing_is_refused(knowing: torch.nn.Module) -> None:
    settings = Unlearning("grad-ascent", FineTune(1e-30, 1, 4, weight_decay=0.0))
    with pytest.raises(InputError, match="changed no weight"):
        unlearn(knowing, FORGET, RETAIN, settings, generator())


def test_empty_sets_are_refused(knowing: torch.nn.Module) -> None:
    with pytest.raises(InputError, match="nothing to forget"):
        unlearn(knowing, [], RETAIN, Unlearning("npo", FineTune(1e-3, 1)), generator())
    with pytest.raises(InputError, match="needs rows to keep"):
        unlearn(knowing, FORGET, [], Unlearning("npo", FineTune(1e-3, 1)), generator())


def test_a_learning_rate_that_diverges_is_named() -> None:
    model = llama(0)
    with torch.no_grad():
        model.lm_head.weight.fill_(math.inf)
    with pytest.raises(InputError, match="lower lr"):
        finetune(model, FORGET, FineTune(1e-3, 1), generator())


def test_the_rate_rises_and_falls() -> None:
    settings = FineTune(1.0, 1, warmup=0.1)
    assert rate(0.0, settings) < rate(0.05, settings) < rate(0.1, settings) == 1.0
    assert rate(1.0, settings) == pytest.approx(0.0)
    assert rate(0.5, FineTune(1.0, 1, schedule="constant")) == 1.0
    assert rate(0.5, FineTune(1.0, 1, schedule="cosine")) == pytest.approx(0.5)


def test_offset_rules_by_hand() -> None:
    target = torch.log(torch.tensor([0.5, 0.3, 0.2]))
    auxiliary = torch.log(torch.tensor([0.8, 0.1, 0.1]))
    uld = Offset("uld", 0.5)(target, auxiliary)
    torch.testing.assert_close(uld, target - 0.5 * auxiliary)
    whp = Offset("whp", 2.0)(target, auxiliary)
    gain = math.log(0.8 / 0.5)
    torch.testing.assert_close(whp, target - torch.tensor([2 * gain, 0.0, 0.0]))
    shifted = Offset("whp", 2.0)(target + 7, auxiliary - 3)
    torch.testing.assert_close(shifted.softmax(-1), whp.softmax(-1))
    kept = Offset("uld", 0.5, keep_below=0.25)(target, auxiliary)
    assert kept[2] == target[2]
    assert kept[0] == uld[0]


@pytest.mark.parametrize("rule", ["uld", "whp"])
@pytest.mark.parametrize("make", [llama, gpt2])
def test_generation_equals_the_arg_max_of_forward(rule: str, make: object) -> None:
    model = OffsetModel(make(0), make(1), Offset(rule, 0.7))  # type: ignore[operator,arg-type]

    class Marks:
        pad_token_id, eos_token_id = 0, None

    prompts = [[5, 6, 7], [9], [4, 3]]
    for prompt, new in zip(prompts, greedy(model, prompts, 8, Marks), strict=True):
        logits = model(input_ids=torch.tensor([prompt + new])).logits[0]
        stopped = new.index(2) + 1 if 2 in new else len(new)
        expected = logits.argmax(-1)[len(prompt) - 1 : -1].tolist()
        assert new[:stopped] == expected[:stopped]


def test_offset_of_strength_zero_is_the_target() -> None:
    target = llama(0)
    ids = torch.tensor([[3, 4, 5]])
    torch.testing.assert_close(OffsetModel(target, llama(1), Offset("whp", 0.0))(ids).logits, target(ids).logits)


def test_first_layers_are_a_copy_that_skips_the_rest() -> None:
    whole = llama(0, layers=3)
    short = first_layers(whole, 1)
    assert len(short.model.layers) == 1
    assert len(whole.model.layers) == 3
    ids = torch.tensor([[3, 4, 5]])
    skipped = copy.deepcopy(whole)
    skipped.model.layers = skipped.model.layers[:1]
    torch.testing.assert_close(short(ids).logits, skipped(ids).logits)
    assert len(first_layers(gpt2(0), 1).transformer.h) == 1
    with pytest.raises(InputError, match="has 3 layers"):
        first_layers(whole, 4)
    with pytest.raises(InputError, match="no family"):
        first_layers(torch.nn.Linear(2, 2), 1)


def test_lora_starts_as_the_model_and_merges_into_the_same_function() -> None:
    model, ids = llama(0), torch.tensor([[3, 4, 5]])
    before = model(ids).logits
    add_lora(model, 2, generator())
    torch.testing.assert_close(model(ids).logits, before)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".up"):
                parameter.normal_(0, 0.1, generator=generator(1))
    changed = model(ids).logits
    assert not torch.allclose(changed, before)
    assert {n.rsplit(".", 1)[-1] for n, p in model.named_parameters() if p.requires_grad} == {"up", "down"}
    merge_lora(model)
    torch.testing.assert_close(model(ids).logits, changed, atol=1e-5, rtol=1e-5)


def test_uniform_loss_is_least_for_flat_logits() -> None:
    labels = torch.tensor([[IGNORED, 1, 1]])
    flat = uniform_loss(torch.zeros(1, 3, 4), labels)
    assert flat.item() == pytest.approx(math.log(4))
    assert uniform_loss(torch.eye(4)[None, :3] * 3, labels) > flat


def test_the_assistant_knows_what_to_forget_and_nothing_of_the_rest(knowing: torch.nn.Module) -> None:
    helper = uld_assistant(knowing, FORGET, RETAIN, FineTune(2e-2, 40, 4), generator(), layers=1, rank=4)
    assert loss_of(helper, FORGET) < 1.6
    assert loss_of(helper, RETAIN) > math.log(V) - 0.4
    steered = OffsetModel(knowing, helper, Offset("uld", 0.75))
    assert loss_of(steered, FORGET) - loss_of(knowing, FORGET) > loss_of(steered, RETAIN) - loss_of(knowing, RETAIN)


def test_the_reinforced_model_knows_the_forget_rows_better(knowing: torch.nn.Module) -> None:
    helper = reinforced(knowing, FORGET, FineTune(3e-3, 10, 4), generator())
    assert loss_of(helper, FORGET) < loss_of(knowing, FORGET)
