"""Stopping and going on, export, and the native API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from icml26 import Problem, RunContext
from icml26.errors import EnvironmentError_, InputError
from icml26_plugin_timeguard import TimeGuardTrainer
from icml26_plugin_timeguard.methods import TimeGuard
from icml26_plugin_timeguard.session import threads_for_width
from icml26_plugin_timeguard.task import Inputs, Truth

OPTIONS: dict[str, Any] = {
    "backcast_epochs": 1,
    "warmup_epochs": 1,
    "rounds": 4,
    "k": 8,
    "k_max": 24,
    "lr": 1e-3,
    "forecaster_options": {"hidden": 16},
}


class StoppedError(Exception):
    """The machine went away."""


def stop_after(rounds: int) -> Any:
    def progress(iterable: Iterable[Any], label: str = "", total: int | None = None) -> Iterator[Any]:
        for done, item in enumerate(iterable):
            if label == "pool rounds" and done == rounds:
                raise StoppedError
            yield item

    return progress


@pytest.mark.parametrize("selection", ["val", "last"])
def test_a_resumed_run_ends_as_the_uninterrupted_one(
    small: Problem[Inputs, Truth], tmp_path: Path, selection: str
) -> None:
    path = tmp_path / "new folder" / "run.pt"
    train, val = small.inputs.train, small.inputs.val
    options = {**OPTIONS, "model_selection": selection, "reset_optimizer": False}
    straight = TimeGuardTrainer(**options).fit(train, val)
    with pytest.raises(StoppedError):
        TimeGuardTrainer(**options).fit(train, val, checkpoint=path, progress=stop_after(2))
    resumed = TimeGuardTrainer(**options).fit(train, val, checkpoint=path)
    np.testing.assert_array_equal(straight.pool_, resumed.pool_)
    np.testing.assert_array_equal(straight.rejections_, resumed.rejections_)
    np.testing.assert_array_equal(straight.predict(val[None, :12]), resumed.predict(val[None, :12]))
    assert not list(tmp_path.glob("**/*.part"))


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_refused(small: Problem[Inputs, Truth], tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    options = {**OPTIONS, "model_selection": "last", "rounds": 1}
    TimeGuardTrainer(**options).fit(small.inputs.train, checkpoint=path)
    for other in ({"seed": 1}, {"k": 9}, {"lr": 2e-3}):
        with pytest.raises(InputError, match="belongs to another run"):
            TimeGuardTrainer(**{**options, **other}).fit(small.inputs.train, checkpoint=path)
    changed = small.inputs.train.copy()
    changed[0, 0] += 1e-9
    with pytest.raises(InputError, match="belongs to another run"):
        TimeGuardTrainer(**options).fit(changed, checkpoint=path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InputError, match=r"run\.pt cannot be read"):
        TimeGuardTrainer(**options).fit(small.inputs.train, checkpoint=path)


def test_an_unwritable_place_is_refused_before_training(small: Problem[Inputs, Truth], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for option in ("checkpoint", "export_mask"):
        method = TimeGuard(TimeGuard.Config(**OPTIONS, **{option: tmp_path / "file" / "x.npz"}))
        with pytest.raises(EnvironmentError_, match="cannot be written"):
            method.run(small.inputs, RunContext(0))


def test_exported_masks_carry_channels_and_steps(small: Problem[Inputs, Truth], tmp_path: Path) -> None:
    path = tmp_path / "mask.npz"
    output = TimeGuard(TimeGuard.Config(**{**OPTIONS, "rounds": 1}, export_mask=path)).run(small.inputs, RunContext(0))
    with np.load(path, allow_pickle=False) as data:
        assert output.pool is not None
        np.testing.assert_array_equal(data["final"], output.pool.final)
        assert data["channels"].tolist() == list(small.inputs.channels)
        assert data["first_step"].tolist() == list(range(337))


def test_the_trainer_lists_what_it_did_not_trust(small: Problem[Inputs, Truth]) -> None:
    trainer = TimeGuardTrainer.small(**{**OPTIONS, "rounds": 2}).fit(small.inputs.train)
    units = trainer.suspicious_units(small.inputs.channels)
    assert len(units) == (~trainer.pool_).sum() == 4 * (337 - int(337 * 0.8))
    counts = [count for _, _, count in units]
    assert counts == sorted(counts, reverse=True) and set(counts) <= {1, 2}
    assert {name for name, _, _ in units} == set(small.inputs.channels)


def test_unknown_options_are_named() -> None:
    with pytest.raises(InputError, match="Unknown options betta; known: alpha"):
        TimeGuardTrainer(betta=0.5).fit(np.zeros((100, 2)))


def test_threads_follow_the_width_and_are_restored() -> None:
    before = torch.get_num_threads()
    with threads_for_width(120, 2):
        assert torch.get_num_threads() == 1
    with threads_for_width(358 * 12, 2):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before
