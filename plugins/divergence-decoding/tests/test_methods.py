"""The adapters: what they hand over, what they refuse, and that a sweep trains its auxiliaries once."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from icml26 import RunContext
from icml26.errors import InputError
from icml26.fingerprints import fingerprint
from icml26_plugin_divergence_decoding import methods
from icml26_plugin_divergence_decoding.checks import checked_sequences
from icml26_plugin_divergence_decoding.methods import (
    DivergenceDecoding,
    DivergenceDistilled,
    DivergenceNgram,
    DivergenceRank,
)
from icml26_plugin_divergence_decoding.model import DivergenceModel
from icml26_plugin_divergence_decoding.steering_metrics import auxiliary_share
from icml26_plugin_divergence_decoding.storage import save_model
from icml26_plugin_divergence_decoding.task import Format, Inputs, Truth
from tiny import V, llama

QUICK = {"lr": 1e-2, "epochs": 3, "batch_size": 4}


def row(*ids: int) -> np.ndarray:
    return np.array([1, *ids])


INPUTS = Inputs(
    target=llama(0, width=32),
    tokenizer=None,
    forget=(row(5, 6, 7), row(5, 8, 9)),
    retain=tuple(row(10 + i, 12 + i, 14 + i) for i in range(5)),
    small_base=llama(3),
    background=(row(20, 21),),
    format=Format(max_length=8),
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICML26_HOME", str(tmp_path / "home"))


def test_a_sweep_trains_its_auxiliaries_once_and_gets_what_it_would_have_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained: list[Any] = []
    whole = methods.train_auxiliaries
    monkeypatch.setattr(methods, "train_auxiliaries", lambda *a, **k: trained.append(1) or whole(*a, **k))
    before = fingerprint((INPUTS.target, INPUTS.small_base))
    swept = [
        cls(cls.Config(**QUICK, **form)).run(INPUTS, RunContext(1)).model
        for cls, form in (
            (DivergenceDecoding, {"alpha": 0.5}),
            (DivergenceDecoding, {"alpha": 2.0}),
            (DivergenceRank, {"rank_k": 3}),
        )
    ]
    assert len(trained) == 1
    own = (
        DivergenceDecoding(DivergenceDecoding.Config(**QUICK, alpha=0.5, reuse=False)).run(INPUTS, RunContext(1)).model
    )
    assert len(trained) == 2
    assert fingerprint(own) == fingerprint(swept[0])
    assert (swept[0].fusion.alpha, swept[1].fusion.alpha, swept[2].fusion.rank_k) == (0.5, 2.0, 3)
    DivergenceDecoding(DivergenceDecoding.Config(**QUICK)).run(INPUTS, RunContext(2))
    assert len(trained) == 3  # another seed, other auxiliaries
    assert fingerprint((INPUTS.target, INPUTS.small_base)) == before


def test_only_tokens_of_the_task_are_candidates_of_the_rank_form() -> None:
    model = DivergenceRank(DivergenceRank.Config(**QUICK, rank_k=3)).run(INPUTS, RunContext(1)).model
    seen = {int(i) for r in (*INPUTS.forget, *INPUTS.retain, *INPUTS.background) for i in r}
    assert set(torch.nonzero(model.candidates).squeeze(1).tolist()) == seen
    given = replace(INPUTS, candidates=np.array([5, 6]))
    model = DivergenceRank(DivergenceRank.Config(**QUICK, rank_k=3)).run(given, RunContext(1)).model
    assert torch.nonzero(model.candidates).squeeze(1).tolist() == [5, 6]
    free = DivergenceRank.Config(**QUICK, rank_k=3, restrict_candidates=False)
    assert DivergenceRank(free).run(INPUTS, RunContext(1)).model.candidates is None


def test_every_form_tells_the_size_of_its_auxiliaries() -> None:
    truth = Truth(INPUTS.target, None, INPUTS.forget, INPUTS.retain)
    trained = DivergenceDecoding(DivergenceDecoding.Config(**QUICK)).run(INPUTS, RunContext(1))
    sizes = [sum(p.numel() for p in m.parameters()) for m in (INPUTS.small_base, INPUTS.target)]
    assert auxiliary_share(trained, truth) == sizes[0] / sizes[1]
    counted = DivergenceNgram(DivergenceNgram.Config()).run(INPUTS, RunContext(1))
    assert auxiliary_share(counted, truth) == 0


def test_a_distilled_student_is_a_plain_model_that_moved() -> None:
    config = DivergenceDistilled.Config(**QUICK, distill_epochs=2, distill_lr=1e-3, distill_accumulation=1)
    student = DivergenceDistilled(config).run(INPUTS, RunContext(1)).model
    assert type(student) is type(INPUTS.target)
    assert fingerprint(student) != fingerprint(INPUTS.target)


def test_auxiliaries_of_ones_own_are_used_as_they_are(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("p", "q")]
    for folder, seed in zip(folders, (7, 8), strict=True):
        folder.mkdir()
        save_model(llama(seed), folder)
    config = DivergenceDecoding.Config(forget_auxiliary=folders[0], retain_auxiliary=folders[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # random models: which of them looks swapped is chance
        output = DivergenceDecoding(config).run(replace(INPUTS, small_base=None), RunContext(1))
    assert isinstance(output.model, DivergenceModel)
    assert fingerprint(output.model.forget) == fingerprint(llama(7))
    assert fingerprint(output.model.retain) == fingerprint(llama(8))
    with pytest.raises(ValueError, match="belong together"):
        DivergenceDecoding.Config(forget_auxiliary=folders[0])
    with pytest.raises(InputError, match="holds no model"):
        wrong = DivergenceDecoding.Config(forget_auxiliary=tmp_path, retain_auxiliary=tmp_path)
        DivergenceDecoding(wrong).run(INPUTS, RunContext(1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"forget": ()}, "nothing to forget"),
        ({"retain": ()}, "nothing to keep"),
        ({"background": (row(5, 6, 7),)}, "1 rows are to be forgotten and to be kept at once"),
        ({"retain": (*INPUTS.retain, row(5, 6, 7))}, "1 rows are to be forgotten and to be kept at once"),
        ({"forget": (row(*range(3, 12)),)}, "exceeds max_length=8"),
        ({"small_base": None}, "no small model"),
        ({"small_base": llama(3, vocab=V + 4)}, "Pass the tokenizers"),
    ],
)
def test_wrong_problems_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DivergenceDecoding(DivergenceDecoding.Config(**QUICK, reuse=False)).run(
            replace(INPUTS, **change), RunContext(1)
        )


def test_a_rank_of_the_whole_vocabulary_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "train_auxiliaries", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(InputError, match="whole vocabulary"):
        DivergenceRank(DivergenceRank.Config(**QUICK, rank_k=V)).run(INPUTS, RunContext(1))


def test_sequences_come_in_order() -> None:
    forget, retain, background = checked_sequences(INPUTS)
    assert [s.ids for s in forget] == [[1, 5, 6, 7], [1, 5, 8, 9]]
    assert (len(retain), len(background)) == (5, 1)
