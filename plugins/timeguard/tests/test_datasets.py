"""Datasets: determinism, real data offline, files in the true formats, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from icml26 import RunContext
from icml26.errors import InputError
from icml26.fingerprints import fingerprint
from icml26_plugin_timeguard.datasets import NycWeather, SyntheticTraffic
from icml26_plugin_timeguard.file_datasets import DatedFile, Pems, SeriesFile
from icml26_plugin_timeguard.nycflights import nyc_weather, weather_file
from icml26_plugin_timeguard.synthetic import PERIOD, ar1, synthetic_traffic


def ctx(seed: int = 0) -> RunContext:
    return RunContext(seed, stream=0)


def test_synthetic_traffic_has_the_documented_size_and_scale() -> None:
    values = synthetic_traffic(np.random.default_rng(0))
    assert values.shape == (3600, 10)
    assert 50 < values.std() < 90
    daily = np.corrcoef(values[:-PERIOD, 0], values[PERIOD:, 0])[0, 1]
    half = np.corrcoef(values[: -PERIOD // 3, 0], values[PERIOD // 3 :, 0])[0, 1]
    assert daily > 0.9 > half


def test_ar1_has_the_stationary_deviation_and_correlation() -> None:
    path = ar1(np.random.default_rng(0), 40_000, 0.8, 0.03)
    assert path.std() == pytest.approx(0.03 / 0.6, rel=0.05)
    assert np.corrcoef(path[:-1], path[1:])[0, 1] == pytest.approx(0.8, abs=0.02)


def test_attacked_share_of_the_default_problem() -> None:
    problem = SyntheticTraffic(SyntheticTraffic.Config()).load(ctx(1))
    assert problem.info["injections"] == 65
    assert problem.info["poisoned_units"] == pytest.approx(0.0639, abs=2e-4)
    assert problem.inputs.clean is not None and len(problem.inputs.clean.history) == round(0.05 * 2137)


@pytest.mark.parametrize("attack", ["random", "none"])
def test_datasets_depend_on_config_and_seed_only(attack: str) -> None:
    config = SyntheticTraffic.Config(steps=600, channels=3, attack=attack)
    prints = [fingerprint(SyntheticTraffic(config).load(ctx(seed))) for seed in (0, 0, 1)]
    assert prints[0] == prints[1] != prints[2]


def test_nyc_weather_is_an_hourly_grid_without_gaps() -> None:
    pytest.importorskip("pandas")
    values, names, times = nyc_weather(weather_file())
    assert values.shape == (len(times), 18) and 8_600 < len(times) < 8_761
    assert np.isfinite(values).all()
    assert (np.diff(times) == np.timedelta64(1, "h")).all()
    assert values[:, names.index("EWR wind_speed")].max() < 60
    jfk = values[:, names.index("JFK temp")]
    assert 5 < jfk.min() < 35 and 80 < jfk.max() < 110  # Fahrenheit
    assert times[0] == np.datetime64("2013-01-01T06:00")
    assert values[0, names.index("EWR temp")] == 39.02


def test_nyc_weather_is_scaled_by_its_training_part_only() -> None:
    problem = NycWeather(NycWeather.Config(attack="none", max_steps=1000)).load(ctx())
    np.testing.assert_allclose(problem.inputs.train.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(problem.inputs.train.std(axis=0), 1)
    assert problem.inputs.timestamps is not None and len(problem.inputs.timestamps) == 600


def test_a_users_csv_is_split_in_time_and_has_no_attack(tmp_path: Path) -> None:
    path = tmp_path / "my data ü.csv"
    values = synthetic_traffic(np.random.default_rng(0), 200, 2)
    rows = [f"2024-01-01T{i // 60:02d}:{i % 60:02d}:00,{a:.6f},{b:.6f}" for i, (a, b) in enumerate(values)]
    path.write_text("time,north,south\n" + "\n".join(rows) + "\n")
    problem = SeriesFile(SeriesFile.Config(path=path, timestamp="time")).load(ctx())
    assert problem.inputs.channels == ("north", "south")
    np.testing.assert_allclose(problem.inputs.train, values[:120], atol=1e-5)
    np.testing.assert_allclose(problem.truth.test, values[160:], atol=1e-5)
    assert problem.truth.attack is None and problem.inputs.clean is None
    assert problem.inputs.timestamps is not None and problem.inputs.timestamps[61] == np.datetime64("2024-01-01T01:01")
    attacked = SeriesFile(SeriesFile.Config(path=path, timestamp="time", attack="random")).load(ctx())
    assert attacked.truth.attack is not None


def test_time_series_library_files_are_read_in_their_format(tmp_path: Path) -> None:
    path = tmp_path / "ETTm1.csv"
    names = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
    values = synthetic_traffic(np.random.default_rng(0), 300, 7)
    stamps = np.datetime64("2016-07-01T00:00") + np.arange(300) * np.timedelta64(15, "m")
    rows = [
        ",".join([str(t).replace("T", " ") + ":00", *map(repr, map(float, v))])
        for t, v in zip(stamps, values, strict=True)
    ]
    path.write_text(",".join(["date", *names]) + "\n" + "\n".join(rows) + "\n")
    problem = DatedFile(DatedFile.Config(path=path)).load(ctx())
    assert problem.inputs.channels == tuple(names) and problem.truth.attack is not None
    assert problem.inputs.timestamps is not None and problem.inputs.timestamps[1] == np.datetime64("2016-07-01T00:15")
    chosen = DatedFile.Config(path=path, columns=("OT", "HUFL"), max_steps=200, attack="none")
    assert DatedFile(chosen).load(ctx()).inputs.train.shape == (120, 2)


def test_pems_files_are_read_in_their_format(tmp_path: Path) -> None:
    path = tmp_path / "PEMS03.npz"
    values = synthetic_traffic(np.random.default_rng(0), 300, 5)
    np.savez_compressed(path, data=values[:, :, None])
    problem = Pems(Pems.Config(path=path, attack="none")).load(ctx())
    np.testing.assert_array_equal(problem.inputs.train, values[:180])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a,b\n" + "1,2\n" * 50 + "3,\n" + "1,2\n" * 50, "b"),
        ("a,b\n" + "1,x\n" * 60, "b"),
        ("a,b\n" + "1,2\n" * 150, "constant"),
        ("a,b\n" + "1,2\n" * 20, "training part has 12 of 20 steps"),
        ("", "my.csv"),
    ],
)
def test_files_that_cannot_be_used_are_refused_with_what_is_wrong(tmp_path: Path, text: str, named: str) -> None:
    from icml26_plugin_timeguard.methods import PlainTraining

    path = tmp_path / "my.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=named):
        problem = SeriesFile(SeriesFile.Config(path=path)).load(ctx())
        PlainTraining(PlainTraining.Config(epochs=1)).run(problem.inputs, RunContext(0))


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"attacked_channels": (12,)}, r"attacked_channels=\[12\]"),
        ({"alpha_t": 0.2}, "alpha_t asks for"),
        ({"seq_len": 8}, "seq_len=8"),
        ({"pred_len": 5}, "pred_len=5"),
        ({"steps": 100}, "validation part has 20 of 100 steps"),
        ({"val_fraction": 0.6, "test_fraction": 0.5}, "val_fraction"),
    ],
)
def test_attacks_that_do_not_fit_are_refused(config: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        SyntheticTraffic(SyntheticTraffic.Config(**{"steps": 600, **config})).load(ctx())
