"""Recipes and bench files are read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest
from icml26.errors import UsageError
from icml26.grid import choice_from_argument, parse_seeds, read_bench
from icml26.plan import Choice
from icml26.recipes import Figure, Measure, read_recipe

RECIPE = """
schema = "icml26.recipe/1"
title = "TimeGuard resists BackTime and random triggers"
seeds = [1, 2, 3]
[bench]
methods = [{name = "timeguard", config = {beta = 0.8}}, "none", "pdb",
           {name = "timeguard", as = "paper-beta", config = {beta = 0.5}}]
datasets = ["synthetic-traffic", {name = "synthetic-traffic", as = "backtime", config = {attack = "backtime"}}]
metrics = ["mae-c", "mae-p", "fder"]
[[precondition]]
id = "attack-works"
text = "the attack works on plain training"
measure = {metric = "mae-p", of = "none", on = "backtime"}
at-most = 10
claims = ["resists"]
[[claim]]
id = "resists"
text = "a triggered forecast follows the attacker at most half as well"
paper = "MAE_P 1.96 x the leading baseline (abstract)"
measure = {metric = "mae-p", of = "timeguard", over = "none", on = "synthetic-traffic", as = "ratio"}
at-least = 2.0
must = true
[[claim]]
id = "best"
text = "beats all"
measure = {metric = "mae-p", of = "timeguard", over = "best-baseline", on = "backtime", as = "difference"}
at-least = 0
strict = true
aggregate = "median"
[[figure]]
x = "epsilon"
y = "mae-p"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recipe_is_read_whole(tmp_path: Path) -> None:
    recipe = read_recipe(written(tmp_path, RECIPE))
    assert recipe.grid.seeds == (1, 2, 3)
    assert recipe.grid.folder == tmp_path
    assert recipe.grid.methods[0] == Choice("timeguard", {"beta": 0.8}, label="timeguard")
    assert [entry.label for entry in recipe.grid.methods] == ["timeguard", "none", "pdb", "paper-beta"]
    assert recipe.grid.datasets[1] == Choice("synthetic-traffic", {"attack": "backtime"}, label="backtime")
    resists, best = recipe.claims
    assert resists.measure == Measure("mae-p", "timeguard", "synthetic-traffic", "ratio", ("none",))
    assert (resists.at_least, resists.at_most, resists.must, resists.aggregate) == (2.0, None, True, "mean")
    assert (best.strict, best.must, best.aggregate, best.measure.over) == (True, False, "median", ("best-baseline",))
    assert recipe.preconditions[0].claims == ("resists",)
    assert recipe.preconditions[0].claim.at_most == 10.0
    assert recipe.figures == (Figure("epsilon", "mae-p"),)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("at-least = 2.0", "at_least = 2.0", "at-least"),
        ("at-least = 2.0", "at-least = 'two'", "at-least must be a number, not a string"),
        ("at-least = 2.0", "at-least = true", "at-least must be a number"),
        ("at-least = 2.0", "at-least = 2.0\nat-most = 1.0", "nothing is at least 2.0 and at most 1.0"),
        ("at-least = 2.0\n", "", "what makes the claim hold"),
        ("must = true", "musst = true", "unknown key 'musst'; did you mean 'must'"),
        ('of = "timeguard", over = "none"', 'of = "timegard", over = "none"', "did you mean 'timeguard'"),
        ('over = "none"', 'over = "nothing"', "is not part of this bench"),
        ('over = "none"', 'over = "timeguard"', "compared with itself"),
        ('over = "none"', "over = []", "over must be"),
        ('over = "none", on = "synthetic-traffic", as = "ratio"', 'over = "none", on = "backtime"', "goes with as"),
        ('over = "none", on = "synthetic-traffic"', 'on = "synthetic-traffic"', "a ratio to what"),
        ('over = "none", on = "synthetic-traffic"', 'over = "none"', "'on' is missing: one of synthetic-traffic"),
        ('on = "synthetic-traffic"', 'on = "synthetic"', "did you mean 'synthetic-traffic'"),
        ('as = "ratio"', 'as = "quotient"', "is not one of value, ratio, difference"),
        (
            'metric = "mae-p", of = "timeguard", over = "none"',
            'metric = "mea", of = "timeguard", over = "none"',
            "metric",
        ),
        ('schema = "icml26.recipe/1"', 'schema = "icml26.recipe/2"', "this version reads 'icml26.recipe/1'"),
        ('schema = "icml26.recipe/1"', "", "'schema' is missing"),
        ("seeds = [1, 2, 3]", "seeds = [1, 1]", "twice"),
        ("seeds = [1, 2, 3]", "seeds = []", "at least one seed"),
        ("seeds = [1, 2, 3]", "seeds = [1.5]", "whole numbers"),
        ("seeds = [1, 2, 3]", "seeds = [true]", "whole numbers"),
        ("seeds = [1, 2, 3]", "", "'seeds' is missing"),
        ('as = "paper-beta", ', "", "'timeguard' stands there twice"),
        ('as = "paper-beta"', 'as = "a:b"', "cannot be a label"),
        ('as = "paper-beta"', 'lable = "x"', "unknown key 'lable'"),
        ('id = "best"', 'id = "resists"', "two claims have the id"),
        ('id = "best"', 'id = "Best One"', "not kebab-case"),
        ('claims = ["resists"]', 'claims = ["resist"]', "did you mean 'resists'"),
        ("[[figure]]", "[[figures]]", "unknown key 'figures'; did you mean 'figure'"),
        ('x = "epsilon"', 'x = "epsilon"\nlog = "z"', "log"),
        ("[bench]", "[bench", "not valid TOML"),
        ('"none", "pdb"', '"none", 3', "a table is expected, not a whole number"),
        ('datasets = ["synthetic-traffic", ', "datasets = 3 #", "datasets must be an array"),
    ],
)
def test_a_wrong_recipe_is_refused_with_the_place_and_a_hint(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in RECIPE
    path = written(tmp_path, RECIPE.replace(old, new))
    with pytest.raises(UsageError) as caught:
        read_recipe(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.toml: no such file"):
        read_recipe(tmp_path / "gone.toml")


def test_a_sweep_makes_one_entry_for_each_combination(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'schema = "icml26.bench-file/1"\nseeds = "0..2"\n[bench]\ndatasets = ["d"]\n'
        'methods = [{name = "ihm", config = {k = 1}, sweep = {epsilon = [0.1, 1.0], clip = [true]}}]\n',
    )
    grid = read_bench(path)
    assert grid.seeds == (0, 1, 2)
    assert [entry.label for entry in grid.methods] == ["ihm (epsilon 0.1, clip true)", "ihm (epsilon 1.0, clip true)"]
    assert grid.methods[1].config == {"k": 1, "epsilon": 1.0, "clip": True}


def test_a_bench_file_may_name_a_task_alone(tmp_path: Path) -> None:
    grid = read_bench(written(tmp_path, 'schema = "icml26.bench-file/1"\n[bench]\ntask = "a.b"\n'))
    assert (grid.task, grid.methods, grid.seeds) == ("a.b", (), (0,))


@pytest.mark.parametrize(("text", "seeds"), [("0..4", (0, 1, 2, 3, 4)), ("3", (3,)), ("1, 5..6", (1, 5, 6))])
def test_seeds_are_lists_and_ranges(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "4..1", "-1", "1,1", "0..2,1", "0..99999999999", "1.5", "1..", "1,,2"])
def test_wrong_seeds_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_seeds(text)


def test_an_argument_may_carry_a_label() -> None:
    assert choice_from_argument("strong=tg/timeguard") == Choice("tg/timeguard", label="strong")
    assert choice_from_argument("tg/timeguard").label == "tg/timeguard"
    with pytest.raises(UsageError, match="LABEL=NAME"):
        choice_from_argument("=x")
