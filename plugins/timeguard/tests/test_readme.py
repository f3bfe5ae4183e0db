from __future__ import annotations

import re
from pathlib import Path

import pytest
from icml26.recipes import read_recipe

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "src" / "icml26_plugin_timeguard" / "recipes").glob("*.toml"))


def test_the_snippet_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.S)
    names: dict[str, object] = {}
    exec(compile(snippet, "README.md", "exec"), names)
    assert names["forecast"].shape == (1, 12, 3)  # type: ignore[attr-defined]
    assert "north" in capsys.readouterr().out or names["guard"].suspicious_units()  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_are_valid_and_name_existing_methods(path: Path) -> None:
    from icml26_plugin_timeguard import plugin

    recipe = read_recipe(path)
    text = path.read_text(encoding="utf-8")
    known = {spec.name for spec in plugin.icml26_methods()} | {spec.name for spec in plugin.icml26_datasets()}
    for name in re.findall(r'name = "([a-z0-9-]+)"', text):
        assert name in known
    assert recipe.claims and recipe.preconditions
