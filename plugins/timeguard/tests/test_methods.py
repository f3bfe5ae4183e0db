"""The adapters: runs through core, storage, figures, the table of suspicious units."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from icml26 import Problem, RunContext
from icml26.errors import InputError
from icml26_plugin_timeguard import storage, suspicious
from icml26_plugin_timeguard.baseline_methods import Abl, FinePruning, Pdb, Spectral
from icml26_plugin_timeguard.fitted import FittedForecaster
from icml26_plugin_timeguard.methods import ForecastMethod, LossPool, PlainTraining, TimeGuard, WindowPool
from icml26_plugin_timeguard.problem import AttackSettings, SeriesData, Windowing, build_problem, part_sizes
from icml26_plugin_timeguard.task import Inputs, Output, Pool, Truth

QUICK = {
    "backcast_epochs": 1,
    "warmup_epochs": 1,
    "rounds": 2,
    "lr": 1e-3,
    "model_selection": "last",
    "forecaster_options": {"hidden": 16},
}


@pytest.fixture(scope="module")
def output(small: Problem[Inputs, Truth]) -> Output:
    return TimeGuard(TimeGuard.Config(**QUICK)).run(small.inputs, RunContext(1))


def test_a_stored_output_forecasts_the_same(small: Problem[Inputs, Truth], output: Output, tmp_path: Path) -> None:
    method = TimeGuard(TimeGuard.Config(**QUICK))
    method.save(output, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {
        "forecaster.json",
        "forecaster.safetensors",
        "pool.npz",
        "info.json",
    }
    loaded = TimeGuard.load(tmp_path)
    history = small.inputs.val[None, :12]
    np.testing.assert_array_equal(loaded.forecaster.predict(history), output.forecaster.predict(history))
    assert loaded.pool is not None and output.pool is not None
    np.testing.assert_array_equal(loaded.pool.final, output.pool.final)
    assert (loaded.pool.rounds, loaded.info) == (2, output.info)


@pytest.mark.parametrize("name", ["forecaster.json", "forecaster.safetensors", "pool.npz", "info.json"])
@pytest.mark.parametrize("how", ["truncated", "empty"])
def test_damaged_outputs_are_refused(output: Output, tmp_path: Path, name: str, how: str) -> None:
    storage.save_output(output, tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2] if how == "truncated" else b"")
    with pytest.raises(InputError, match=str(tmp_path)):
        storage.load_output(tmp_path)


def test_weights_of_another_network_are_refused(output: Output, tmp_path: Path) -> None:
    storage.save_output(output, tmp_path)
    description = json.loads((tmp_path / "forecaster.json").read_text())
    description["n_channels"] = 5
    (tmp_path / "forecaster.json").write_text(json.dumps(description))
    with pytest.raises(InputError, match="do not fit"):
        storage.load_output(tmp_path)


def test_a_users_own_network_needs_its_factory_again(output: Output, tmp_path: Path) -> None:
    own = replace(output.forecaster, forecaster=None)  # type: ignore[type-var]
    assert isinstance(own, FittedForecaster)
    own.save(tmp_path)
    with pytest.raises(InputError, match="pass its factory"):
        FittedForecaster.load(tmp_path)
    assert isinstance(
        own.module, type(FittedForecaster.load(tmp_path, lambda *sizes: type(own.module)(*sizes, hidden=16)).module)
    )


def test_histories_of_the_wrong_shape_are_refused(output: Output) -> None:
    with pytest.raises(InputError, match=r"\(n, 12, 4\), not \(1, 11, 4\)"):
        output.forecaster.predict(np.zeros((1, 11, 4)))


def spoilt_pair() -> tuple[Problem[Inputs, Truth], Problem[Inputs, Truth]]:
    """One problem twice, the second time from a series whose test part is NaN."""
    from conftest import traffic

    values = traffic().values
    spoilt = values.copy()
    spoilt[-part_sizes(len(values), Windowing())[2] :] = np.nan
    names = tuple("abcd")
    first, second = (
        build_problem(SeriesData(v, names), Windowing(), AttackSettings(), np.random.default_rng(7))
        for v in (values, spoilt)
    )
    return first, second


QUICK_PLAIN = {key: QUICK[key] for key in ("lr", "forecaster_options")} | {"epochs": 2}
QUICK_POOL = {key: value for key, value in QUICK.items() if key != "model_selection"}


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (TimeGuard, QUICK_POOL),
        (LossPool, QUICK_POOL),
        (WindowPool, QUICK_POOL),
        (PlainTraining, QUICK_PLAIN),
        (Spectral, QUICK_PLAIN),
        (FinePruning, QUICK_PLAIN | {"fine_tuning_epochs": 1}),
        (Abl, QUICK_PLAIN | {"flooring_epochs": 1, "unlearn_epochs": 1}),
        (Pdb, QUICK_PLAIN),
    ],
)
def test_a_test_part_full_of_nan_changes_nothing_in_training(
    method: type[ForecastMethod], options: dict[str, object]
) -> None:
    """With model selection on, which must look at the validation part only."""
    problems = spoilt_pair()
    assert np.isnan(problems[1].truth.test).all() and np.isfinite(problems[1].inputs.train).all()
    outputs = [method(method.Config(**options)).run(p.inputs, RunContext(1)) for p in problems]
    history = problems[0].inputs.val[None, :12]
    first, second = (output.forecaster.predict(history) for output in outputs)
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, second)


def test_suspicious_units_are_listed_with_their_times(small: Problem[Inputs, Truth], tmp_path: Path) -> None:
    times = np.datetime64("2024-03-01T00:00", "us") + np.arange(len(small.inputs.train)) * np.timedelta64(5, "m")
    inputs = replace(small.inputs, timestamps=times)
    final = np.ones((4, 337), dtype=bool)
    final[2, 7] = final[0, 30] = False
    rejections = np.zeros((4, 337), dtype=int)
    rejections[2, 7], rejections[0, 30] = 9, 4
    suspicious.write_csv(inputs, Pool(final, final, rejections, 10), tmp_path / "units.csv")
    with (tmp_path / "units.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["channel"], r["window"], r["rejected_rounds"]) for r in rows] == [
        ("sensor 2", "7", "9"),
        ("sensor 0", "30", "4"),
    ]
    assert rows[0]["first_time"] == "2024-03-01T00:35:00"
    assert rows[0]["forecast_time"] == "2024-03-01T01:35:00" and rows[0]["forecast_step"] == "19"


@pytest.mark.parametrize("attacked", [True, False])
def test_figures_are_drawn_with_and_without_an_attack(
    small: Problem[Inputs, Truth], output: Output, tmp_path: Path, attacked: bool
) -> None:
    truth = small.truth if attacked else replace(small.truth, attack=None, clean_train=None)
    ctx = RunContext(1, folder=tmp_path)
    TimeGuard(TimeGuard.Config(**QUICK)).visualize(Problem(small.inputs, truth), output, ctx)
    assert set(ctx.artifacts) == {"forecast.png", "thrown-out-units.png", "suspicious-units.csv"}
    for name in ("forecast.png", "thrown-out-units.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.part"))


def test_a_long_wide_pool_is_drawn_within_the_pictures_size() -> None:
    from icml26_plugin_timeguard.figures import MAX_COLUMNS, _shrink

    share = np.random.default_rng(0).random((3, 5001))
    shrunk = _shrink(share)
    assert shrunk.shape[1] <= MAX_COLUMNS
    np.testing.assert_allclose(shrunk[:, 0], share[:, :5].mean(axis=1))
    np.testing.assert_allclose(shrunk[:, -1], share[:, 5000:].mean(axis=1))


def test_plugin_conforms() -> None:
    from icml26.testing import assert_conforms

    assert_conforms("timeguard")
