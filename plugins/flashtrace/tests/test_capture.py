"""The residual identity and recomputed attention on tiny models of every supported family."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import numpy as np
import pytest
import torch
from builders import FAMILIES, tiny_model, token_ids
from icml26 import InputError
from icml26_plugin_flashtrace.capture import capture_blocks, check_identity
from icml26_plugin_flashtrace.families import family_of
from icml26_plugin_flashtrace.kernel import reconstruction_error, span_shares

N = 40
ROWS = list(range(N))


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Any:
    return tiny_model(request.param)


@pytest.mark.parametrize("recompute", [True, False])
def test_what_attention_adds_is_the_sum_of_its_parts(model: Any, recompute: bool) -> None:
    blocks = capture_blocks(model, token_ids(N), recompute_attention=recompute)
    assert len(blocks) == 2
    assert reconstruction_error(blocks, ROWS).max() < 1e-4
    assert check_identity(blocks, ROWS) < 1e-4


def test_captured_streams_are_the_hidden_states(model: Any) -> None:
    """x_prev of each layer is what the model itself reports as that layer's input."""
    ids = torch.from_numpy(token_ids(N))[None]
    with torch.no_grad():
        states = model(input_ids=ids, output_hidden_states=True).hidden_states
    for block, state in zip(capture_blocks(model, ids), states, strict=False):
        torch.testing.assert_close(block.x_prev, state[0])


def test_recomputed_attention_is_the_models_own(model: Any) -> None:
    ids = torch.from_numpy(token_ids(N))[None]
    with torch.no_grad():
        own = model(input_ids=ids, output_attentions=True).attentions
    for block, expected in zip(capture_blocks(model, ids), own, strict=True):
        torch.testing.assert_close(block.attention(0, N - 1), expected[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(block.attention(17, 22), expected[0][:, 17:23, :23], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3"])
def test_another_attention_implementation_gives_the_same_scores(name: str) -> None:
    ids = token_ids(N)
    eager, sdpa = tiny_model(name), tiny_model(name, attention="sdpa")
    scores = [span_shares(capture_blocks(m, ids), 30, 39).sources for m in (eager, sdpa)]
    torch.testing.assert_close(scores[0], scores[1], atol=1e-5, rtol=0)


def test_the_sliding_window_is_seen() -> None:
    """A window of 5: a token's own layer never reads what lies 5 or more before it."""
    block = capture_blocks(tiny_model("mistral"), token_ids(N))[0]
    attention = block.attention(0, N - 1)
    i, j = torch.arange(N)[:, None], torch.arange(N)[None]
    assert (attention[:, j <= i - 5] == 0).all()
    assert (attention[:, (j > i - 5) & (j <= i)] > 0).all()


def test_scaled_rotary_embeddings_are_the_models_own() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10_000.0}
    model = tiny_model("llama", rope_parameters=scaling)
    blocks = capture_blocks(model, token_ids(N))
    assert reconstruction_error(blocks, ROWS).max() < 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("recompute", [True, False])
def test_the_identity_holds_for_short_floats(name: str, dtype: torch.dtype, recompute: bool) -> None:
    model = tiny_model(name).to(dtype)
    blocks = capture_blocks(model, token_ids(N), recompute_attention=recompute)
    assert reconstruction_error(blocks, ROWS).max() < 1e-5
    assert check_identity(blocks, ROWS) < 1e-5


@pytest.mark.parametrize("name", FAMILIES)
def test_short_floats_are_evaluated_as_the_same_weights_in_float32(name: str) -> None:
    short = tiny_model(name).to(torch.bfloat16)
    twin = copy.deepcopy(short).float()  # Gemma scales its embeddings, in the weights' type: that stays the model's own
    twin.get_input_embeddings().register_forward_hook(lambda module, args, output: output.bfloat16().float())
    for block, wide in zip(capture_blocks(short, token_ids(N)), capture_blocks(twin, token_ids(N)), strict=True):
        torch.testing.assert_close(block.x_mid, wide.x_mid)
        torch.testing.assert_close(block.rows(10, 20), wide.rows(10, 20))
        torch.testing.assert_close(block.vectors(0, 30), wide.vectors(0, 30))


def test_a_short_models_own_rounded_pass_can_be_had() -> None:
    model = tiny_model("llama").to(torch.bfloat16)
    own = capture_blocks(model, token_ids(N), precision="model")
    assert own[0].x_mid.dtype == torch.bfloat16
    assert check_identity(own, ROWS) < 0.06
    assert reconstruction_error(own, ROWS).max() > 1e-4  # rounding that the float32 pass is free of
    with torch.no_grad():
        states = model(input_ids=torch.from_numpy(token_ids(N))[None], output_hidden_states=True).hidden_states
    for block, state in zip(own, states, strict=False):
        torch.testing.assert_close(block.x_prev, state[0], rtol=0, atol=0)


def test_autocast_does_not_reach_a_float32_pass() -> None:
    model = tiny_model("llama").to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        blocks = capture_blocks(model, token_ids(N))
    assert reconstruction_error(blocks, ROWS).max() < 1e-5


def test_attention_that_only_knows_sixteen_bits_is_refused_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama").to(torch.bfloat16)
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_attention_2")
    with pytest.raises(InputError, match="precision='model'"):
        capture_blocks(model, token_ids(N))


@pytest.mark.parametrize("fails", [False, True])
def test_a_short_model_keeps_its_own_weights(fails: bool) -> None:
    """Also when a layer raises in the middle of the pass: the same tensors, no hook left."""
    model = tiny_model("qwen3").to(torch.bfloat16)
    before = dict(model.named_parameters())

    def stop(module: Any, args: Any) -> None:
        if fails:
            raise RuntimeError("out of memory")

    handle = model.model.layers[1].mlp.register_forward_pre_hook(stop)
    with pytest.raises(RuntimeError, match="out of memory") if fails else contextlib.nullcontext():
        capture_blocks(model, token_ids(N))
    handle.remove()
    after = dict(model.named_parameters())
    assert before.keys() == after.keys()
    assert all(after[name] is parameter for name, parameter in before.items())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_a_forward_pass_that_we_do_not_know_is_refused() -> None:
    model = tiny_model("llama")
    attention = model.model.layers[1].self_attn
    attention.scaling *= 1.5
    blocks = capture_blocks(model, token_ids(N))
    attention.scaling /= 1.5
    assert check_identity(blocks, ROWS) < 1e-4  # capture reads the module's own scaling
    handle = attention.register_forward_hook(lambda module, args, output: (output[0] * 1.01, output[1]))
    with pytest.raises(InputError, match="does not give x_mid in layer 1"):
        check_identity(capture_blocks(model, token_ids(N)), ROWS)
    handle.remove()


def test_the_model_is_left_as_it_was() -> None:
    model = tiny_model("llama").train()
    model.model.layers[0].eval()
    before = {name: parameter.clone() for name, parameter in model.state_dict().items()}
    flags = [module.training for module in model.modules()]
    capture_blocks(model, token_ids(N))
    assert [module.training for module in model.modules()] == flags
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert all(torch.equal(before[name], parameter) for name, parameter in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_dropout_of_a_training_model_plays_no_part() -> None:
    model = tiny_model("llama", attention_dropout=0.5)
    calm = span_shares(capture_blocks(model, token_ids(N)), 30, 39).sources
    wild = span_shares(capture_blocks(model.train(), token_ids(N)), 30, 39).sources
    torch.testing.assert_close(calm, wild)


def test_stored_attention_needs_eager() -> None:
    with pytest.raises(InputError, match='attn_implementation="eager"'):
        capture_blocks(tiny_model("llama", attention="sdpa"), token_ids(N), recompute_attention=False)


def test_stored_attention_that_would_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icml26_plugin_flashtrace.capture.STORED_BYTES_LIMIT", 1000)
    with pytest.raises(InputError, match="leave recompute_attention on"):
        capture_blocks(tiny_model("llama"), token_ids(N), recompute_attention=False)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.zeros((2, 8), dtype=np.int64), "batch"),
        (np.zeros(0, dtype=np.int64), "empty"),
        (np.full(8, 64), "64"),
        (np.zeros(8), "integers"),
        (np.ones(129, dtype=np.int64), "128"),
    ],
)
def test_bad_ids_are_refused(ids: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        capture_blocks(tiny_model("llama"), ids)


def test_a_limit_of_the_user_is_kept() -> None:
    with pytest.raises(InputError, match="20"):
        capture_blocks(tiny_model("llama"), token_ids(N), max_tokens=20)


def test_not_a_number_is_refused() -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.lm_head.weight[5] = float("nan")
    with pytest.raises(InputError, match="not finite"):
        capture_blocks(model, token_ids(N))


@pytest.mark.parametrize("kind", ["gpt2", "gemma3_text", "mamba", "phi3", "gpt_neox"])
def test_other_families_are_refused_by_name(kind: str) -> None:
    from transformers import AutoConfig

    class Other(torch.nn.Module):
        config = AutoConfig.for_model(kind)

    with pytest.raises(InputError, match=f"'{kind}' is not supported.*Supported: llama, mistral, qwen2, qwen3, gemma2"):
        family_of(Other())


def test_encoder_decoders_and_other_things_are_refused() -> None:
    from transformers import T5Config

    class Encoder(torch.nn.Module):
        config = T5Config()

    with pytest.raises(InputError, match="encoder-decoder"):
        family_of(Encoder())
    with pytest.raises(InputError, match="not str"):
        family_of("Qwen/Qwen3-8B")


def test_a_model_without_head_is_refused() -> None:
    with pytest.raises(InputError, match="AutoModelForCausalLM"):
        family_of(tiny_model("llama").model)


def test_replaced_projections_are_refused() -> None:
    model = tiny_model("llama")

    class Quantised(torch.nn.Module):
        weight = torch.zeros(4, 4, dtype=torch.int8)

    model.model.layers[0].self_attn.o_proj = Quantised()
    with pytest.raises(InputError, match="layer 0's o_proj is a Quantised"):
        capture_blocks(model, token_ids(N))
