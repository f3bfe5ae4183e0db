"""Outputs survive storing, and damaged ones are refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from icml26.errors import InputError
from icml26.fingerprints import fingerprint
from icml26_plugin_divergence_decoding.fusion import Fusion
from icml26_plugin_divergence_decoding.model import DivergenceModel
from icml26_plugin_divergence_decoding.ngram import NGramModel
from icml26_plugin_divergence_decoding.storage import load_output, save_output
from icml26_plugin_divergence_decoding.task import Output
from safetensors.torch import load_file, save_file
from tiny import V, gpt2, llama

IDS = torch.tensor([[1, 4, 6, 3]])


def counted(*ids: int) -> NGramModel:
    return NGramModel.count([list(ids)], V)


MODELS = {
    "plain": lambda: gpt2(0),
    "linear": lambda: DivergenceModel(llama(0), llama(1), llama(2), Fusion(1.2, pinned=(2,))),
    "rank": lambda: DivergenceModel(llama(0), llama(1), llama(2), Fusion(0, rank_k=3), candidates=[4, 5, 6]),
    "ngram": lambda: DivergenceModel(llama(0), counted(1, 2, 3, 1, 2), counted(4, 5), Fusion(9.0)),
    "bfloat16": lambda: DivergenceModel(llama(0, dtype=torch.bfloat16), llama(1), llama(2)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_stored_model_is_the_same(name: str, tmp_path: Path) -> None:
    output = Output(MODELS[name](), {"alpha": 1.2})
    save_output(output, tmp_path)
    loaded = load_output(tmp_path)
    assert fingerprint(loaded) == fingerprint(output)
    assert torch.equal(loaded.model(IDS).logits, output.model(IDS).logits)
    assert not [p for p in tmp_path.rglob("*") if p.suffix in (".bin", ".pt", ".pkl")]


@pytest.mark.parametrize("victim", ["model.json", "model.safetensors", "config.json"])
@pytest.mark.parametrize("how", ["gone", "half", "empty"])
def test_damaged_outputs_are_refused(victim: str, how: str, tmp_path: Path) -> None:
    save_output(Output(MODELS["linear"](), {}), tmp_path)
    path = next(p for p in sorted(tmp_path.rglob(victim)))
    content = path.read_bytes()
    path.unlink()
    if how != "gone":
        path.write_bytes(content[: len(content) // 2] if how == "half" else b"")
    with pytest.raises(InputError, match=str(tmp_path)):
        load_output(tmp_path)


def test_only_classes_of_ours_are_made_from_stored_names(tmp_path: Path) -> None:
    save_output(Output(MODELS["linear"](), {}), tmp_path)
    described = json.loads((tmp_path / "model" / "model.json").read_text())
    (tmp_path / "model" / "model.json").write_text(json.dumps(described | {"kind": "subprocess:Popen"}))
    with pytest.raises(InputError, match="no complete model"):
        load_output(tmp_path)


def test_what_cannot_be_stored_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--no-save"):
        save_output(Output(torch.nn.Linear(2, 2)), tmp_path)


def change(path: Path, **values: object) -> None:
    described = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(described | values), encoding="utf-8")


@pytest.mark.parametrize(
    "settings",
    [
        {"candidates": [99]},
        {"vocabulary": 10**9},
        {"vocabulary": -3},
        {"vocabulary": "x"},
        {"scoring": "loud"},
        {"fusion": {"alpha": -1, "pinned": []}},
        {"fusion": {"other": 1, "pinned": []}},
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object], tmp_path: Path) -> None:
    save_output(Output(MODELS["rank"](), {}), tmp_path)
    path = tmp_path / "model" / "model.json"
    change(path, settings=json.loads(path.read_text(encoding="utf-8"))["settings"] | settings)
    with pytest.raises(InputError, match=f"{tmp_path}.*no complete model"):
        load_output(tmp_path)


@pytest.mark.parametrize("damage", ["gone", "ids", "starts", "size"])
def test_damaged_tables_are_refused(damage: str, tmp_path: Path) -> None:
    save_output(Output(MODELS["ngram"](), {}), tmp_path)
    folder = tmp_path / "model" / "forget"
    tables = load_file(folder / "tables.safetensors")
    if damage == "gone":
        tables.pop("bigram_keys")
    elif damage == "size":
        change(folder / "model.json", vocab_size=-1)
    else:
        tables[{"ids": "bigram_tokens", "starts": "trigram_starts"}[damage]] += 1000
    save_file(tables, folder / "tables.safetensors")
    with pytest.raises(InputError, match="tables of the n-gram model are damaged"):
        load_output(tmp_path)


def test_weights_of_another_model_are_not_filled_with_random_ones(tmp_path: Path) -> None:
    save_output(Output(MODELS["linear"](), {}), tmp_path)
    state = torch.get_rng_state()
    save_file({"a": torch.zeros(2)}, tmp_path / "model" / "forget" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"forget holds no whole model: \d+ weights are missing"):
        load_output(tmp_path)
    assert torch.equal(torch.get_rng_state(), state)


def test_other_information_than_an_object_is_refused(tmp_path: Path) -> None:
    save_output(Output(MODELS["plain"](), {}), tmp_path)
    (tmp_path / "info.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(InputError, match="no complete output"):
        load_output(tmp_path)
