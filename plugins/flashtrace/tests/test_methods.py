"""The methods through icml26: a user's text and model folder, resuming, storing, drawing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import icml26
import numpy as np
import pytest
from builders import tiny_model, words_tokenizer
from icml26 import InputError, RunContext
from icml26.fingerprints import fingerprint
from icml26_plugin_flashtrace.dag_oracle import DagOracle
from icml26_plugin_flashtrace.explainer import load_attribution
from icml26_plugin_flashtrace.methods import CageMethod, FlashTraceMethod, IfrMethod
from icml26_plugin_flashtrace.task import Attribution, Example, Inputs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder and two texts, as a user would have them."""
    path = tmp_path_factory.mktemp("user")
    tiny_model().save_pretrained(path / "model")
    words_tokenizer().save_pretrained(path / "model")
    (path / "prompt.txt").write_text("w1 w2, w3 w4. the w5", encoding="utf-8")
    (path / "answer.txt").write_text("w2 w3 the answer is w7", encoding="utf-8")
    return path


@pytest.fixture
def inputs() -> Inputs:
    return DagOracle(DagOracle.Config(n_examples=2)).load(RunContext(0, stream=0)).inputs


def test_a_users_text_and_model_folder(folder: Path, tmp_path: Path) -> None:
    found = icml26.run(
        "flashtrace",
        dataset="text-file",
        dataset_config={
            "path": str(folder / "prompt.txt"),
            "generation_path": str(folder / "answer.txt"),
            "model_path": str(folder / "model"),
            "output": r"w\d$",
        },
        config={"hops": 2},
        output=tmp_path / "runs",
        store=tmp_path / "store.sqlite",
    )
    assert found.record.status == "succeeded"
    (attribution,) = found.output.attributions
    assert attribution.hops.shape[0] == 3
    runs = tmp_path / "runs" / found.record.id
    rows = [json.loads(line) for line in (runs / "attributions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows[0]["scores"] == pytest.approx(attribution.scores.tolist(), abs=1e-6)
    assert "".join(rows[0]["tokens"]) == "w1 w2, w3 w4. the w5w2 w3 the answer is w7"
    assert (runs / "heatmap-1.html").is_file()
    assert (runs / "heatmap-1.png").is_file()


def test_a_text_that_is_too_long_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("w1 " * 200, encoding="utf-8")
    found = icml26.run(
        "flashtrace",
        dataset="text-file",
        dataset_config={
            "path": str(tmp_path / "long.txt"),
            "generation_path": str(folder / "answer.txt"),
            "model_path": str(folder / "model"),
        },
        reference=False,
        output=tmp_path / "runs",
        store=tmp_path / "store.sqlite",
    )
    assert found.record.status == "refused"
    assert found.record.error is not None
    assert "the model's context 128" in found.record.error["message"]


def test_a_stopped_run_goes_on(inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    stops = ["once"]
    real = FlashTraceMethod.explain

    def explain(self: Any, example: Example, *args: Any) -> Attribution:
        calls.append(example.id)
        if example.id == "graph-2" and stops:
            raise RuntimeError(stops.pop())
        return real(self, example, *args)

    monkeypatch.setattr(FlashTraceMethod, "explain", explain)
    method = FlashTraceMethod(FlashTraceMethod.Config(resume=str(tmp_path)))
    with pytest.raises(RuntimeError, match="once"):
        method.run(inputs, RunContext(0))
    output = method.run(inputs, RunContext(0))
    assert calls == ["graph-1", "graph-2", "graph-2"]
    assert fingerprint(output) == fingerprint(FlashTraceMethod(FlashTraceMethod.Config()).run(inputs, RunContext(0)))
    calls.clear()
    FlashTraceMethod(FlashTraceMethod.Config(resume=str(tmp_path), hops=2)).run(inputs, RunContext(0))
    assert calls == ["graph-1", "graph-2"]  # another config is another result


def test_a_broken_stored_example_is_named(inputs: Inputs, tmp_path: Path) -> None:
    method = FlashTraceMethod(FlashTraceMethod.Config(resume=str(tmp_path)))
    method.run(inputs, RunContext(0))
    path = next(tmp_path.glob("*.npz"))
    path.write_bytes(b"not an archive")
    with pytest.raises(InputError, match=path.name):
        method.run(inputs, RunContext(0))


@pytest.mark.parametrize("method", [FlashTraceMethod, IfrMethod, CageMethod])
def test_outputs_are_stored_whole(method: Any, inputs: Inputs, tmp_path: Path) -> None:
    output = method(method.Config()).run(inputs, RunContext(0))
    method(method.Config()).save(output, tmp_path)
    again = method.load(tmp_path)
    assert fingerprint(again) == fingerprint(output)
    assert again.attributions[0].seconds == output.attributions[0].seconds
    assert load_attribution(tmp_path / "00001.npz").peak_memory_bytes == output.attributions[1].peak_memory_bytes


def test_options_reach_the_kernel(inputs: Inputs) -> None:
    def scores(method: Any = FlashTraceMethod, **config: Any) -> np.ndarray:
        found: np.ndarray = method(method.Config(**config)).run(inputs, RunContext(0)).attributions[0].scores
        return found

    plain = scores()
    for changes in (
        {"hops": 0},
        {"recursion_span": "reasoning"},
        {"start": "recursion-span"},
        {"renorm_threshold": 0.5},
    ):
        assert np.abs(scores(**changes) - plain).max() > 1e-4, changes
    assert np.abs(scores(stop_tokens=("p3",)) - plain)[3] == plain[3]
    np.testing.assert_allclose(scores(chunk_tokens=5), plain, atol=1e-6)
    np.testing.assert_allclose(scores(IfrMethod, sink_chunk=1), scores(IfrMethod), atol=1e-6)
