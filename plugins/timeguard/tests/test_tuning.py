"""The profiles are what one rule chose from grids of equal size, on seeds that no recipe uses."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from icml26_plugin_timeguard import plugin

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "src" / "icml26_plugin_timeguard" / "recipes").glob("*.toml"))


@pytest.fixture(scope="module")
def tune() -> Iterator[ModuleType]:
    import sys

    spec = importlib.util.spec_from_file_location("timeguard_tune", ROOT / "benchmarks" / "tune.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def runs_of(tune: ModuleType, method: str, option: int, mae_c: tuple[float, ...], fder: tuple[float, ...]) -> list[Any]:
    return [
        tune.Run(method, f'{{"x": {option}}}', seed, c, 20.0, f, 1.0)
        for seed, c, f in zip((11, 12), mae_c, fder, strict=False)
    ]


def test_the_rule_takes_the_best_defence_among_those_that_still_forecast(tune: ModuleType) -> None:
    none = [tune.Run("none", "{}", seed, c, 9.0, 0.5, 1.0) for seed, c in ((11, 9.0), (12, 11.0))]
    grid = [
        *runs_of(tune, "a", 1, (10.0, 10.0), (0.6, 0.7)),
        *runs_of(tune, "a", 2, (10.0, 14.2), (0.9, 0.9)),  # the best, but 12.1 is beyond 1.2 x 10
        *runs_of(tune, "a", 3, (13.0, 11.0), (0.5, 0.9)),  # 12.0 is not
        *runs_of(tune, "a", 4, (10.0, 10.0), (0.7, 0.7)),  # equal to the third, which came first
        *runs_of(tune, "a", 5, (10.0,), (0.99,)),  # no finalist: it ran on one seed only
        *runs_of(tune, "b", 1, (20.0, 20.0), (0.9, 0.9)),
        *runs_of(tune, "b", 2, (15.0, 15.0), (0.1, 0.1)),  # none is admissible: the least clean error
    ]
    chosen = tune.choose([*none, *grid])
    assert {method: setting.options for method, setting in chosen.items()} == {"a": {"x": 3}, "b": {"x": 2}}


def test_the_best_three_of_each_grid_on_the_first_seed_go_on(tune: ModuleType) -> None:
    runs = [tune.Run("none", "{}", 11, 10.0, 9.0, 0.5, 1.0)]
    for option, (mae_c, fder) in enumerate([(10.0, 0.6), (12.1, 0.9), (11.0, 0.8), (12.1, 0.95), (9.0, 0.7)]):
        runs += runs_of(tune, "a", option, (mae_c,), (fder,))
    assert tune.finalists(runs, 11) == {"none": ["{}"], "a": ['{"x": 2}', '{"x": 4}', '{"x": 0}']}


def test_every_method_had_as_many_settings_on_the_same_seeds(tune: ModuleType) -> None:
    seeds = tuple(tomllib.loads(tune.GRID.read_text(encoding="utf-8"))["seeds"])
    runs = tune.read(tune.RESULTS)
    grids = tune.settings(runs)
    tuned = {spec.name for spec in plugin.icml26_methods() if spec.role in ("paper", "baseline")}
    assert set(grids) == tuned | {"none"}
    expected = tune.finalists(runs, seeds[0])
    for method in tuned:
        assert len(grids[method]) == 8
        finalists = [setting for setting in grids[method] if setting.seeds == seeds]
        assert {tune._json(setting.options) for setting in finalists} == set(expected[method]) and len(finalists) == 3
        assert {setting.seeds for setting in grids[method]} == {seeds, seeds[:1]}
    for path in RECIPES:
        assert not set(seeds) & set(tomllib.loads(path.read_text(encoding="utf-8"))["seeds"])


def test_the_results_are_those_of_the_grid(tune: ModuleType) -> None:
    document = tomllib.loads(tune.GRID.read_text(encoding="utf-8"))
    asked = {
        (entry["name"], json.dumps({**entry.get("config", {}), **dict(zip(entry["sweep"], values, strict=True))}))
        for entry in document["bench"]["methods"]
        if isinstance(entry, dict)
        for values in product(*entry["sweep"].values())
    }
    found = {(run.method, run.options) for run in tune.read(tune.RESULTS) if run.method != "none"}
    assert {(name, json.dumps(json.loads(options), sort_keys=True)) for name, options in asked} == found


def test_the_profiles_are_what_the_tuning_chose(tune: ModuleType) -> None:
    profiles = {spec.name: spec.profiles["small"] for spec in plugin.icml26_methods()}
    for method, setting in tune.choose(tune.read(tune.RESULTS)).items():
        assert profiles[method] == {**setting.options, **plugin.SMALL}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_run_the_tuned_profiles_and_the_papers_settings_only(path: Path) -> None:
    papers = {"beta": 0.5, "k": 20, "sigma": 2.0, "pi": 1.25}
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["bench"]["methods"]:
        assert isinstance(entry, str) or entry["config"] == papers
