"""Pictures and tables show what the models say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from icml26 import Problem, RunContext
from icml26_plugin_divergence_decoding import figures, show
from icml26_plugin_divergence_decoding.fusion import Fusion
from icml26_plugin_divergence_decoding.model import DivergenceModel
from icml26_plugin_divergence_decoding.tables import generations_table
from icml26_plugin_divergence_decoding.task import QA, Format, Inputs, Output, Truth
from icml26_plugin_divergence_decoding.tiny_models import word_tokenizer
from tiny import llama

TOKENIZER = word_tokenizer(("what", "is", "it", "a", "cat", "dog", "<b>"))
ROWS = tuple(QA(question, f"a {word}", keyword=word) for question, word in (("what is it", "cat"), ("is it", "dog")))


@pytest.fixture(scope="module")
def steered() -> DivergenceModel:
    return DivergenceModel(*(llama(seed, vocab=len(TOKENIZER)) for seed in range(3)), Fusion(0.5))


def truth_of(model: DivergenceModel) -> Truth:
    return Truth(model.target, TOKENIZER, ROWS, ROWS, retrain=llama(9, vocab=len(TOKENIZER)))


def test_the_curve_starts_at_the_target_and_passes_through_the_method(steered: DivergenceModel) -> None:
    truth = truth_of(steered)
    first, second = figures.sweep(steered, truth, (0.0, 0.5))
    assert first[:2] == figures.point(steered.target, truth, "")[:2]
    assert second[:2] == figures.point(steered, truth, "")[:2]
    assert steered.fusion.alpha == 0.5


def test_artifacts_of_questions(steered: DivergenceModel, tmp_path: Path) -> None:
    truth = truth_of(steered)
    inputs = Inputs(steered.target, TOKENIZER, ROWS, ROWS)
    ctx = RunContext(0, folder=tmp_path)
    show.visualize(Problem(inputs, truth), Output(steered), ctx)
    assert set(ctx.artifacts) == {"generations.html", "tradeoff.svg"}
    picture = (tmp_path / "tradeoff.svg").read_text(encoding="utf-8")
    assert picture.count("<svg") == 1
    page = (tmp_path / "generations.html").read_text(encoding="utf-8")
    for text in ("To be forgotten", "To be kept", "before", "after", "retrained without", "what is it"):
        assert text in page


def test_texts_are_escaped_and_known_answers_marked(tmp_path: Path) -> None:
    class Says:
        """A stand-in that always answers the same ids."""

        def __init__(self, words: str) -> None:
            self.ids = TOKENIZER(words, add_special_tokens=False)["input_ids"]
            self.inner = llama(0, vocab=len(TOKENIZER))

        def parameters(self) -> object:
            return self.inner.parameters()

        def generate(self, input_ids: object, **_: object) -> object:
            import torch

            assert isinstance(input_ids, torch.Tensor)
            return torch.cat([input_ids, torch.tensor([self.ids] * len(input_ids))], 1)

    path = tmp_path / "page.html"
    models = {"knows": Says("a cat"), "<script>": Says("a <b>")}
    generations_table(path, models, {"part": [QA("what <b> is it", "a cat", keyword="cat")]}, TOKENIZER, Format())
    page = path.read_text(encoding="utf-8")
    assert "<td class=known>a cat</td><td>a &lt;b&gt;</td>" in page
    assert "1 of 1 known" in page
    assert "0 of 1 known" in page
    assert "<script>" not in page
    assert "what &lt;b&gt; is it" in page


def test_images_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "samples.png"
    figures.image_figure(path, {"before": np.full((3, 64), 16), "after": np.zeros((2, 64))})
    assert path.read_bytes().startswith(b"\x89PNG")
