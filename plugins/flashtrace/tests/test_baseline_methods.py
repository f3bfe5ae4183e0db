"""The adapters: every baseline explains a problem whole, and the controls know what they should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from icml26 import InputError, RunContext
from icml26_plugin_flashtrace import baseline_methods
from icml26_plugin_flashtrace.deletion import deletion, leave_one_out_correlation
from icml26_plugin_flashtrace.metrics import recovery
from icml26_plugin_flashtrace.problem import problem_of, told
from icml26_plugin_flashtrace.symbols import VOCABULARY, symbol_tokenizer, texts_of
from icml26_plugin_flashtrace.task import Example, Inputs
from random_models import random_model

P, G = 12, 6


def problem(n: int = 2, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    examples, gold = [], []
    for k in range(n):
        ids = rng.integers(2, 48, size=P + G)
        ids[[3, 7]] = VOCABULARY.index(";")
        examples.append(Example(f"e{k}", texts_of(ids), ids, P, (4, 5), (0, 3)))
        gold.append(rng.permutation(P) < 3)
    return problem_of(examples, gold, random_model("llama", vocab_size=len(VOCABULARY)), symbol_tokenizer())


def run(name: str, inputs: Inputs, **config: Any) -> Any:
    method = getattr(baseline_methods, name)
    return method(method.Config(**config)).run(inputs, RunContext(0))


METHODS = ["AttnLrp", "GradientTimesInput", "Perturbation", "Clp", "MeanAttention", "Random", "Position"]


@pytest.mark.parametrize("name", [*METHODS, "IntegratedGradients"])
def test_every_baseline_explains_every_example(name: str) -> None:
    if name == "IntegratedGradients":
        pytest.importorskip("captum")
    made = problem()
    before = {key: value.clone() for key, value in made.inputs.model.state_dict().items()}
    output = run(name, made.inputs)
    assert len(output.attributions) == 2
    for attribution in output.attributions:
        assert attribution.scores.shape == (P,) and attribution.scores.dtype == np.float32
        assert attribution.hops.shape == (1, P) and attribution.generation_scores.shape == (G,)
        assert np.isfinite(attribution.scores).all() and np.ptp(attribution.scores) > 0
        assert {"attribution", "attribution-cpu"} <= set(attribution.seconds)
    assert all((before[key] == value).all() for key, value in made.inputs.model.state_dict().items())


@pytest.mark.parametrize("name", ["AttnLrp", "Perturbation"])
def test_methods_on_a_model_refuse_a_problem_without_one(name: str) -> None:
    made = problem(1)
    with pytest.raises(InputError, match="gives none"):
        run(name, Inputs(made.inputs.examples))


def test_an_answer_of_stop_tokens_is_refused() -> None:
    made = problem(1)
    stops = tuple({made.inputs.examples[0].tokens[P + k].strip() for k in (4, 5)})
    with pytest.raises(InputError, match="only stop tokens"):
        run("GradientTimesInput", made.inputs, stop_tokens=stops)


def test_random_scores_are_a_runs_own_and_survive_a_stop(tmp_path: Path) -> None:
    made = problem(3)
    whole = run("Random", made.inputs)
    assert not np.array_equal(whole.attributions[0].scores, whole.attributions[1].scores)
    run("Random", made.inputs, resume=str(tmp_path))
    stored = sorted(tmp_path.glob("*.npz"))
    assert len(stored) == 3
    stored[1].unlink()
    resumed = run("Random", made.inputs, resume=str(tmp_path))
    for a, b in zip(whole.attributions, resumed.attributions, strict=True):
        assert np.array_equal(a.scores, b.scores)


def test_position_rises_or_falls() -> None:
    made = problem(1)
    assert (np.diff(run("Position", made.inputs).attributions[0].scores) > 0).all()
    assert (np.diff(run("Position", made.inputs, first="earliest").attributions[0].scores) < 0).all()


def test_perturbation_by_token_ranks_like_leave_one_out_of_the_answer() -> None:
    made = problem(1)
    assert len(np.unique(run("Perturbation", made.inputs, unit="token").attributions[0].scores)) == P


def test_told_outputs_are_best_and_worst() -> None:
    made = problem()
    best, worst = (recovery(told(made, right=right), made.truth) for right in (True, False))
    assert best[""] == best["ceiling"] and worst[""] == 0.0


def test_metrics_that_ask_the_model_are_finite_and_bounded() -> None:
    made = problem()
    output = run("AttnLrp", made.inputs)
    areas = deletion(output, made.truth, RunContext(0), steps=5)
    assert 0 <= areas["rise"] <= 1 and 0 <= areas["mas"] <= 1 and 0 <= areas["rise-ap"] <= 2 and areas["flat"] == 0
    assert -1 <= leave_one_out_correlation(output, made.truth, RunContext(0))[""] <= 1


def test_the_order_of_leave_one_out_effects_correlates_fully_with_itself() -> None:
    """Scores that are the effects themselves have rank correlation 1."""
    import dataclasses

    from icml26_plugin_flashtrace.deletion import leave_one_out, target_likelihood
    from icml26_plugin_flashtrace.likelihood import filler_id
    from icml26_plugin_flashtrace.task import Output

    made = problem(1)
    (attribution,) = run("Position", made.inputs).attributions
    model, tokenizer = made.truth.model, made.truth.tokenizer
    example = made.truth.examples[0]
    likelihood = target_likelihood(model, tokenizer, example, 4)
    effect = leave_one_out(example, attribution.kept[:P], likelihood, filler_id(tokenizer, model))
    copy = dataclasses.replace(attribution, scores=effect)
    assert leave_one_out_correlation(Output((copy,)), made.truth, RunContext(0))[""] == pytest.approx(1.0)
