"""A stranger's path: wheels in a fresh environment, a CSV that none of our code wrote, a forecaster used in a new process."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
from icml26_plugin_timeguard.nycflights import weather_file

PLUGIN = Path(__file__).parents[1]

RELOAD = """
import sys, pathlib, numpy as np
from icml26_plugin_timeguard import FittedForecaster
folder, histories, out = map(pathlib.Path, sys.argv[1:])
np.save(out, FittedForecaster.load(folder).predict(np.load(histories)))
"""


def run(*command: str | Path, **extra: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ICML26_", "PYTHON"))} | extra
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def core_source() -> Path | None:
    """The core's source folder when it is installed in editable mode; a released core is installed already."""
    text = importlib.metadata.distribution("icml26").read_text("direct_url.json")
    if text is None or not json.loads(text).get("dir_info", {}).get("editable"):
        return None
    return Path(json.loads(text)["url"].removeprefix("file://"))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    pytest.importorskip("hatchling", reason="building a wheel needs hatchling")
    folder = tmp_path_factory.mktemp("wheels")
    for source in filter(None, (core_source(), PLUGIN)):
        build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", build, str(folder)], cwd=source, check=True, capture_output=True)
    return sorted(folder.glob("*.whl"))


@pytest.mark.slow
def test_wheel_carries_what_it_needs(wheels: list[Path]) -> None:
    (own,) = (path for path in wheels if "timeguard" in path.name)
    names = zipfile.ZipFile(own).namelist()
    for needed in ("py.typed", "icml26-index.json", "plugin.py", "recipes/against-random.toml"):
        assert f"icml26_plugin_timeguard/{needed}" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith("tests") for name in names)


@pytest.mark.slow
def test_a_stranger_runs_saves_and_reloads(wheels: list[Path], tmp_path: Path) -> None:
    """The dependencies are lent from this environment; core and plugin come from their wheels."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    if not python.exists():
        python = tmp_path / "env" / "Scripts" / "python.exe"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for wheel in wheels:
        zipfile.ZipFile(wheel).extractall(site)
    # A path in a .pth is not itself searched for .pth files: editable installs of this environment stay invisible.
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    data, runs = tmp_path / "weather ü.csv", tmp_path / "runs"
    data.write_bytes(weather_file().read_bytes())
    output = run(
        python, "-m", "icml26", "run", "timeguard", "-d", "csv-series", "--json", "--output", runs, "--no-reference",
        "--set", f"dataset.path={data}", "--set", 'dataset.columns=["temp", "dewp", "humid", "pressure"]',
        "--set", "dataset.impute=linear", "--set", "dataset.max_steps=900",
        "--set", "rounds=3", "--set", "warmup_epochs=1", "--set", "backcast_epochs=1",
        ICML26_HOME=str(tmp_path / "home"),
    )  # fmt: skip
    (record,) = json.loads(output)["records"]
    folder = runs / record["id"]
    assert record["status"] == "succeeded" and set(record["metrics"]) == {"mae-c"}
    assert (folder / "forecast.png").read_bytes().startswith(b"\x89PNG")
    with (folder / "suspicious-units.csv").open(newline="") as file:
        assert {row["channel"] for row in csv.DictReader(file)} == {"temp", "dewp", "humid", "pressure"}
    histories, out = tmp_path / "histories.npy", tmp_path / "forecasts.npy"
    np.save(histories, np.random.default_rng(0).normal(50, 10, (3, 12, 4)))
    run(python, "-c", RELOAD, folder / record["output"], histories, out)
    from icml26_plugin_timeguard import FittedForecaster

    np.testing.assert_array_equal(
        np.load(out), FittedForecaster.load(folder / record["output"]).predict(np.load(histories))
    )
