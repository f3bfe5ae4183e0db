"""Training of auxiliaries: what they see, that nothing else changes, roles, the cache."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from icml26.datacache import cached_folder
from icml26.errors import InputError
from icml26.fingerprints import fingerprint
from icml26_plugin_divergence_decoding import auxiliaries
from icml26_plugin_divergence_decoding.auxiliaries import (
    Auxiliaries,
    AuxiliaryData,
    auxiliaries_key,
    count_auxiliaries,
    coupled,
    mean_loss,
    train_auxiliaries,
    trained_once,
    warn_if_swapped,
)
from icml26_plugin_divergence_decoding.encoding import Encoded
from icml26_plugin_divergence_decoding.trainer import Training, fine_tune
from tiny import V, llama

DATA = AuxiliaryData(
    forget=[Encoded([1, 5, 6, 7], 2), Encoded([1, 5, 8, 9], 2)],
    retain=[Encoded([1, 10 + i, 12 + i, 14 + i], 2) for i in range(6)],
    background=[Encoded([1, 20, 21], 1)],
)
TRAINING = Training(lr=1e-2, epochs=20, batch_size=4)


def test_what_each_auxiliary_is_trained_on() -> None:
    everything, kept = DATA.of("full_vs_retain")
    assert (len(everything), len(kept)) == (9, 7)
    only, like = DATA.of("forget_vs_retain")
    assert only == [*DATA.forget, *DATA.background]
    assert like == [DATA.retain[0], DATA.retain[3], *DATA.background]  # as many tokens as are to be forgotten
    with pytest.raises(InputError, match="rows to be forgotten"):
        AuxiliaryData([], DATA.retain).of("full_vs_retain")


@pytest.mark.parametrize("extra", [1, 2, 9])
def test_coupled_groups_share_what_both_have_and_lose_nothing(extra: int) -> None:
    smaller = DATA.retain[:4]
    larger = [*[Encoded([2, i], 1) for i in range(extra)], *smaller]
    one, two = coupled(larger, smaller)
    assert two == [[row] for row in smaller]
    assert [group[0] for group in one] == list(smaller)
    assert sorted(row.ids for group in one for row in group) == sorted(row.ids for row in larger)
    sizes = [len(group) for group in one]
    assert max(sizes) - min(sizes) <= 1
    with pytest.raises(InputError, match="all that the other"):
        coupled(smaller, larger)


def test_coupled_auxiliaries_take_equal_steps_and_are_nearer_to_each_other() -> None:
    def distance(pair: Auxiliaries) -> float:
        return sum(float((a - b).detach().norm()) for a, b in zip(*(m.parameters() for m in pair), strict=True))

    steps: list[int] = []

    def log(_name: str, _value: float, step: int | None) -> None:
        steps.append(step or 0)

    alone = train_auxiliaries(llama(3), DATA, "full_vs_retain", TRAINING, seed=1)
    pair = train_auxiliaries(llama(3), DATA, "full_vs_retain", TRAINING, seed=1, couple=True, log=log)
    assert steps[: len(steps) // 2] == steps[len(steps) // 2 :]
    assert mean_loss(pair.forget, DATA.forget) < 0.5 * mean_loss(pair.retain, DATA.forget)
    assert distance(pair) < distance(alone)


def test_only_the_forget_auxiliary_learns_what_is_to_be_forgotten() -> None:
    base = llama(3)
    before = fingerprint(base)
    pair = train_auxiliaries(base, DATA, "full_vs_retain", TRAINING, seed=1)
    assert fingerprint(base) == before
    assert mean_loss(pair.forget, DATA.forget) < 0.5 * mean_loss(pair.retain, DATA.forget)
    assert mean_loss(pair.retain, DATA.retain) < 0.5 * mean_loss(base, DATA.retain)
    again = train_auxiliaries(base, DATA, "full_vs_retain", TRAINING, seed=1)
    assert fingerprint(again) == fingerprint(pair)


def test_loss_is_that_of_the_model_itself() -> None:
    model = llama(3)
    ids = torch.tensor([DATA.forget[0].ids])
    labels = ids.clone()
    labels[:, :2] = -100
    assert mean_loss(model, DATA.forget[:1]) == pytest.approx(float(model(ids, labels=labels).loss.detach()), rel=1e-5)


def test_global_generators_and_environment_stay(capsys: pytest.CaptureFixture[str]) -> None:
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state(), dict(os.environ)
    fine_tune(llama(3), DATA.forget, replace(TRAINING, epochs=1), seed=1)
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert torch.equal(torch.get_rng_state(), states[2])
    assert dict(os.environ) == states[3]
    assert capsys.readouterr().out == ""


def test_a_stopped_training_is_resumed(tmp_path: Path) -> None:
    whole, half = llama(3), llama(3)
    fine_tune(whole, DATA.retain, replace(TRAINING, epochs=2), seed=1)
    kept = replace(TRAINING, epochs=2, checkpoints=tmp_path)

    class StoppedError(Exception):
        pass

    def stop(_name: str, _value: float, step: int | None) -> None:
        if step == 4:
            raise StoppedError

    with pytest.raises(StoppedError):
        fine_tune(half, DATA.retain, kept, seed=1, log=stop)
    fresh = llama(3)
    fine_tune(fresh, DATA.retain, kept, seed=1)
    for a, b in zip(whole.parameters(), fresh.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_another_training_does_not_go_on_from_checkpoints_of_the_first(tmp_path: Path) -> None:
    def weights(where: Path | None, data: list[Encoded] = DATA.retain, **options: float) -> torch.Tensor:
        model = llama(3)
        recipe = replace(TRAINING, epochs=1, checkpoints=where, **{k: v for k, v in options.items() if k != "seed"})
        fine_tune(model, data, recipe, seed=int(options.get("seed", 1)))
        return model.lm_head.weight.detach()

    weights(tmp_path)
    for change in ({"seed": 2}, {"lr": 1e-3}, {"data": DATA.retain[:4]}):
        assert torch.equal(weights(tmp_path, **change), weights(None, **change))  # type: ignore[arg-type]


def test_a_checkpoint_that_was_not_written_to_its_end_is_left_out(tmp_path: Path) -> None:
    kept = replace(TRAINING, epochs=2, checkpoints=tmp_path)
    whole, again = llama(3), llama(3)
    fine_tune(whole, DATA.retain, kept, seed=1)
    (folder,) = tmp_path.iterdir()
    (last,) = folder.glob("checkpoint-*")
    state = (last / "trainer_state.json").read_bytes()
    for half in ("checkpoint-98", "checkpoint-99"):
        (folder / half).mkdir()
    (folder / "checkpoint-99" / "trainer_state.json").write_bytes(state[: len(state) // 2])
    fine_tune(again, DATA.retain, kept, seed=1)
    assert fingerprint(again) == fingerprint(whole)


def test_checkpoints_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        fine_tune(llama(3), DATA.retain, replace(TRAINING, checkpoints=tmp_path / "file"), seed=1)


def steps_of(training: Training, couple: bool, data: AuxiliaryData, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each auxiliary was shown in each step, as sets of rows."""
    shown: list[Any] = []
    whole = auxiliaries.fine_tune

    def told(model: Any, rows: Any, *arguments: Any, **options: Any) -> None:
        steps: list[frozenset[tuple[int, ...]]] = []
        shown.append(steps)
        model.register_forward_pre_hook(
            lambda _m, _a, given: steps.append(
                frozenset(
                    tuple(ids[mask.bool()].tolist())
                    for ids, mask in zip(given["input_ids"], given["attention_mask"], strict=True)
                )
            ),
            with_kwargs=True,
        )
        whole(model, rows, *arguments, **options)

    monkeypatch.setattr(auxiliaries, "fine_tune", told)
    train_auxiliaries(llama(3), data, "full_vs_retain", training, seed=1, couple=couple)
    return shown


def test_coupled_auxiliaries_see_what_they_share_in_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    forget, retain = steps_of(replace(TRAINING, epochs=3), True, DATA, monkeypatch)
    extra = {tuple(row.ids) for row in DATA.forget}
    assert len(forget) == len(retain) == 6  # seven groups in batches of four, three epochs
    assert [step - extra for step in forget] == retain
    assert [sum(len(step & extra) for step in forget[at : at + 2]) for at in (0, 2, 4)] == [2, 2, 2]
    monkeypatch.undo()
    forget, retain = steps_of(replace(TRAINING, epochs=3), False, DATA, monkeypatch)
    assert [step - extra for step in forget] != retain


def test_coupling_equals_no_coupling_when_both_see_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AuxiliaryData, "of", lambda *_: (list(DATA.retain), list(DATA.retain)))
    recipe = replace(TRAINING, epochs=2)
    pairs = [
        train_auxiliaries(llama(3), DATA, "full_vs_retain", recipe, seed=1, couple=couple) for couple in (True, False)
    ]
    assert len({fingerprint(model) for pair in pairs for model in pair}) == 1


def test_auxiliaries_of_an_aborted_build_are_built_anew(tmp_path: Path) -> None:
    pair = Auxiliaries(llama(3), llama(4))
    cached = partial(cached_folder, root=tmp_path)

    class Broken(torch.nn.Module):
        def save_pretrained(self, folder: Path) -> None:
            (Path(folder) / "model.safetensors").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained_once("0" * 64, lambda: Auxiliaries(llama(3), Broken()), cached)
    assert fingerprint(trained_once("0" * 64, lambda: pair, cached)) == fingerprint(pair)


def test_swapped_roles_are_told(recwarn: pytest.WarningsRecorder) -> None:
    pair = train_auxiliaries(llama(3), DATA, "full_vs_retain", TRAINING, seed=1)
    assert not warn_if_swapped(pair, DATA.forget)
    assert not [w for w in recwarn if "swapped" in str(w.message)]
    with pytest.warns(UserWarning, match="look swapped"):
        assert warn_if_swapped(Auxiliaries(pair.retain, pair.forget), DATA.forget)
    counted = count_auxiliaries(DATA, "forget_vs_retain", V)
    assert not warn_if_swapped(counted, DATA.forget)
    with pytest.warns(UserWarning, match="look swapped"):
        warn_if_swapped(Auxiliaries(counted.retain, counted.forget), DATA.forget)


def folder_cache(root: Path) -> Callable[[str, str, Callable[[Path], None]], Path]:
    def cached(key: str, name: str, build: Callable[[Path], None]) -> Path:
        folder = root / key / name
        if not folder.exists():
            folder.mkdir(parents=True)
            build(folder)
        return folder

    return cached


def test_the_cache_gives_what_would_have_been_trained(tmp_path: Path) -> None:
    pair = Auxiliaries(llama(3), llama(4))
    built = []

    def build() -> Auxiliaries:
        built.append(1)
        return pair

    for _ in range(2):
        assert fingerprint(trained_once("k", build, folder_cache(tmp_path))) == fingerprint(pair)
    assert built == [1]


def test_the_key_holds_all_that_decides() -> None:
    def key(base: int = 3, data: AuxiliaryData = DATA, training: Training = TRAINING, **options: object) -> str:
        given = {"seed": 1, "device": "cpu"} | options
        return auxiliaries_key(llama(base), data, "full_vs_retain", training, **given)  # type: ignore[arg-type]

    same = key()
    assert same == key(training=replace(TRAINING, checkpoints=Path("elsewhere")))
    changed = copy.deepcopy(DATA.retain)
    changed[0] = Encoded(changed[0].ids, 1)
    others = [
        key(base=4),
        key(data=replace(DATA, forget=DATA.forget[:1])),
        key(data=replace(DATA, retain=changed)),
        key(training=replace(TRAINING, lr=2e-2)),
        key(seed=2),
        key(device="cuda"),
    ]
    assert len({same, *others}) == 7


def test_nothing_to_train_on_and_exploding_weights_are_refused() -> None:
    with pytest.raises(InputError, match="nothing to train on"):
        fine_tune(llama(3), [], TRAINING, seed=1)
    broken = llama(3)
    with torch.no_grad():
        next(broken.parameters()).fill_(torch.inf)
    with pytest.raises(InputError, match="not finite"):
        fine_tune(broken, DATA.forget, TRAINING, seed=1)
