"""Profiles and recipe are what two rules chose from grids of equal size, on seeds that the recipe does not use."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from icml26_plugin_divergence_decoding import plugin

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "src" / "icml26_plugin_divergence_decoding" / "recipes" / "mini-tofu.toml"
POINTS = 12
#: Counts are exact, so that nothing fits them to small models; a grid of the distillation was not affordable (README).
NOT_TUNED = {"divergence-ngram", "divergence-distilled"}


@pytest.fixture(scope="module")
def tune() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("divergence_tune", ROOT / "benchmarks" / "tune.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    """The recipe's rows by label."""
    entries = tomllib.loads(RECIPE.read_text(encoding="utf-8"))["bench"]["methods"]
    tables = [{"name": entry} if isinstance(entry, str) else entry for entry in entries]
    return {table.get("as", table["name"]): table for table in tables}


def runs_of(tune: ModuleType, row: str, option: int, *scores: tuple[float, float, float]) -> list[Any]:
    """Runs of one point on the seeds 11 and 12; scores are (keyword-forget, keyword-retain, Agg)."""
    return [
        tune.Run(row, row, f'{{"x": {option}}}', seed, agg, 0.5, 0.5, 0.5, forget, retain, 0.5, 0.1)
        for seed, (forget, retain, agg) in zip((11, 12), scores, strict=True)
    ]


def test_the_rules_take_what_keeps_most_of_what_forgets_and_the_best_agg(tune: ModuleType) -> None:
    runs = [
        *runs_of(tune, "a", 1, (0.04, 0.6, 0.5), (0.06, 0.6, 0.5)),
        *runs_of(tune, "a", 2, (0.02, 0.9, 0.6), (0.16, 0.7, 0.6)),  # on the mean it forgets, and keeps most
        *runs_of(tune, "a", 3, (0.02, 0.99, 0.6), (0.2, 0.99, 0.6)),  # on the mean it does not
        *runs_of(tune, "a", 4, (0.0, 0.8, 0.6), (0.0, 0.8, 0.8)),  # equal to the second, which came first
        *runs_of(tune, "a", 5, (0.0, 0.99, 0.99), (math.nan,) * 3),  # diverged
        *runs_of(tune, "b", 1, (0.3, 0.9, 0.5), (0.3, 0.9, 0.7)),
        *runs_of(tune, "b", 2, (0.2, 0.1, 0.5), (0.2, 0.1, 0.5)),  # none forgets: the one that comes nearest
        *runs_of(tune, "target", 0, (0.9, 0.9, 0.1), (0.9, 0.9, 0.1)),
    ]
    chosen = {row: [point.options["x"] for point in both] for row, both in tune.choose(runs).items()}
    assert chosen == {"a": [2, 4], "b": [2, 1]}


def test_every_row_had_as_many_points_all_on_the_same_seeds(tune: ModuleType) -> None:
    seeds = tuple(tomllib.loads(tune.GRID.read_text(encoding="utf-8"))["seeds"])
    grids = tune.points(tune.read(tune.RESULTS))
    tuned = {spec.name for spec in plugin.icml26_methods() if spec.role in ("paper", "baseline")} - NOT_TUNED
    assert set(grids) == tuned | set(tune.REFERENCES)
    for row, grid in grids.items():
        assert {point.seeds for point in grid} == {seeds}
        assert len(grid) == (1 if row in tune.REFERENCES else POINTS), row
    assert not set(seeds) & set(tomllib.loads(RECIPE.read_text(encoding="utf-8"))["seeds"])


def test_the_results_are_those_of_the_grid(tune: ModuleType) -> None:
    document = tomllib.loads(tune.GRID.read_text(encoding="utf-8"))
    asked = {
        (
            entry.get("as", entry["name"]),
            json.dumps(options | dict(zip(entry["sweep"], values, strict=True)), sort_keys=True),
        )
        for entry in document["bench"]["methods"]
        if isinstance(entry, dict)
        for options in [entry.get("config", {})]
        for values in product(*entry["sweep"].values())
    }
    assert {entry.get("profile") for entry in document["bench"]["methods"] if isinstance(entry, dict)} == {"none"}
    assert {(run.row, run.options) for run in tune.read(tune.RESULTS) if run.row not in tune.REFERENCES} == asked


def test_the_profiles_are_the_points_that_keep(tune: ModuleType) -> None:
    profiles = {spec.name: spec.profiles.get("small") for spec in plugin.icml26_methods()}
    for row, (keeping, _) in tune.choose(tune.read(tune.RESULTS)).items():
        assert profiles[row] == keeping.options, row


def test_the_recipe_runs_what_the_rules_chose(tune: ModuleType, rows: dict[str, dict[str, Any]]) -> None:
    profiles = {spec.name: dict(spec.profiles.get("small", {})) for spec in plugin.icml26_methods()}

    def options(label: str) -> dict[str, Any]:
        return profiles[rows[label]["name"]] | rows[label].get("config", {})

    for row, (keeping, best) in tune.choose(tune.read(tune.RESULTS)).items():
        assert rows[row]["name"] == keeping.method and options(row) == keeping.options
        if best == keeping:
            assert f"{row}-agg" not in rows
        else:
            assert rows[f"{row}-agg"]["name"] == best.method and options(f"{row}-agg") == best.options
    briefs = {0.5, 0.8, 1.0, 1.2, 1.5}
    assert options("divergence-decoding")["alpha"] in briefs  # claim (i) speaks of one of these
    for alpha in briefs - {options("divergence-decoding")["alpha"]}:
        assert options(f"alpha-{alpha}") == profiles["divergence-decoding"] | {"alpha": alpha}
