"""Recipes and specs: every name resolves, and every config is one that its class takes."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from icml26.recipes import read_recipe
from icml26_plugin_subspace_sae import plugin, specs_data

FOLDER = Path(plugin.__file__).parent / "recipes"
RECIPES = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_are_valid_and_name_existing_methods_and_metrics(path: Path) -> None:
    recipe = read_recipe(path)
    assert recipe.claims
    known = {spec.name for spec in plugin.icml26_methods()} | {spec.name for spec in plugin.icml26_datasets()}
    for name in re.findall(r'name = "([a-z0-9-]+)"', path.read_text(encoding="utf-8")):
        assert name in known
    assert recipe.grid.metrics is not None
    assert set(recipe.grid.metrics) <= {spec.name for spec in plugin.icml26_metrics()}


def test_the_acceptance_recipe_is_the_one_that_reproduce_takes_first() -> None:
    assert RECIPES[0].stem == "dead-features"


@pytest.mark.parametrize("spec", [*specs_data.baselines(), *specs_data.datasets()], ids=lambda spec: spec.name)
def test_targets_take_their_profiles_and_smoke_settings(spec: Any) -> None:
    module, name = spec.target.split(":")
    config = getattr(importlib.import_module(module), name).Config
    for options in (*getattr(spec, "profiles", {}).values(), spec.smoke):
        if options:
            config(**options)
    assert set(spec.files if hasattr(spec, "files") else ()) <= set(config.model_fields)
    assert all(field.description for field in config.model_fields.values())


@pytest.mark.parametrize("spec", specs_data.metrics(), ids=lambda spec: spec.name)
def test_metrics_exist(spec: Any) -> None:
    module, name = spec.target.split(":")
    assert callable(getattr(importlib.import_module(module), name))
