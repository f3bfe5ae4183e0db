"""Texts become tokens with the right marks, and what cannot be explained is refused with the reason."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from icml26 import InputError, RunContext
from icml26_plugin_flashtrace import models
from icml26_plugin_flashtrace.datasets import Absorb, Needles, VariableTracking
from icml26_plugin_flashtrace.encoding import MarkedText, encode, tokenise
from icml26_plugin_flashtrace.file_datasets import JsonLines, TextFile, ruler_row, sentences
from icml26_plugin_flashtrace.symbols import symbol_tokenizer
from random_models import random_model


def byte_tokenizer(template: str | None = None) -> Any:
    """A real byte-level BPE tokenizer, trained on a few words: merges, leading spaces, no unknown text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=340, initial_alphabet=alphabet, special_tokens=["<pad>", "<eos>"], show_progress=False
    )
    words = (
        "VAR VAR value question answer the special number for is what of was closed before noon so So are and Answer"
    )
    tokenizer.train_from_iterator([words, " " + words], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
    fast.chat_template = template
    return fast


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder as a user has one."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = byte_tokenizer()
    random_model("llama", vocab_size=len(tokenizer), max_position_embeddings=1024).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def load(dataset: Any, **config: Any) -> Any:
    return dataset(dataset.Config(**config)).load(RunContext(0, stream=0))


def test_texts_of_tokens_join_to_the_text_and_marks_cover_their_characters() -> None:
    tokenizer = byte_tokenizer()
    prompt, target = "VAR AB = 12.\nQuestion: é日 what?\nAnswer:", " VAR AB = 12. So 12"
    a = prompt.index("AB")
    text = MarkedText("t", prompt, target, (len(target) - 3, len(target)), (0, 13), ((a, a + 2),))
    example, gold = encode(text, tokenizer)
    p = example.n_prompt
    assert "".join(example.tokens[p:]) == target
    assert "".join(example.tokens[:p]).replace("\ufffd", "") == prompt
    assert gold is not None
    assert "".join(np.array(example.tokens[:p])[gold]).strip() == "AB"
    lo, hi = example.output_span
    assert "".join(example.tokens[p + lo : p + hi + 1]) == " 12"
    assert example.reasoning_span is not None
    assert "".join(example.tokens[p : p + example.reasoning_span[1] + 1]).startswith(" VAR AB = 12")
    assert tokenizer.decode(example.input_ids[:p]) == prompt


def test_no_token_reaches_across_the_border_of_prompt_and_generation() -> None:
    tokenizer = byte_tokenizer()
    example, _ = encode(MarkedText("t", "the va", "lue", (0, 3)), tokenizer)
    together = tokenizer("the value")["input_ids"]
    assert len(example.tokens) > len(together)  # "value" would be one token
    assert "".join(example.tokens[: example.n_prompt]) == "the va"


def test_gold_in_a_chat_template_is_found_by_characters() -> None:
    tokenizer = byte_tokenizer("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}<answer>")
    text = MarkedText("t", "  VAR is 7.", " 7", (0, 2), None, ((2, 5),))
    example, gold = encode(text, tokenizer, chat_template=True)
    assert gold is not None
    assert "".join(np.array(example.tokens[: example.n_prompt])[gold]) == "VAR"
    assert "".join(example.tokens[: example.n_prompt]) == "<user>VAR is 7.</><answer>"
    with pytest.raises(InputError, match="no chat template"):
        encode(text, byte_tokenizer(), chat_template=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": " \n"}, "target is empty"),
        ({"prompt": ""}, "prompt is empty"),
        ({"output_span": (2, 1)}, "reversed"),
        ({"output_span": (0, 99)}, "outside the generation"),
        ({"output_span": (-1, 0)}, "outside the generation"),
        ({"output_span": (0, 1), "reasoning_span": (1, 2)}, "must end before"),
        ({"output_chars": (5, 5)}, "do not lie in the target"),
        ({"output_chars": (0, 999)}, "do not lie in the target"),
        ({"gold_chars": ((0, 999),)}, "gold characters .* prompt"),
        ({"output_chars": (0, 2), "output_span": (0, 1)}, "give one"),
    ],
)
def test_wrong_spans_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    base = {"id": "row 7", "prompt": "the value of VAR", "target": " is what was"}
    with pytest.raises(InputError, match=f"row 7.*{message}"):
        encode(MarkedText(**{**base, **changes}), byte_tokenizer())


def test_character_marks_need_offsets() -> None:
    class Slow:
        is_fast = False
        eos_token_id = None

        def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
            return {"input_ids": [ord(c) for c in text]}

        def decode(self, ids: list[int]) -> str:
            return chr(ids[0])

    with pytest.raises(InputError, match="no character offsets"):
        encode(MarkedText("t", "ab", "cd", (0, 1)), Slow())
    example, _ = encode(MarkedText("t", "ab", "cd", output_span=(1, 1)), Slow())
    assert example.tokens == ("a", "b", "c", "d") and example.output_span == (1, 1)


def test_the_symbolic_tokenizer_reads_what_symbols_write() -> None:
    from icml26_plugin_flashtrace.symbols import Grammar, draw, texts_of

    ids = draw(np.random.default_rng(0), Grammar(), 1).ids[0]
    assert np.array_equal(tokenise("".join(texts_of(ids)), symbol_tokenizer(), special=True).ids, ids)


@pytest.mark.parametrize("dataset", [VariableTracking, Needles, Absorb])
def test_generated_prompts_for_a_model_folder(dataset: Any, folder: Path) -> None:
    problem = load(dataset, model_path=str(folder), n_examples=2)
    assert len(problem.inputs.examples) == 2
    for example, gold in zip(problem.inputs.examples, problem.truth.gold, strict=True):
        assert gold.shape == (example.n_prompt,) and 0.05 < gold.mean() < 0.6
        assert "".join(example.tokens[example.n_prompt + example.output_span[0] :]).strip().replace(", ", "").isdigit()
        assert (example.reasoning_span is None) == (dataset is Absorb)
    again = load(dataset, model_path=str(folder), n_examples=2)
    assert [e.tokens for e in again.inputs.examples] == [e.tokens for e in problem.inputs.examples]
    assert not np.shares_memory(problem.inputs.examples[0].input_ids, problem.truth.examples[0].input_ids)


def write_rows(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_marked_rows_are_read(tmp_path: Path, folder: Path) -> None:
    row = {"prompt": "VAR AB = 12. What?", "target": " so 12", "output_chars": [3, 6], "gold_char_spans": [[0, 12]]}
    path = write_rows(tmp_path / "rows.jsonl", row, "", {**row, "gold_char_spans": None, "reasoning_chars": [0, 3]})
    problem = load(JsonLines, path=str(path), model_path=str(folder))
    first, second = problem.inputs.examples
    assert "".join(np.array(first.tokens[: first.n_prompt])[problem.truth.gold[0]]) == "VAR AB = 12."
    assert problem.truth.gold[1] is None and second.reasoning_span is not None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "line 1: no JSON"),
        ("[1]", "line 1: a JSON object"),
        ({"prompt": 3, "target": "x"}, "prompt is 3"),
        ({"prompt": "x"}, "target is missing"),
        ({"prompt": "x", "target": "y", "output_span": [0]}, "two whole numbers"),
        ({"prompt": "x", "target": "y", "output_span": [True, 1]}, "two whole numbers"),
        ({"prompt": "x", "target": "y", "gold_char_spans": 5}, "gold_char_spans"),
        ({"prompt": "x", "target": "y\ud800"}, "surrogate"),
        (
            {"prompt": "the value", "target": " is", "gold_char_spans": [[0, 3]], "output_span": [0, 40]},
            "row 1.*outside",
        ),
        ({"prompt": "the value", "target": " is"}, "dataset.gold=false"),
        ({"prompt": "the value", "target": " is", "output_char": [0, 2]}, "no field 'output_char'"),
        ({"prompt": "the value", "target": " is", "gold_spans": [[0, 2]]}, "no field 'gold_spans'"),
        ({"prompt": "the value", "target": " is", "output_regex": "("}, "line 1: output_regex.*no regular expression"),
        ({"prompt": "the value", "target": " is", "output_regex": 5}, "a text is expected"),
        (
            {"prompt": "the value", "target": " is", "reasoning_regex": "was"},
            "line 1: the reasoning's pattern.*0 times",
        ),
        ({"prompt": "x", "target": "y", "output_regex": "y", "output_chars": [0, 1]}, "both given"),
    ],
)
def test_wrong_rows_are_refused_with_file_and_line(row: Any, message: str, tmp_path: Path, folder: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", row)
    with pytest.raises(InputError, match=message):
        load(JsonLines, path=str(path), model_path=str(folder))


@pytest.mark.parametrize(("pattern", "answer"), [("VAR", "VAR"), ("VAR is (.*)!", "7"), (r"(?:so|is) ", "is ")])
def test_rows_mark_by_patterns(pattern: str, answer: str, tmp_path: Path, folder: Path) -> None:
    row = {"prompt": "the value of VAR?", "target": "so VAR is 7!", "output_regex": pattern, "source": "mine"}
    path = write_rows(tmp_path / "rows.jsonl", row)
    (example,) = load(JsonLines, path=str(path), model_path=str(folder), gold=False).inputs.examples
    lo, hi = example.output_span
    assert answer.strip() in "".join(example.tokens[example.n_prompt + lo : example.n_prompt + hi + 1])
    assert example.reasoning_span is None and hi - lo < 4


def test_byte_order_marks_and_other_line_ends_are_read(tmp_path: Path, folder: Path) -> None:
    row = json.dumps({"prompt": "the value of\r\nVAR?", "target": " 7"}).encode()
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + row + b"\r\n" + row + b"\r\n")
    first, second = load(JsonLines, path=str(path), model_path=str(folder), gold=False).inputs.examples
    assert first.tokens == second.tokens and first.tokens[0].startswith("t")


@pytest.mark.parametrize("dataset", [JsonLines, TextFile])
def test_folders_pipes_and_archives_are_refused(dataset: Any, tmp_path: Path, folder: Path) -> None:
    """A pipe without a writer would be waited for for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "rows.gz").write_bytes(gzip.compress(b"{}"))
    for name, message in (("pipe", "pipe or a device"), ("", "is a folder"), ("rows.gz", "not UTF-8")):
        with pytest.raises(InputError, match=message):
            load(dataset, path=str(tmp_path / name), model_path=str(folder))


def test_a_row_of_ruler_has_its_needles_as_gold() -> None:
    prompt = "One of the special magic numbers for a-b is: 1234567. The sky is blue.\nWhat is 91234567?"
    text = ruler_row({"index": 4, "input": prompt, "outputs": ["1234567"], "answer_prefix": " Numbers are"}, "x")
    assert [text.prompt[a:b] for a, b in text.gold_chars or ()] == [
        "One of the special magic numbers for a-b is: 1234567."
    ]
    assert text.prompt == prompt + " Numbers are" and text.target == " 1234567" and text.id == "4"
    with pytest.raises(InputError, match="outputs"):
        ruler_row({"input": "x", "outputs": []}, "x")


def test_sentences_end_before_white_space_only() -> None:
    text = "Pi is 3.14. Yes!\n\n No dot\nlast"
    assert [text[a:b] for a, b in sentences(text)] == ["Pi is 3.14.", "Yes!", "No dot", "last"]


def test_a_text_file_with_its_generation(tmp_path: Path, folder: Path) -> None:
    prompt, answer = tmp_path / "p.txt", tmp_path / "a.txt"
    prompt.write_text("the value of VAR?", encoding="utf-8")
    answer.write_text(r"so VAR is \boxed{7} and \boxed{42}", encoding="utf-8")
    config = {"path": str(prompt), "generation_path": str(answer), "model_path": str(folder)}
    problem = load(TextFile, **config, output=r"\\boxed\{(.*?)\}", output_group=1)
    (example,) = problem.inputs.examples
    lo, hi = example.output_span
    assert "42" in "".join(example.tokens[example.n_prompt + lo : example.n_prompt + hi + 1])
    assert example.reasoning_span == (0, lo - 1)
    with pytest.raises(InputError, match="matches 0 times"):
        load(TextFile, **config, output="nothing")


def test_a_text_file_that_the_model_answers(tmp_path: Path, folder: Path) -> None:
    prompt = tmp_path / "p.txt"
    prompt.write_text("the value of VAR?", encoding="utf-8")
    problem = load(TextFile, path=str(prompt), model_path=str(folder), max_new_tokens=5)
    (example,) = problem.inputs.examples
    assert example.n_tokens > example.n_prompt and example.output_span == (0, example.n_tokens - example.n_prompt - 1)
    assert "".join(example.tokens[example.n_prompt :]).startswith(problem.info["generation"][:3])


@pytest.mark.parametrize(("content", "message"), [(b"", "is empty"), (b"\xff\xfe\x00", "not UTF-8")])
def test_files_that_are_no_text_are_refused(content: bytes, message: str, tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load(TextFile, path=str(path), model_path=str(folder))
    with pytest.raises(InputError, match="cannot be read"):
        load(TextFile, path=str(tmp_path / "absent.txt"), model_path=str(folder))


def test_sequences_beyond_the_context_are_refused_before_any_work(folder: Path) -> None:
    with pytest.raises(InputError, match=r"'vartrack-1' has \d+ tokens, the model's context 1024"):
        load(VariableTracking, model_path=str(folder), n_examples=1, noise_sentences=200)
    with pytest.raises(InputError, match="max_tokens=50"):
        load(VariableTracking, model_path=str(folder), n_examples=1, max_tokens=50)


def test_model_folders_that_are_none_are_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InputError, match="neither a folder nor a hub id"):
        models.load_model(str(tmp_path / "absent"))
    with pytest.raises(InputError, match=r"no config\.json"):
        models.load_model(str(tmp_path))
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"set gguf_file=x\.gguf"):
        models.load_model(str(tmp_path))
    with pytest.raises(InputError, match="holds no file"):
        models.load_model(str(tmp_path), gguf_file="y.gguf")
    with pytest.raises(InputError, match="is a file"):
        models.load_model(str(folder / "config.json"))
    with pytest.raises(InputError, match="dtype"):
        models.load_model(str(folder), dtype="int4")
    (tmp_path / "config.json").write_text('{"model_type": "t5", "is_encoder_decoder": true}')
    with pytest.raises(InputError, match="encoder-decoder"):
        models.load_model(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(InputError, match="no tokenizer"):
        models.load_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        models.load_model(str(tmp_path))


def test_a_hub_id_is_not_fetched_unless_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="download=true"):
        models.load_model("no-such-owner-here/no-such-model")


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, folder: Path) -> None:
    random_model("llama", vocab_size=20).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="another model's"):
        load(VariableTracking, model_path=str(tmp_path), n_examples=1, noise_sentences=0, distractor_chains=0, hops=1)


def test_loading_leaves_global_generators_alone_and_wants_no_gradients(folder: Path) -> None:
    import torch

    before = torch.random.get_rng_state()
    model, _ = models.load_model(str(folder), dtype="bfloat16")
    assert torch.equal(before, torch.random.get_rng_state())
    assert model.dtype is torch.bfloat16 and not any(p.requires_grad for p in model.parameters())
    assert not model.training


def test_models_without_softmax_attention_are_refused() -> None:
    class Config:
        layer_types = ("full_attention", "linear_attention")

    class Odd:
        config = Config()

        def get_input_embeddings(self) -> int:
            return 1

        get_output_embeddings = get_input_embeddings

    with pytest.raises(InputError, match="linear_attention"):
        models.check_causal_lm(Odd())
    with pytest.raises(InputError, match="no transformers model"):
        models.check_causal_lm(object())


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        ([[1, 2], [3, 4]], None, "batch of 2"),
        ([[1, 2], [3]], None, "ragged"),
        ([0, 1, 2], [0, 1, 1], "padded on the left"),
        ([1, 2, 3], [1, 0, 1], "holes"),
        ([1, 2, 3], [1, 1], "2 entries for 3"),
        ([], None, "empty"),
        ([1.5, 2.0], None, "not integers"),
        ([[[1]]], None, "shape"),
    ],
)
def test_sequences_that_are_not_single_are_refused(ids: Any, mask: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        models.single_sequence(ids, mask)


def test_right_padding_is_cut_off() -> None:
    assert models.single_sequence([[5, 6, 0, 0]], [[1, 1, 0, 0]]).tolist() == [5, 6]
