"""Cross-validation over lambda and kappa."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import mixed_data, plxor
from icml26_plugin_claritree import PAPER_KAPPAS, PAPER_LAMBDAS, CLARITreeCV, CLARITreeRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, TimeSeriesSplit

GRID = {"lambdas": [0.1, 0.01, 1e-3], "kappas": [0.01, 1e-4]}


def test_the_default_grid_is_the_papers() -> None:
    model = CLARITreeCV()
    assert (len(model.lambdas), len(model.kappas), model.cv, model.random_state, model.depth) == (11, 5, 3, 42, 4)
    assert sorted(PAPER_LAMBDAS) == [1e-4, 5e-4, 1e-3, 3e-3, 5e-3, 8e-3, 0.01, 0.03, 0.05, 0.08, 0.1]
    assert sorted(PAPER_KAPPAS) == [1e-5, 1e-4, 1e-3, 0.01, 0.1]


def test_scores_are_those_of_a_plain_grid_search() -> None:
    X, y = mixed_data(0, 180)
    ours = CLARITreeCV(3, **GRID, n_thresholds=8, min_leaf_node_size=8).fit(X, y)
    grid = GridSearchCV(
        CLARITreeRegressor(3, n_thresholds=8, min_leaf_node_size=8),
        {"lambda_": GRID["lambdas"], "kappa": GRID["kappas"]},
        cv=KFold(3, shuffle=True, random_state=42),
        scoring="r2",
    ).fit(X, y)
    theirs = {
        (params["lambda_"], params["kappa"]): score
        for params, score in zip(grid.cv_results_["params"], grid.cv_results_["mean_test_score"], strict=True)
    }
    results = ours.cv_results_
    for lambda_, kappa, score in zip(results["lambda_"], results["kappa"], results["mean_test_score"], strict=True):
        assert score == pytest.approx(theirs[lambda_, kappa], rel=1e-8)
    assert {"lambda_": ours.best_lambda_, "kappa": ours.best_kappa_} == grid.best_params_
    assert ours.best_score_ == pytest.approx(grid.best_score_, rel=1e-8)
    assert ours.predict(X) == pytest.approx(grid.predict(X))
    assert results["split_test_score"].mean(axis=1) == pytest.approx(results["mean_test_score"])


def test_the_refitted_tree_stands_in_both_places() -> None:
    X, y = plxor(600, 0)
    model = CLARITreeCV(2, **GRID, n_thresholds=19).fit(X, y)
    alone = CLARITreeRegressor(2, model.best_lambda_, model.best_kappa_, 19).fit(X, y)
    assert model.objective_ == alone.objective_
    assert model.best_estimator_.predict(X).tolist() == alone.predict(X).tolist() == model.predict(X).tolist()
    assert model.best_estimator_.get_params() == alone.get_params()
    assert model.export_text() == alone.export_text()
    assert model.n_leaves_ == alone.n_leaves_


def test_the_sparsest_of_equal_settings_wins() -> None:
    X, y = plxor(200, 0)
    model = CLARITreeCV(2, lambdas=[0.5, 2.0, 1.0], kappas=[0.0], n_thresholds=5).fit(X, y)  # one leaf each
    assert model.best_lambda_ == 2.0


def test_threads_and_splitters() -> None:
    X, y = plxor(300, 0)
    one = CLARITreeCV(2, **GRID, n_thresholds=9).fit(X, y)
    two = CLARITreeCV(2, **GRID, n_thresholds=9, n_jobs=2).fit(X, y)
    assert one.cv_results_["mean_test_score"].tolist() == two.cv_results_["mean_test_score"].tolist()
    forward = CLARITreeCV(2, **GRID, n_thresholds=9, cv=TimeSeriesSplit(2)).fit(X, y)
    (train, test), _ = TimeSeriesSplit(2).split(X)
    first = CLARITreeRegressor(2, 0.1, 0.01, 9).fit(X[train], y[train])
    assert forward.cv_results_["split_test_score"][0, 0] == pytest.approx(r2_score(y[test], first.predict(X[test])))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lambdas": []}, "lambdas is empty"),
        ({"kappas": [-1]}, "kappas must be a finite number"),
        ({"cv": 1}, "cv must be an integer of at least 2"),
    ],
)
def test_bad_options_are_refused(options: dict, message: str) -> None:
    X, y = plxor(100, 0)
    with pytest.raises(ValueError, match=message):
        CLARITreeCV(2, **options).fit(X, y)


def test_greedy_search_can_be_tuned_in_the_same_way() -> None:
    X, y = plxor(1000, 0)
    Xt, yt = plxor(1000, 1)
    assert CLARITreeCV(3, **GRID, n_thresholds=19, search="greedy").fit(X, y).score(Xt, yt) < 0.4
    assert np.isfinite(CLARITreeCV(3, **GRID, n_thresholds=19, leaf="constant").fit(X, y).best_score_)
