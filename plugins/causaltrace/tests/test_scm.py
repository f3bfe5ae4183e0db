"""The structural model against closed forms and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from icml26.errors import InputError
from icml26_plugin_causaltrace.scm import EXACT_LIMIT, Effect, NoisyOr, deterministic_effect, noisy_or


def two_causes(p1: float, p2: float) -> NoisyOr:
    """Injection 0, task 1, call 2."""
    return NoisyOr(3, {(0, 2): p1, (1, 2): p2}, frozenset({0, 1}))


@pytest.mark.parametrize(("p1", "p2"), [(0.8, 0.0), (0.8, 0.5), (0.3, 0.9), (0.0, 0.4)])
def test_two_causes_have_the_closed_form(p1, p2):
    effect = two_causes(p1, p2).effect({0}, 2)
    assert effect.ate == pytest.approx((1 - p2) * p1, abs=1e-12)
    assert effect.pn == pytest.approx((1 - p2) * p1 / (1 - (1 - p1) * (1 - p2)), abs=1e-12)
    assert effect.ps == pytest.approx(p1, abs=1e-12)


def test_a_call_that_the_task_makes_certain_owes_nothing_to_the_injection():
    effect = two_causes(0.8, 1.0).effect({0}, 2)
    assert (effect.ate, effect.pn, effect.ps) == (0.0, 0.0, 0.0)
    assert Effect.of(0.0, 0.0) == Effect(0.0, 0.0, 0.0, 0.0, 0.0)


def random_model(rng: np.random.Generator, size: int, edges: int) -> NoisyOr:
    pairs = [(i, j) for i in range(size) for j in range(i + 1, size)]
    chosen = [pairs[k] for k in rng.choice(len(pairs), size=min(edges, len(pairs)), replace=False)]
    triggers = {pair: float(rng.choice([0.0, 1.0, rng.random(), rng.random()])) for pair in chosen}
    gates = frozenset(pair for pair in pairs if pair not in triggers and rng.random() < 0.05)
    return NoisyOr(size, triggers, frozenset({0, 1}), {size - 1: 0.025}, gates)


def brute_force(model: NoisyOr, block: set[int], outcome: int) -> tuple[float, float]:
    """P(Y) and P(Y, Y without the block) over all states of all edges and leaks, by recursion on nodes."""
    edges = sorted(model.triggers)
    leaks = sorted(model.leaks)
    q_all = q_both = 0.0
    for state in itertools.product((False, True), repeat=len(edges) + len(leaks)):
        weight = 1.0
        for on, p in zip(state, [model.triggers[e] for e in edges] + [model.leaks[n] for n in leaks], strict=True):
            weight *= p if on else 1 - p
        if weight == 0.0:
            continue
        live = {e for e, on in zip(edges, state, strict=False) if on}
        leaky = {n for n, on in zip(leaks, state[len(edges) :], strict=True) if on}

        def world(held: set[int], live=live, leaky=leaky) -> list[bool]:
            on: list[bool] = []
            for node in range(model.size):
                fires = node in model.roots or node in leaky or any(b == node and on[a] for a, b in live)
                ready = all(on[a] for a, b in model.gates if b == node)
                on.append(fires and ready and node not in held)
            return on

        factual = world(set())[outcome]
        q_all += weight * factual
        q_both += weight * (factual and world(block)[outcome])
    return q_all, q_both


@pytest.mark.parametrize("seed", range(12))
def test_enumeration_equals_brute_force(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, 6, 8)
    block = {int(rng.integers(0, 5))}
    q_all, q_do = brute_force(model, block, 5)
    effect = model.effect(block, 5)
    assert (effect.q_all, effect.q_do) == pytest.approx((q_all, q_do), abs=1e-12)


def test_draws_agree_with_enumeration_within_three_standard_errors():
    rng = np.random.default_rng(5)
    triggers = {(i, j): float(rng.uniform(0.1, 0.6)) for i in range(7) for j in range(i + 1, 7)}
    large = NoisyOr(7, triggers, frozenset({0, 1}))
    assert len(large.uncertain()) > EXACT_LIMIT
    # The closed form of a graph this size is out of reach for brute force; an independent, much larger sample is not.
    draws = 40_000
    ours = large.effect({0}, 6, rng=np.random.default_rng(1), draws=4096)
    reference = large.effect({0}, 6, rng=np.random.default_rng(2), draws=draws)
    error = 3 * np.sqrt(0.25 / 4096 + 0.25 / draws)
    assert abs(ours.q_all - reference.q_all) < error and abs(ours.q_do - reference.q_do) < error


def test_do_removes_incoming_edges_is_idempotent_and_leaves_the_model_alone():
    model = random_model(np.random.default_rng(3), 6, 10)
    before = (dict(model.triggers), model.roots, dict(model.leaks), model.gates)
    held = model.do({2})
    assert all(child != 2 for _, child in held.triggers)
    assert held.do({2}) == held
    assert (dict(model.triggers), model.roots, dict(model.leaks), model.gates) == before
    # Downstream of nothing: blocking the outcome's own descendant changes nothing.
    leaf = NoisyOr(4, {(0, 1): 0.7, (1, 3): 0.5}, frozenset({0}))
    assert leaf.effect({3}, 1).ate == 0.0


def test_deterministic_mode_knows_single_and_alternative_paths():
    single = NoisyOr(4, {(0, 2): 1.0, (2, 3): 1.0}, frozenset({0, 1}))
    assert deterministic_effect(single, {0}, 3) == 1.0
    second = NoisyOr(4, {(0, 2): 1.0, (2, 3): 1.0, (1, 3): 1.0}, frozenset({0, 1}))
    assert deterministic_effect(second, {0}, 3) == 0.5
    state_only = NoisyOr(4, {(0, 2): 1.0, (2, 3): 1.0}, frozenset({0, 1}), gates=frozenset({(1, 3)}))
    assert deterministic_effect(state_only, {0}, 3) == 1.0
    assert deterministic_effect(single, {1}, 3) == 0.0
    # The other root's only path runs through the blocked node: that is no alternative.
    through = NoisyOr(4, {(0, 1): 1.0, (1, 3): 1.0}, frozenset({0, 1}))
    assert deterministic_effect(through, {1}, 3) == 1.0


def test_two_injections_that_each_suffice_must_be_blocked_together():
    model = NoisyOr(3, {(0, 2): 1.0, (1, 2): 1.0}, frozenset({0, 1}))
    assert model.effect({0}, 2).pn == 0.0
    assert model.effect({0, 1}, 2).pn == 1.0


def test_backward_edges_and_wrong_probabilities_are_refused():
    with pytest.raises(InputError, match="acyclic"):
        NoisyOr(3, {(2, 1): 0.5}, frozenset({0}))
    with pytest.raises(InputError, match="not in"):
        NoisyOr(3, {(0, 1): 1.5}, frozenset({0}))


def test_noisy_or_of_no_parents_is_the_leak():
    assert noisy_or([], 0.025) == pytest.approx(0.025)
    assert noisy_or([0.5, 0.5]) == pytest.approx(0.75)
