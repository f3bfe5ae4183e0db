"""The bars on made-up forward passes whose information flow is known."""

from __future__ import annotations

import numpy as np
import pytest
from icml26 import InputError, Problem, RunContext
from icml26_plugin_flashtrace.capture import check_identity
from icml26_plugin_flashtrace.dag_oracle import DagOracle, Sizes, attention_of
from icml26_plugin_flashtrace.metrics import recovery
from icml26_plugin_flashtrace.task import Inputs, Output, Truth
from icml26_plugin_flashtrace.tracing import blocks_of_captures, token_wise, trace
from pydantic import ValidationError


def problem(seed: int = 0, **config: int) -> Problem[Inputs, Truth]:
    return DagOracle(DagOracle.Config(**config)).load(RunContext(seed, stream=0))


@pytest.fixture(scope="module")
def graphs() -> list[Problem[Inputs, Truth]]:
    return [problem(seed, n_examples=2) for seed in range(10)]


def test_captures_obey_the_residual_identity(graphs: list[Problem[Inputs, Truth]]) -> None:
    example = graphs[0].inputs.examples[0]
    assert example.captures is not None
    blocks = blocks_of_captures(example.captures)
    assert len(blocks) == 2
    assert check_identity(blocks, list(range(example.n_tokens))) < 1e-5
    np.testing.assert_array_equal(blocks[0].x_mid, blocks[1].x_prev)


def test_attention_reads_what_it_should() -> None:
    gold = np.array([3, 17, 40])
    weights = attention_of(Sizes(), gold, np.random.default_rng(0))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert (np.triu(weights, 1) == 0).all()
    for row in range(100, 120):
        assert np.isin(weights[:, row].argmax(-1), gold).all()
    assert (weights[:, 120:, 100:120].sum(-1) >= 0.6).all()


def test_one_hop_recovers_what_token_wise_attribution_misses(graphs: list[Problem[Inputs, Truth]]) -> None:
    """The brief's bars, on ten seeds."""

    def score(name: str) -> tuple[float, float]:
        explain = {
            "ifr": token_wise,
            "cage": lambda e: token_wise(e, rollout=True),
            "k0": lambda e: trace(e, hops=0),
            "k1": trace,
            "k3": lambda e: trace(e, hops=3),
        }[name]
        found = [recovery(Output(tuple(map(explain, g.inputs.examples))), g.truth) for g in graphs]
        return tuple(float(np.mean([f[key] for f in found])) for key in ("", "gold-share"))  # type: ignore[return-value]

    (ifr, _), (cage, _), (k0, _), (k1, share), (k3, _) = map(score, ("ifr", "cage", "k0", "k1", "k3"))
    assert k1 >= 0.80
    assert k1 >= 4 * ifr
    assert k1 >= 0.80 * cage
    assert share >= 0.60
    assert k3 >= k1 - 0.02
    assert k0 < 0.3  # absorbed by the reasoning: without the hop there is nothing to see
    assert cage >= 0.95


def test_truth_shares_nothing_with_inputs_and_seeds_differ() -> None:
    a, b = problem(1, n_examples=1), problem(2, n_examples=1)
    assert a.truth.examples[0].captures is None
    assert (a.truth.gold[0] != b.truth.gold[0]).any()
    first, second = problem(1, n_examples=1).inputs.examples[0].captures, a.inputs.examples[0].captures
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.layers[1].x_mid, second.layers[1].x_mid)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValidationError, match="must divide width"):
        DagOracle.Config(n_heads=3)
    with pytest.raises(ValidationError, match="cannot exceed n_prompt"):
        DagOracle.Config(n_prompt=5)


def test_captures_that_do_not_belong_together_are_refused(graphs: list[Problem[Inputs, Truth]]) -> None:
    from dataclasses import replace

    example = graphs[0].inputs.examples[0]
    assert example.captures is not None
    layer = example.captures.layers[0]
    wrong = replace(example, captures=replace(example.captures, layers=(replace(layer, values=layer.values * 1.1),)))
    with pytest.raises(InputError, match="does not give x_mid"):
        trace(wrong)
