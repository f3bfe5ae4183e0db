"""Tables of repeated runs and figures of recipes."""

from __future__ import annotations

import math

import pytest
from icml26.figures import config_value, figure_data
from icml26.leaderboard import (
    MetricFacts,
    Outcome,
    comparison_json,
    comparisons,
    default_baseline,
    estimate_json,
    metric_facts,
    rows,
)
from icml26.recipes import Figure
from icml26.statistics import Estimate
from made_up import outcomes, record

RUNS = [
    *outcomes({"ours": [1.0, 2.0, 3.0], "base": [4.0, 6.0, None]}, dataset="easy", roles={"base": "baseline"}),
    *outcomes({"ours": [1.0, 1.0, 1.0], "base": [2.0, 3.0, 4.0]}, dataset="hard", roles={"base": "baseline"}),
    *(Outcome("picky", "easy", seed, None, "paper", applicable=False, reason="needs 'labels'") for seed in range(3)),
]


def test_a_row_holds_mean_interval_and_failures() -> None:
    table = {(row.dataset, row.method): row for row in rows(RUNS, ["loss"])}
    assert list(table) == [("easy", "ours"), ("easy", "base"), ("easy", "picky"), ("hard", "ours"), ("hard", "base")]
    base = table["easy", "base"]
    assert isinstance(base.cells["loss"], Estimate)
    assert (base.cells["loss"].value, base.cells["loss"].n, base.failed) == (5.0, 2, 1)
    assert base.statuses == {"succeeded": 2, "failed": 1}


def test_a_pair_that_does_not_apply_is_a_reason_and_no_failure() -> None:
    row = next(row for row in rows(RUNS, ["loss"]) if row.method == "picky")
    assert (row.not_applicable, row.failed, row.cells) == ("needs 'labels'", 0, {"loss": "needs 'labels'"})


def test_a_metric_that_is_missing_says_why() -> None:
    made = record(metrics={"loss": 1.0})
    made.metrics["fder"] = {"value": None, "missing": "no reference run"}
    row = rows([Outcome("m", "d", 0, made)], ["fder", "other"])[0]
    assert row.cells == {"fder": "no reference run", "other": "not scored"}


def test_hidden_metrics_are_no_columns() -> None:
    made = record(metrics={"loss": 1.0, "helper": 2.0})
    made.metrics["helper"]["hidden"] = True
    assert list(metric_facts([Outcome("m", "d", 0, made)])) == ["loss"]


def test_a_comparison_pairs_datasets_and_seeds() -> None:
    found = comparisons(RUNS, "loss", "base")
    difference = found["ours"].difference
    assert difference.n == 5
    assert difference.value == pytest.approx((-3 - 4 - 1 - 2 - 3) / 5)
    assert found["ours"].p_note == "n too small"
    assert comparison_json(found["ours"], "base")["note"] == "n too small"
    assert set(found) == {"ours"}


def test_the_default_baseline_is_a_reference_before_a_baseline_and_never_an_oracle() -> None:
    runs = outcomes({"o": [1.0], "b": [1.0], "r": [1.0]}, roles={"o": "oracle", "b": "baseline", "r": "reference"})
    assert default_baseline(runs) == "r"
    assert default_baseline(runs[:2]) == "b"
    assert default_baseline(runs[:1]) is None


def test_a_cell_in_json_carries_unit_and_direction() -> None:
    facts = MetricFacts("loss", "s", "lower")
    assert estimate_json(Estimate(1.0, 0.5, 1.5, 3), facts) == {
        "mean": 1.0,
        "low": 0.5,
        "high": 1.5,
        "n": 3,
        "unit": "s",
        "direction": "lower",
    }
    assert estimate_json("failed") == {"mean": None, "missing": "failed"}


def test_a_figure_averages_over_seeds_along_a_config_key() -> None:
    configs = {"ihm a": {"epsilon": 10}, "ihm b": {"epsilon": 0.1}, "ihm c": {"epsilon": {"nonfinite": "inf"}}}
    runs = outcomes({"ihm a": [1.0, 3.0], "ihm b": [8.0, 8.0], "ihm c": [0.5, 0.5]}, configs=configs)
    data = figure_data(Figure("epsilon", "loss"), runs)
    assert [series.name for series in data.series] == ["ihm"]
    assert [(point.x, point.y.value) for point in data.series[0].points] == [(0.1, 8.0), (10.0, 2.0), (math.inf, 0.5)]


def test_a_figure_of_two_metrics_has_a_point_a_method() -> None:
    made = [Outcome("a", "d", seed, record(metrics={"loss": 1.0 + seed, "cost": 5.0}), "paper") for seed in range(2)]
    data = figure_data(Figure("cost", "loss", by="label"), made)
    assert data.x_is_metric
    point = data.series[0].points[0]
    assert isinstance(point.x, Estimate)
    assert (point.x.value, point.y.value) == (5.0, 1.5)


def test_several_datasets_are_several_lines() -> None:
    runs = outcomes({"m": [1.0]}, dataset="d1", configs={"m": {"k": 1}})
    runs += outcomes({"m": [2.0]}, dataset="d2", configs={"m": {"k": 1}})
    assert [series.name for series in figure_data(Figure("k", "loss"), runs).series] == ["m · d1", "m · d2"]
    assert len(figure_data(Figure("k", "loss", on="d1"), runs).series) == 1
    assert [series.name for series in figure_data(Figure("k", "loss", by="dataset"), runs).series] == ["d1", "d2"]


def test_along_an_option_of_the_dataset_several_datasets_are_one_line() -> None:
    made = [
        Outcome("m", f"d{noise}", 0, record(metrics={"loss": noise}, dataset_config={"noise": noise}))
        for noise in (3.0, 1.0)
    ]
    data = figure_data(Figure("noise", "loss"), made)
    assert [[(point.x, point.y.value) for point in line.points] for line in data.series] == [[(1.0, 1.0), (3.0, 3.0)]]


def test_a_figure_that_cannot_be_drawn_says_why() -> None:
    runs = outcomes({"m": [1.0]})
    assert figure_data(Figure("k", "nothing"), runs).note == "no run has nothing"
    assert "neither a config key nor a metric" in (figure_data(Figure("k", "loss"), runs).note or "")


def test_config_values_are_found_in_tables_and_in_the_dataset() -> None:
    made = Outcome("m", "d", 0, record(config={"a": {"b": 2}}, dataset_config={"noise": 0.5, "kind": "x"}))
    assert config_value(made, "a.b") == 2.0
    assert config_value(made, "noise") == config_value(made, "dataset.noise") == 0.5
    assert config_value(made, "kind") == "x"
    assert config_value(made, "missing") is None
