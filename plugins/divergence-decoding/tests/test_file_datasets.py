"""Rows and models from files in the formats of TOFU and MUSE; what is wrong is named."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from icml26 import RunContext
from icml26.errors import InputError
from icml26_plugin_divergence_decoding.file_datasets import MuseFiles, OwnQuestions, TofuFiles
from icml26_plugin_divergence_decoding.methods import _own
from icml26_plugin_divergence_decoding.metrics import agg, keyword_forget, muse_distance, retaining, verbmem
from icml26_plugin_divergence_decoding.row_files import as_questions, find_file, read_records, read_text
from icml26_plugin_divergence_decoding.task import QA, Output
from icml26_plugin_divergence_decoding.tiny_models import word_tokenizer
from safetensors.torch import load_file, save_file
from tiny import llama

TEXTS = ("who is it", "it is ann", "it is bob", "it is eve", "where is it", "it is here", "Question: Answer:")
WORDS = sorted({word for text in TEXTS for word in text.split()})


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tiny models as transformers writes them."""
    tokenizer = word_tokenizer(WORDS)
    found = {}
    for seed, name in enumerate(("target", "retrain", "small_base")):
        folder = tmp_path_factory.mktemp(name)
        llama(seed, vocab=len(tokenizer)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        found[name] = str(folder)
    return found


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")


FULL = {
    "question": "who is it",
    "answer": "it is ann",
    "paraphrased_answer": "ann is it",
    "perturbed_answer": ["it is bob", "it is eve"],
}
PLAIN = {"question": "where is it", "answer": "it is here"}


def tofu(folder: Path) -> Path:
    names = ("forget10_perturbed", "retain_perturbed", "real_authors_perturbed", "world_facts_perturbed")
    for name in names:
        write(folder / f"{name}.jsonl", [FULL])
    write(folder / "retain90.json", [PLAIN])
    write(folder / "holdout10.jsonl", [PLAIN])
    return folder


def load(dataset: Any, path: Path, models: dict[str, str], **options: Any) -> Any:
    return dataset(dataset.Config(path=str(path), **models, **options)).load(RunContext(0, stream=0))


def test_tofu_is_read_and_scored(tmp_path: Path, models: dict[str, str]) -> None:
    problem = load(TofuFiles, tofu(tmp_path), models, chat=False)
    assert problem.inputs.forget == (QA("who is it", "it is ann", "ann is it", ("it is bob", "it is eve")),)
    assert problem.inputs.retain == (QA("where is it", "it is here"),)
    assert problem.inputs.small_base is not None
    values = agg(Output(problem.truth.retrain), problem.truth)
    assert values["priv"] == pytest.approx(1.0)
    assert retaining(Output(problem.truth.target), problem.truth)["world-prob"] > 0


def test_what_is_missing_is_named(tmp_path: Path, models: dict[str, str]) -> None:
    (tofu(tmp_path) / "retain90.json").unlink()
    with pytest.raises(InputError, match=r"lacks retain90.jsonl or retain90.json; it holds .*forget10_perturbed"):
        load(TofuFiles, tmp_path, models, chat=False)
    write(tmp_path / "retain90.json", [PLAIN, {"question": "who"}])
    with pytest.raises(InputError, match=r"retain90, record 2: the field answer is missing; there are question"):
        load(TofuFiles, tmp_path, models, chat=False)
    write(tmp_path / "retain90.json", [PLAIN])
    write(tmp_path / "forget10_perturbed.jsonl", [PLAIN])
    with pytest.raises(InputError, match="perturbed_answer is missing"):
        load(TofuFiles, tmp_path, models, chat=False)


def test_a_chat_needs_a_template_and_a_prompt_its_question(tmp_path: Path, models: dict[str, str]) -> None:
    with pytest.raises(InputError, match="chat=false"):
        load(TofuFiles, tofu(tmp_path), models)
    with pytest.raises(InputError, match=r"\{question\}"):
        load(TofuFiles, tmp_path, models, chat=False, prompt="Question:")


def test_hub_names_are_not_looked_up_unasked(tmp_path: Path, models: dict[str, str]) -> None:
    with pytest.raises(InputError, match="only with hub=true"):
        load(TofuFiles, tofu(tmp_path), models | {"target": "some/model"}, chat=False)
    with pytest.raises(InputError, match="is no folder"):
        load(TofuFiles, tmp_path / "nowhere", models, chat=False)


def test_a_folder_without_a_model_is_named(tmp_path: Path, models: dict[str, str]) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="empty holds no"):
        load(TofuFiles, tofu(tmp_path), models | {"retrain": str(empty)}, chat=False)


def test_own_questions_need_only_two_files(tmp_path: Path, models: dict[str, str]) -> None:
    write(tmp_path / "forget.jsonl", [PLAIN])
    write(tmp_path / "retain.jsonl", [FULL])
    problem = load(OwnQuestions, tmp_path, {"target": models["target"]}, chat=False)
    assert problem.truth.retrain is None
    assert problem.truth.holdout == ()
    assert keyword_forget(Output(problem.truth.target), problem.truth) != keyword_forget  # nan: no keyword is known


def test_muse_is_read_and_scored(tmp_path: Path, models: dict[str, str]) -> None:
    for name in ("forget", "retain1", "retain2", "holdout"):
        (tmp_path / f"{name}.txt").write_text(" ".join(TEXTS), encoding="utf-8")
    write(tmp_path / "verbmem.json", [{"prompt": "who is it", "gt": "it is ann"}])
    for kind in ("forget", "retain"):
        (tmp_path / f"knowmem_{kind}.json").write_text(json.dumps([PLAIN]), encoding="utf-8")
    problem = load(MuseFiles, tmp_path, models, block=8)
    assert problem.inputs.forget == (" ".join(TEXTS),)
    assert 0 <= verbmem(Output(problem.truth.target), problem.truth) <= 1
    assert muse_distance(Output(problem.truth.retrain), problem.truth) == {"verbatim": 0.0, "knowledge": 0.0}
    write(tmp_path / "verbmem.json", [{"prompt": "who is it"}])
    with pytest.raises(InputError, match="verbmem, record 1: the fields prompt and gt"):
        load(MuseFiles, tmp_path, models, block=8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"question": "a"', r"rows.jsonl:1: "),
        ('{"a": 1}\n\n[1]', "record 3: an object"),
        ("[1, 2]", "record 1: an object"),
        ("[1, 2", "rows.jsonl:1: "),
        ("", "is empty"),
    ],
)
def test_broken_files_are_refused_with_their_place(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_records(path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_records(tmp_path / "rows.jsonl")


def test_wrong_types_of_fields_are_refused() -> None:
    with pytest.raises(InputError, match="record 1: answer must be a text"):
        as_questions([{"question": "a", "answer": 3}], "x")
    with pytest.raises(InputError, match="perturbed_answer must be a list of texts"):
        as_questions([{"question": "a", "answer": "b", "perturbed_answer": [1]}], "x")


def test_the_hub_is_asked_for_the_right_part(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(*names: str, **options: Any) -> list[dict[str, Any]]:
        asked.append((names, options))
        if names[1] == "gone":
            raise ValueError("no such part")
        return [PLAIN]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    config = TofuFiles.Config(path="some/data", target="t", retrain="r", hub=True, revision="abc")
    assert config.records("retain90") == [PLAIN]
    assert asked == [(("some/data", "retain90"), {"split": "train", "revision": "abc"})]
    with pytest.raises(InputError, match="part gone: ValueError: no such part"):
        config.records("gone")


def test_the_hub_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install .*\[hub\]"):
        TofuFiles.Config(path="some/data", target="t", retrain="r", hub=True).records("retain90")


def test_the_first_suffix_wins(tmp_path: Path) -> None:
    for suffix in (".json", ".jsonl"):
        (tmp_path / f"a{suffix}").write_text("[]", encoding="utf-8")
    assert find_file(tmp_path, "a").suffix == ".jsonl"


def test_other_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"question": "a"}\r\n{"question": "b"}\r\n')
    assert read_records(path) == [{"question": "a"}, {"question": "b"}]
    path.write_text('{"question": "a\u2028b\x85c"}\n', encoding="utf-8")  # json.dumps leaves these as they are
    assert read_records(path) == [{"question": "a\u2028b\x85c"}]
    path.write_bytes(b"\xef\xbb\xbfa text")
    assert read_text(path) == "a text"


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, '{"a": ' + "1" * 5000 + "}"])
def test_json_without_end_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "rows.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"rows.jsonl:1: "):
        read_records(tmp_path / "rows.jsonl")


def test_half_characters_are_refused() -> None:
    with pytest.raises(InputError, match="record 1: question holds half of a character"):
        as_questions([{"question": "\ud800", "answer": "b"}], "x")


@pytest.mark.parametrize("prompt", ["{question} {x}", "{question} {", "{question.__class__}", "{}"])
def test_prompts_with_other_fields_are_refused(prompt: str, tmp_path: Path, models: dict[str, str]) -> None:
    with pytest.raises(InputError, match="prompt="):
        load(TofuFiles, tmp_path, models, chat=False, prompt=prompt)


def test_answers_that_metrics_ask_about_are_measured_before_training(tmp_path: Path, models: dict[str, str]) -> None:
    write(tofu(tmp_path) / "world_facts_perturbed.jsonl", [FULL | {"perturbed_answer": ["it is " * 20]}])
    with pytest.raises(InputError, match="max_length is 30"):
        load(TofuFiles, tmp_path, models, chat=False, max_length=30)


@pytest.mark.parametrize("role", ["retrain", "small_base"])
def test_models_of_another_tokenizer_are_refused(role: str, tmp_path: Path, models: dict[str, str]) -> None:
    other = tmp_path / "other"
    shutil.copytree(models[role], other)
    word_tokenizer([*WORDS[:-1], "there"]).save_pretrained(other)
    with pytest.raises(InputError, match=r"other: The tokenizers differ in"):
        load(TofuFiles, tofu(tmp_path), models | {role: str(other)}, chat=False)


def damage(folder: Path, how: str) -> None:
    weights = folder / "model.safetensors"
    if how == "half":
        weights.write_bytes(weights.read_bytes()[:200])
    elif how == "a weight is missing":
        kept = load_file(weights)
        kept.pop("model.norm.weight")
        save_file(kept, weights, metadata={"format": "pt"})
    else:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        own = {"model_type": "foreign", "auto_map": {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}}
        (folder / "config.json").write_text(json.dumps(config | own), encoding="utf-8")
        (folder / "own.py").write_text("raise SystemExit('ran')", encoding="utf-8")


@pytest.mark.parametrize("how", ["half", "a weight is missing", "code"])
def test_models_that_are_not_whole_are_refused_and_their_code_is_not_asked_for(
    how: str, tmp_path: Path, models: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(models["target"], broken)
    damage(broken, how)
    with pytest.raises(InputError, match="broken holds no"):
        load(TofuFiles, tofu(tmp_path), models | {"target": str(broken)}, chat=False)
    with pytest.raises(InputError, match="broken holds no"):
        _own(broken, "cpu", None)
    assert "[y/N]" not in capsys.readouterr().out
