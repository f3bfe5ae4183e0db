"""What the caller's process does around a call: other threads, autocast, default types, hooks of its own, failing passes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from builders import FAMILIES, random_blocks, tiny_model, token_ids
from icml26_plugin_flashtrace import FlashTrace, span_shares
from icml26_plugin_flashtrace.baselines.attnlrp import attnlrp
from icml26_plugin_flashtrace.kernel import token_shares

N, P = 40, 20


def scores(model: Any, seed: int = 0, **options: Any) -> np.ndarray:
    return FlashTrace(model, **options).attribute_ids(token_ids(N, seed), P, output_span=(10, 19), hops=2).scores


def state(model: Any) -> list[tuple[bool, int, int]]:
    return [(m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]


def in_threads(work: Any, count: int) -> list[Any]:
    """Results of ``work(k)`` in threads that start together; what one raises is raised here."""
    start, found = threading.Barrier(count), [None] * count

    def one(k: int) -> None:
        start.wait()
        try:
            found[k] = work(k)
        except Exception as error:  # noqa: BLE001 - handed to the caller, who raises it
            found[k] = error

    threads = [threading.Thread(target=one, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in found:
        if isinstance(result, Exception):
            raise result
    return found


@pytest.mark.parametrize("training", [False, True])
def test_threads_on_one_model_do_not_see_each_other(training: bool) -> None:
    """Without a lock hooks kept the other's pass, and one's return to training mode put dropout into the other's."""
    model = tiny_model(attention_dropout=0.5)
    expected = [scores(model, seed) for seed in range(4)]
    before = state(model.train(training))
    for seed, found in enumerate(in_threads(lambda k: [scores(model, k) for _ in range(5)], 4)):
        for one in found:
            np.testing.assert_allclose(one, expected[seed], atol=1e-6)
    assert state(model) == before


def test_a_forward_pass_of_the_users_in_another_thread_is_not_captured() -> None:
    model = tiny_model()
    other = torch.from_numpy(token_ids(N, 9))[None]
    expected = scores(model)
    begun, done = threading.Event(), threading.Event()

    def meanwhile(*_: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            begun.set()
            assert done.wait(20)

    def users() -> None:
        assert begun.wait(20)
        with torch.no_grad():
            model(input_ids=other)
        done.set()

    handle = model.model.layers[1].mlp.register_forward_hook(meanwhile)  # our pass stands still behind its last layer
    thread = threading.Thread(target=users)
    thread.start()
    found = scores(model)
    thread.join()
    handle.remove()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_baselines_in_threads_do_not_see_each_other() -> None:
    model = tiny_model().requires_grad_(False)
    weights = np.ones(N - P)
    expected = [attnlrp(model, token_ids(N, k), P, weights) for k in range(4)]
    found = in_threads(lambda k: [attnlrp(model, token_ids(N, k), P, weights) for _ in range(3)], 4)
    for k, several in enumerate(found):
        for one in several:
            np.testing.assert_allclose(one, expected[k], atol=1e-6)
    assert all(hooks == 0 for _, hooks, _ in state(model))


def test_autocast_of_the_callers_reaches_neither_model_nor_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def watched(*args: Any, **options: Any) -> Any:
        seen.append(torch.is_autocast_enabled("cpu"))
        return span_shares(*args, **options)

    monkeypatch.setattr("icml26_plugin_flashtrace.tracing.span_shares", watched)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = scores(tiny_model())
        assert torch.is_autocast_enabled("cpu")
    assert seen == [False] * 3
    np.testing.assert_allclose(found, scores(tiny_model()), atol=1e-7)


def test_another_default_type_changes_nothing() -> None:
    blocks = random_blocks()
    whole, rows, expected = span_shares(blocks, 6, 10), token_shares(blocks, 6, 10), scores(tiny_model())
    model = tiny_model()
    try:
        torch.set_default_dtype(torch.float64)
        again, more, found = span_shares(blocks, 6, 10), token_shares(blocks, 6, 10), scores(model)
    finally:
        torch.set_default_dtype(torch.float32)
    assert again.sources.dtype is again.residual.dtype is more.dtype is torch.float32
    torch.testing.assert_close(again.sources, whole.sources)
    torch.testing.assert_close(more, rows)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_hooks_of_the_users_stay_and_what_they_change_is_explained() -> None:
    model = tiny_model()
    plain = scores(model)
    calls: list[int] = []
    handle = model.model.layers[0].register_forward_hook(lambda *a: calls.append(1))
    np.testing.assert_array_equal(scores(model), plain)
    assert len(calls) == 1 and len(model.model.layers[0]._forward_hooks) == 1
    handle.remove()
    model.model.layers[0].self_attn.v_proj.register_forward_hook(lambda m, args, out: 2 * out)
    assert np.abs(scores(model) - plain).max() > 1e-3  # the identity was checked with the doubled values


def test_a_pass_that_fails_leaves_the_model_as_it_was() -> None:
    model = tiny_model().train()

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a hook of the user's")

    handle = model.model.layers[1].mlp.register_forward_hook(fail)
    before = state(model)
    with pytest.raises(ZeroDivisionError, match="a hook of the user's"):
        scores(model)
    assert state(model) == before
    handle.remove()
    np.testing.assert_array_equal(scores(model), scores(tiny_model()))  # and the model is not left locked


@pytest.mark.parametrize(
    "prepare",
    [
        lambda model: getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)(),
        lambda model: setattr(model.config, "use_cache", True),
        lambda model: setattr(model.config, "output_hidden_states", True),
        lambda model: model.train(),
    ],
    ids=["gradient checkpointing", "use_cache", "output_hidden_states", "training"],
)
def test_settings_of_the_model_change_nothing(prepare: Any) -> None:
    model = tiny_model()
    prepare(model)
    np.testing.assert_array_equal(scores(model), scores(tiny_model()))


def test_tied_embeddings_are_no_obstacle() -> None:
    model = tiny_model(tie_word_embeddings=True)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert scores(model).sum() > 0


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    ("dtype", "correlation"), [(torch.bfloat16, 0.97), (torch.float16, 0.9999), (torch.float64, 0.999999)]
)
def test_other_types_give_nearly_the_scores_of_float32(name: str, dtype: torch.dtype, correlation: float) -> None:
    """Against float32 with the very same (rounded) weights: what is left is the rounding of the model's own pass,
    since its own probabilities in that type give the same scores as recomputed ones."""
    model = tiny_model(name).to(dtype)
    found, own = scores(model), scores(model, recompute_attention=False)
    expected = scores(model.float())
    assert found.dtype == np.float32
    assert np.corrcoef(found, own)[0, 1] > 0.9999
    assert np.corrcoef(found, expected)[0, 1] > correlation
