"""The rank command: its table, its files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from icml26_plugin_subspace_sae.model_rows import Windows, pack
from icml26_plugin_subspace_sae.rank_command import main, ranks_of_model, share_for_loss
from tiny_models import gpt2, llama, tokenizer, trained_llama

TEXTS = [f"Sentence number {i} of a long and {i % 7} times winding story about {i * i} things. " * 4 for i in range(12)]


def test_a_file_is_measured_and_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((10, 3)))[0]
    np.save(tmp_path / "acts.npy", (rng.standard_normal((5000, 3)) @ basis.T + 7).astype(np.float32))
    np.save(tmp_path / "few.npy", rng.standard_normal((40, 10)))
    files = [str(tmp_path / name) for name in ("acts.npy", "few.npy")]
    code = main([*files, "--json", str(tmp_path / "out.json"), "--figure", str(tmp_path / "out.png")])
    out = capsys.readouterr().out
    assert code == 0 and "acts.npy" in out and "3.0 (0.300)" in out and "few.npy: 40 rows for 10 dimensions" in out
    first, second = json.loads((tmp_path / "out.json").read_text())
    assert first["effective_rank"] == pytest.approx(3, abs=0.01) and first["directions_99"] == 3
    assert len(second["singular_values"]) == 10
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_hook_points_of_a_model_are_measured_in_one_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llama().save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    (tmp_path / "text.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    hooks = ["--hook", "layers.1.attn_out", "--hook", "layers.1.resid_post"]
    options = ["--model", str(tmp_path), "--text", str(tmp_path / "text.jsonl"), *hooks, "--context", "32", "--heads"]
    assert main([*options, "--json", str(tmp_path / "out.json")]) == 0
    out = capsys.readouterr().out
    assert "layers.1.resid_post" in out and "overlap" in out
    attention, residual = json.loads((tmp_path / "out.json").read_text())
    assert attention["heads"]["after_w_o"] == pytest.approx(attention["effective_rank"], rel=1e-3)
    assert "heads" not in residual and residual["rows"] == attention["rows"]


def test_gpt2_keeps_its_output_weight_transposed() -> None:
    (found,) = ranks_of_model(gpt2(), tokenizer(), TEXTS, ["layers.1.attn_out"], context=32, heads=True)
    assert found.heads is not None
    assert found.heads.after == pytest.approx(found.report.effective_rank, rel=1e-3)


def test_the_loss_is_measured_on_text_that_the_spectrum_does_not_see() -> None:
    model = trained_llama(TEXTS)
    hook = "layers.0.resid_post"
    windows = pack(tokenizer(), TEXTS, context=32)
    (found,) = ranks_of_model(model, tokenizer(), TEXTS, [hook], context=32, loss_tokens=64, loss_hooks=[hook])
    assert found.report.rows == Windows(windows.ids[:-2], windows.kept[:-2]).rows
    assert [rank for rank, _ in found.loss] == [3, 8, 13, 16, 19, 22, 26, 29]
    recovered = [value for _, value in found.loss]
    assert recovered[0] < recovered[3] < recovered[-1] and recovered[-1] > 0.9
    assert 0 < found.as_json()["share_for_90_percent_of_the_loss"] < 1


def test_the_share_for_a_loss_is_linear_between_points() -> None:
    assert share_for_loss([(2, 0.4), (4, 0.8), (6, 1.0)], 10) == pytest.approx(0.5)
    assert share_for_loss([(2, 0.95)], 10) == pytest.approx(0.2 * 0.9 / 0.95)
    assert share_for_loss([(2, 0.4), (8, 0.8)], 10) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "one of the two"),
        (["missing.npy"], "no such file"),
        (["--model", "/nowhere/model"], "--hook"),
        (["--model", "/nowhere/model", "--hook", "layers.0.attn_out"], "neither a folder"),
        (["a.npy", "--model", "b"], "one of the two"),
    ],
)
def test_wrong_input_ends_with_code_2_and_a_reason(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "name", "words"),
    [
        ("--json", "", "is a folder"),
        ("--json", "none/x.json", "no folder"),
        ("--figure", "none/x.png", "no folder"),
        ("--figure", "spectrum", "must end in"),
        ("--figure", "spectrum.txt", "must end in"),
    ],
)
def test_outputs_that_cannot_be_written_are_told_before_measuring(
    option: str, name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((40, 6)))
    assert main([str(tmp_path / "x.npy"), option, str(tmp_path / name)]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]
