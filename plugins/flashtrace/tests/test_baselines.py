"""Baselines fulfil the identities that define them, and leave the model as it was."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from icml26 import InputError
from icml26_plugin_flashtrace.baselines.attention import mean_attention
from icml26_plugin_flashtrace.baselines.attnlrp import attnlrp, attnlrp_rules
from icml26_plugin_flashtrace.baselines.gradients import gradient_times_input, integrated_gradients
from icml26_plugin_flashtrace.baselines.perturbation import perturbation, sentence_units, token_units
from icml26_plugin_flashtrace.likelihood import log_probs
from random_models import FAMILIES, random_model

P, G = 9, 5
EOS = 1


def sequence(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(2, 64, size=P + G)


def weights(*places: int) -> np.ndarray:
    found = np.zeros(G)
    found[list(places)] = 1.0
    return found


@pytest.fixture(params=sorted(FAMILIES))
def model(request: pytest.FixtureRequest) -> torch.nn.Module:
    return random_model(request.param)


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.from_numpy(sequence())[None], use_cache=False).logits


def hook_count(model: torch.nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules())


def test_attnlrp_leaves_the_forward_pass_bit_for_bit_and_undoes_itself(model: torch.nn.Module) -> None:
    before = logits(model)
    with attnlrp_rules(model):
        inside = logits(model)
        assert hook_count(model) > 0
    assert torch.equal(before, inside)
    assert torch.equal(before, logits(model))
    assert hook_count(model) == 0


def test_attnlrp_undoes_itself_when_the_backward_pass_fails() -> None:
    model = random_model()
    with pytest.raises(RuntimeError, match="on purpose"), attnlrp_rules(model):
        raise RuntimeError("on purpose")
    assert hook_count(model) == 0


def test_one_attnlrp_backward_is_the_sum_over_targets(model: torch.nn.Module) -> None:
    ids = sequence()
    scale = np.array([0.0, 2.0, 0.5, 1.0, 0.0])
    whole = attnlrp(model, ids, P, scale)
    parts = sum(scale[k] * attnlrp(model, ids, P, weights(k)) for k in range(G) if scale[k])
    assert np.abs(whole).max() > 1e-3
    assert np.allclose(whole, parts, atol=1e-5 * np.abs(whole).max())


def test_attnlrp_conserves_relevance_without_attention_and_biases() -> None:
    """A model whose values are 0 is embedding → gated MLPs → head, where the rules hand on exactly the logit.

    The gated product passes half to the gate and half to the factor, and so gives x·∂ = the product itself.
    """
    model = random_model("llama")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.v_proj.weight.zero_()
    ids = sequence()
    found = attnlrp(model, ids, P, weights(2))
    expected = float(logits(model)[0, P + 1, ids[P + 2]])
    assert found.sum() == pytest.approx(expected, rel=1e-4)
    assert np.count_nonzero(np.abs(found) > 1e-7) == 1  # without attention only the predicting token matters


def test_attnlrp_follows_linear_attention_exactly() -> None:
    """With constant attention (queries 0) and no MLP all relevance is the logit, but for the half that softmax would have."""
    model = random_model("llama", num_hidden_layers=1)
    block = model.model.layers[0]
    with torch.no_grad():
        block.self_attn.q_proj.weight.zero_()
        block.mlp.down_proj.weight.zero_()
    ids = sequence()
    found = attnlrp(model, ids, P, weights(2))
    with torch.no_grad():
        x = model.model.embed_tokens(torch.from_numpy(ids))
        v = block.self_attn.v_proj(block.input_layernorm(x)).view(P + G, 2, 8).repeat_interleave(2, dim=1)
        i = P + 1
        mixed = block.self_attn.o_proj(v[: i + 1].reshape(i + 1, -1)) / (i + 1)
        y = x[i] + mixed.sum(0)
        scale = torch.rsqrt(y.pow(2).mean() + model.model.norm.variance_epsilon) * model.model.norm.weight
        row = model.lm_head.weight[ids[P + 2]] * scale
        expected = 0.5 * mixed @ row
        expected[i] += x[i] @ row
    assert np.allclose(found[: i + 1], expected.numpy(), atol=1e-4)
    assert not found[i + 1 :].any()


def half(x: torch.Tensor) -> torch.Tensor:
    """x, whose gradient is halved: what a product's rule gives each of its two factors."""
    return 0.5 * x + 0.5 * x.detach()


def normed(x: torch.Tensor, norm: Any) -> torch.Tensor:
    return norm.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon).detach()


def test_attnlrp_is_the_rules_written_out_for_llama() -> None:
    """An explicit forward pass with a factor's rule at each product, differentiated by autograd."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    model, ids = random_model("llama"), sequence()
    embedding = model.model.embed_tokens(torch.from_numpy(ids)[None]).detach().requires_grad_()
    x = embedding
    cos, sin = model.model.rotary_emb(x, torch.arange(P + G)[None])
    future = torch.full((P + G, P + G), -torch.inf).triu(1)
    for layer in model.model.layers:
        block, y = layer.self_attn, normed(x, layer.input_layernorm)
        q, k, v = (
            project(y).view(1, P + G, -1, 8).transpose(1, 2) for project in (block.q_proj, block.k_proj, block.v_proj)
        )
        q, k = apply_rotary_pos_emb(q, k, cos, sin)
        k, v = (z.repeat_interleave(2, dim=1) for z in (k, v))
        attention = torch.softmax(half(q) @ half(k).transpose(2, 3) / 8**0.5 + future, dim=-1)
        read = (half(attention) @ half(v)).transpose(1, 2).reshape(1, P + G, -1)
        x = x + block.o_proj(read)
        y = normed(x, layer.post_attention_layernorm)
        gate = layer.mlp.gate_proj(y)
        gated = gate * (layer.mlp.act_fn(gate) / gate).detach()
        x = x + layer.mlp.down_proj(half(gated) * half(layer.mlp.up_proj(y)))
    out = model.lm_head(normed(x, model.model.norm))
    assert torch.allclose(out, logits(model), atol=1e-4)
    out[0, P + 1, ids[P + 2]].backward()
    assert embedding.grad is not None
    expected = (embedding * embedding.grad).sum(-1)[0].detach().numpy()
    found = attnlrp(model, ids, P, weights(2))
    assert np.allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
def test_attnlrp_agrees_with_the_package_lxt() -> None:
    if importlib.util.find_spec("lxt") is None:
        pytest.skip("lxt is not installed")
    ids = sequence()
    script = str(Path(__file__).with_name("lxt_peer.py"))
    command = [sys.executable, "-W", "ignore", script, json.dumps(ids.tolist()), str(P), "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    theirs = np.array(json.loads(done.stdout.splitlines()[-1]))
    ours = attnlrp(random_model("llama"), ids, P, weights(2))
    assert np.allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())


def test_an_activation_of_nothing_passes_half() -> None:
    """a(x)/x has the limit 1/2 at 0, where the quotient itself is 0/0."""
    from icml26_plugin_flashtrace.baselines.attnlrp import _activation_rule

    activation = torch.nn.SiLU()
    activation.register_forward_hook(_activation_rule)
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    activation(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([0.5, float(torch.sigmoid(torch.tensor(1.0)))]))


def test_attnlrp_refuses_a_family_it_does_not_know() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng(devices=[]):
        model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, n_positions=32))
    with pytest.raises(InputError, match=r"llama, mistral.*'gpt2'"), attnlrp_rules(model):
        pass


def test_gradient_times_input_is_the_derivative_along_the_embedding(model: torch.nn.Module) -> None:
    ids = sequence()
    found = gradient_times_input(model, ids, P, weights(1, 3))
    place, step = 4, 1e-3
    table = model.get_input_embeddings()
    rows = table(torch.from_numpy(ids))[None].repeat(2, 1, 1)
    rows[0, place] *= 1 + step
    rows[1, place] *= 1 - step
    with torch.no_grad():
        out = torch.log_softmax(model(inputs_embeds=rows, use_cache=False).logits.double(), -1)
    value = out[:, P + 0, ids[P + 1]] + out[:, P + 2, ids[P + 3]]
    assert found[place] == pytest.approx(float(value[0] - value[1]) / (2 * step), rel=2e-2, abs=1e-3)
    assert not found[P + 3 :].any()  # nothing after the last predicting token can matter


def test_integrated_gradients_are_complete(model: torch.nn.Module) -> None:
    pytest.importorskip("captum")
    ids = sequence()
    scale = weights(1, 3)
    found = integrated_gradients(model, ids, P, scale, baseline=EOS, steps=400, batch_size=100)

    def value(prefix: np.ndarray) -> float:
        with torch.no_grad():
            out = model(input_ids=torch.from_numpy(prefix)[None], use_cache=False).logits[0].double()
        log = torch.log_softmax(out, -1)
        return float(log[P, ids[P + 1]] + log[P + 2, ids[P + 3]])

    difference = value(ids) - value(np.full_like(ids, EOS))
    assert found.sum() == pytest.approx(difference, rel=0.01)


def test_integrated_gradients_of_a_span_are_the_sum_over_its_tokens() -> None:
    pytest.importorskip("captum")
    model, ids = random_model(), sequence()
    options = {"baseline": EOS, "steps": 8}
    whole = integrated_gradients(model, ids, P, weights(1, 2, 4), **options)
    parts = sum(integrated_gradients(model, ids, P, weights(k), **options) for k in (1, 2, 4))
    assert np.allclose(whole, parts, atol=1e-5)
    assert np.allclose(whole, integrated_gradients(model, ids, P, weights(1, 2, 4), batch_size=3, **options), atol=1e-5)


def test_integrated_gradients_leave_the_model_alone() -> None:
    pytest.importorskip("captum")
    model = random_model()
    before = logits(model)
    integrated_gradients(model, sequence(), P, weights(1), baseline=EOS, steps=3)
    assert torch.equal(before, logits(model))
    assert hook_count(model) == 0


def test_perturbation_is_a_difference_of_log_probabilities() -> None:
    model, ids = random_model(), sequence()
    units = [np.array([0, 1, 2]), np.array([3]), np.arange(4, P)]
    found = perturbation(model, ids, P, weights(1, 4), units, filler=EOS, batch_size=2)
    intact = log_probs(model, ids, P)[0, [1, 4]].sum()
    for unit in units:
        changed = ids.copy()
        changed[unit] = EOS
        effect = intact - log_probs(model, changed, P)[0, [1, 4]].sum()
        assert np.allclose(found[unit], effect, atol=1e-5)


def test_kl_is_never_negative_and_zero_for_what_changes_nothing() -> None:
    model, ids = random_model(), sequence()
    ids[3] = EOS  # replaced by itself
    found = perturbation(model, ids, P, weights(0, 1, 2), token_units(["t"] * P), filler=EOS, score="kl")
    assert found[3] == pytest.approx(0.0, abs=1e-5)
    assert (found > -1e-6).all() and found.max() > 1e-3
    changed = ids.copy()
    changed[5] = EOS
    with torch.no_grad():
        p, q = (
            torch.log_softmax(model(input_ids=torch.from_numpy(x)[None], use_cache=False).logits[0].double(), -1)
            for x in (ids, changed)
        )
    by_hand = (p.exp() * (p - q)).sum(-1)[P - 1 : P + 2].sum()
    assert found[5] == pytest.approx(float(by_hand), rel=1e-4)


@pytest.mark.parametrize(
    ("tokens", "sizes"),
    [
        (["A", " b", ".", " C", " d", "."], [3, 3]),
        (["Pi", " is", " 3", ".", "14", ".", " Yes"], [6, 1]),
        (["He", " said", ' "', "no", '."', " Then"], [5, 1]),
        (["a", "\n", "b", "\n\n", "c"], [2, 2, 1]),
        (["x", " =", " 7", " ;", " y", " =", " x", " ;"], [4, 4]),
        (["no", " end"], [2]),
    ],
)
def test_sentences(tokens: list[str], sizes: list[int]) -> None:
    units = sentence_units(tokens)
    assert [len(unit) for unit in units] == sizes
    assert np.concatenate(units).tolist() == list(range(len(tokens)))


def test_mean_attention_is_the_models_own(model: torch.nn.Module) -> None:
    ids, rows = sequence(), np.array([P + 1, P + 3])
    found = mean_attention(model, ids, rows)
    assert hook_count(model) == 0
    with torch.no_grad():
        out = model(input_ids=torch.from_numpy(ids)[None], use_cache=False, output_attentions=True)
    expected = torch.stack(out.attentions)[:, 0][:, :, rows].double().mean((0, 1, 2))
    assert np.allclose(found, expected.numpy(), atol=1e-7)
    assert found.sum() == pytest.approx(1.0)


def test_mean_attention_refuses_attention_without_probabilities() -> None:
    model = random_model(attn_implementation="sdpa")
    with pytest.raises(InputError, match="eager"):
        mean_attention(model, sequence(), np.array([P]))
    assert hook_count(model) == 0


def test_log_probs_do_not_depend_on_the_batch_size_and_are_the_models(model: torch.nn.Module) -> None:
    ids = np.stack([sequence(k) for k in range(5)])
    found = log_probs(model, ids, P, batch_size=2)
    with torch.no_grad():
        out = torch.log_softmax(model(input_ids=torch.from_numpy(ids), use_cache=False).logits.double(), -1)
    expected = out[:, P - 1 : -1].gather(-1, torch.from_numpy(ids[:, P:])[..., None])[..., 0]
    assert np.allclose(found, expected.numpy(), atol=1e-4)
    assert np.allclose(found, log_probs(model, ids, P, batch_size=99), atol=1e-5)


def test_logits_that_are_not_finite_are_refused() -> None:
    model = random_model()
    with torch.no_grad():
        model.lm_head.weight[3] = torch.nan
    with pytest.raises(InputError, match="not finite"):
        log_probs(model, sequence(), P)
    with pytest.raises(InputError, match="no token"):
        log_probs(random_model(), sequence(), 0)
