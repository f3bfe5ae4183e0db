"""The scikit-learn estimator: conformance, hostile input, and the uses of a fitted tree."""

from __future__ import annotations

import json
import time
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import mixed_data, plxor
from icml26_plugin_claritree import CLARITreeCV, CLARITreeRegressor
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError, SkipTestWarning
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import check_estimator


@pytest.mark.parametrize(
    "estimator", [CLARITreeRegressor(), CLARITreeRegressor(engine="numpy", leaf="constant"), CLARITreeCV()]
)
def test_scikit_learn_finds_no_fault(estimator: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        warnings.simplefilter(
            "ignore", UserWarning
        )  # tiny data sets of the checks: no continuous column, collinear leaves
        check_estimator(estimator)


def test_one_leaf_is_ridge_on_all_rows() -> None:
    X, y = mixed_data(0, 120)
    X = X[:, [0, 1, 2]] * [1.0, 5.0, 0.2] + [0.0, 3.0, 9.0]
    model = CLARITreeRegressor(lambda_=1.0, kappa=0.02).fit(X, y)
    assert model.n_leaves_ == 1
    mean, std = X.mean(0), X.std(0)
    ridge = Ridge(alpha=120 * 0.02).fit((X - mean) / std, y)
    assert model.predict(X) == pytest.approx(ridge.predict((X - mean) / std), abs=1e-8)
    assert model.tree_.coef[0] == pytest.approx(ridge.coef_ / std, abs=1e-8)


def test_exactly_linear_data_need_one_leaf() -> None:
    X, _ = plxor(500, 0)
    y = X @ np.array([1.0, -2.0, 0.5, 3.0, 0.0, 1.0]) + 4
    model = CLARITreeRegressor(lambda_=1e-4, kappa=1e-8).fit(X, y)
    assert model.n_leaves_ == 1
    assert model.score(X, y) > 1 - 1e-9


def test_constant_leaves_predict_means() -> None:
    X, y = plxor(300, 0)
    model = CLARITreeRegressor(3, 1e-3, leaf="constant").fit(X, y)
    leaves = model.apply(X)
    means = np.array([y[leaves == leaf].mean() for leaf in range(model.n_leaves_)])
    assert model.predict(X) == pytest.approx(means[leaves], rel=1e-9)
    sse = ((y - means[leaves]) ** 2).sum()
    assert model.objective_ == pytest.approx(sse + model.n_leaves_ * 1e-3 * model.tss_, rel=1e-9)


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_nan_and_infinity_are_refused_by_name(value: float, word: str) -> None:
    X, y = plxor(60, 0)
    table = pd.DataFrame(X, columns=list("abcdef"))
    table.loc[7, "d"] = value
    with pytest.raises(ValueError, match=rf"X contains {word} in column 3 \('d'\), row 7"):
        CLARITreeRegressor().fit(table, y)
    y[5] = value
    with pytest.raises(ValueError, match=f"y contains {word} in row 5"):
        CLARITreeRegressor().fit(X, y)
    model = CLARITreeRegressor(1).fit(X, np.arange(60.0))
    with pytest.raises(ValueError, match=rf"X contains {word} in column 3 \('x3'\), row 7"):
        model.predict(table.to_numpy())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": -1}, "depth must be an integer of at least 0, got -1"),
        ({"depth": 2.5}, "depth must be an integer"),
        ({"depth": 21}, "depth must be at most 20"),
        ({"lambda_": -1.0}, "lambda_ must be a finite number"),
        ({"lambda_": np.nan}, "lambda_ must be a finite number"),
        ({"kappa": "much"}, "kappa must be a finite number"),
        ({"n_thresholds": 0}, "n_thresholds must be an integer of at least 1"),
        ({"n_thresholds": "all"}, "n_thresholds must be an integer"),
        ({"engine": "gpu"}, "engine must be one of 'auto', 'binned', 'rank1', 'numpy', got 'gpu'"),
        ({"leaf": "quadratic"}, "leaf must be one of 'linear', 'constant'"),
        ({"search": None}, "search must be one of"),
        ({"clip_predictions": "all"}, "clip_predictions must be one of None, 'leaf', 'train'"),
        ({"top_k": 0}, "top_k must be"),
        ({"time_limit": -1}, "time_limit must be"),
        ({"time_limit": np.inf}, "time_limit must be"),
        ({"depth": 10**400}, "depth must be an integer of at least 0, got a longer integer"),
        ({"lambda_": 10**400}, "lambda_ must be a finite number of at least 0, got a longer integer"),
        ({"n_thresholds": 10**5000}, "n_thresholds must be an integer of at least 1, got a longer integer"),
        ({"kappa": 1e308}, r"kappa must be a finite number of at least 0, got 1e\+308, which is beyond"),
        ({"n_jobs": "all"}, "n_jobs must be an integer"),
        ({"categorical": 0}, "categorical must be a list of column numbers or names, got 0"),
        ({"categorical": "x0"}, "categorical must be a list of column numbers or names, got 'x0'"),
        ({"candidate_features": 1}, "candidate_features must be a list"),
        ({"categorical": [9]}, "categorical: there is no column 9"),
        ({"candidate_features": ["x9"]}, "candidate_features: there is no column 'x9'"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict, message: str) -> None:
    X, y = plxor(80, 0)
    with pytest.raises(ValueError, match=message):
        CLARITreeRegressor(**options).fit(X, y)


@pytest.mark.parametrize(
    ("x_scale", "target", "message"),
    [
        (1.0, [None] * 80, "Input y contains NaN in row 0"),
        (1.0, [10**400] * 80, "beyond the range of float64"),
        (1.0, [-1e200, 1e200] * 40, r"y holds values beyond 1e\+151"),
        (1.7e308, [0.0, 1.0] * 40, r"X holds values beyond 1e\+300"),
    ],
)
def test_missing_objects_and_overflowing_data_are_refused(x_scale: float, target: list, message: str) -> None:
    X = plxor(80, 0)[0] * x_scale
    y = np.array(target, dtype=object if target[0] is None else None)
    with pytest.raises(ValueError, match=message):
        CLARITreeRegressor(2, engine="numpy").fit(X, y)


def test_a_constant_target_gives_one_leaf() -> None:
    X, _ = plxor(200, 0)
    for constant in (0.0, 1e6 + 0.1, -3e-300):
        model = CLARITreeRegressor().fit(X, np.full(200, constant))
        assert model.n_leaves_ == 1
        assert model.predict(X) == pytest.approx(constant, rel=1e-12)
        assert model.objective_ == 0.0


def test_too_few_rows_to_split_give_one_leaf() -> None:
    X, y = plxor(59, 0)
    assert CLARITreeRegressor(lambda_=0.0).fit(X, y).n_leaves_ == 1  # 2 * min_leaf is 60


def test_all_binary_columns_give_constant_leaves_and_a_warning() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (200, 4))
    y = np.where(X[:, 0] ^ X[:, 1], 3.0, -1.0)
    with pytest.warns(UserWarning, match="no column of X is continuous"):
        model = CLARITreeRegressor(2, 1e-3).fit(X, y)
    assert model.n_leaves_ == 4
    assert model.predict(X) == pytest.approx(y)


def test_collinear_leaves_without_a_ridge_are_finite_and_reported() -> None:
    X, y = plxor(600, 0)
    X = np.column_stack([X, X[:, 3] * 2 - X[:, 4], np.full(600, 3.0)])
    for engine in ("binned", "rank1", "numpy"):
        with pytest.warns(UserWarning, match="nearly linearly dependent in leaves"):
            model = CLARITreeRegressor(2, 1e-3, 0.0, 9, engine=engine).fit(X, y)
        assert np.isfinite(model.predict(X)).all()
        assert model.objective_ >= 0.0
        clean = CLARITreeRegressor(2, 1e-3, 0.0, 9, min_leaf_node_size=40).fit(X[:, :6], y)
        assert model.objective_ == pytest.approx(clean.objective_, rel=1e-8)


def test_a_column_of_ones_changes_nothing() -> None:
    X, y = plxor(500, 0)
    with_ones = np.column_stack([np.ones(500), X])
    a = CLARITreeRegressor(3, 1e-3, min_leaf_node_size=30).fit(X, y)
    b = CLARITreeRegressor(3, 1e-3, min_leaf_node_size=30).fit(with_ones, y)
    assert a.objective_ == pytest.approx(b.objective_, rel=1e-9)


def test_wrong_columns_at_predict_are_refused() -> None:
    X, y = plxor(80, 0)
    model = CLARITreeRegressor(1).fit(X, y)
    with pytest.raises(ValueError, match="5 features"):
        model.predict(X[:, :5])
    named = CLARITreeRegressor(1).fit(pd.DataFrame(X, columns=list("abcdef")), y)
    with pytest.raises(ValueError, match="feature names"):
        named.predict(pd.DataFrame(X, columns=list("abcdfe")))
    with pytest.raises(NotFittedError):
        CLARITreeRegressor().predict(X)


def test_declared_categories_split_by_code_and_stay_out_of_the_leaves() -> None:
    rng = np.random.default_rng(0)
    code = rng.integers(0, 5, 400)
    X = np.column_stack([code, rng.normal(size=400)])
    y = np.where(code == 3, -2.0, 1.0) * X[:, 1]
    model = CLARITreeRegressor(1, 1e-3, 1e-6, categorical=[0]).fit(X, y)
    assert model.score(X, y) > 0.999
    assert "if x0 != 3 " in model.export_text()
    assert model.tree_.coef.shape == (2, 1)
    assert model.predict([[77, 1.0]]) == pytest.approx([1.0], abs=1e-3)  # an unseen code equals none of the known ones
    ignored = CLARITreeRegressor(1, 1e-3, 1e-6, categorical=[0], categorical_encoding="ignore").fit(X, y)
    assert set(ignored.tree_.feature.tolist()) <= {-1, 0}
    assert ignored.tree_.columns.split_source == (1,)
    named = CLARITreeRegressor(1, 1e-3, 1e-6, categorical=["kind"]).fit(pd.DataFrame(X, columns=["kind", "x"]), y)
    assert named.predict(pd.DataFrame(X, columns=["kind", "x"])) == pytest.approx(model.predict(X))


def test_predictions_can_be_kept_within_the_training_targets() -> None:
    X, y = plxor(600, 0)
    far = X * 100
    free, leaf, train = (
        CLARITreeRegressor(2, 1e-3, 1e-4, 19, clip_predictions=clip).fit(X, y) for clip in (None, "leaf", "train")
    )
    assert free.predict(far).max() > y.max() * 5
    assert train.predict(far).max() == pytest.approx(y.max())
    at = leaf.apply(far)
    ranges = np.array([[y[leaf.apply(X) == i].min(), y[leaf.apply(X) == i].max()] for i in range(leaf.n_leaves_)])
    assert np.all(leaf.predict(far) >= ranges[at, 0])
    assert np.all(leaf.predict(far) <= ranges[at, 1])


def test_a_row_on_a_threshold_goes_left_in_predict_as_in_fit() -> None:
    X = np.repeat([[0.0], [2.0], [4.0], [9.0]], 30, axis=0)
    y = np.where(X[:, 0] <= 2, 1.0, -1.0) + np.tile([1e-3, -1e-3], 60)
    model = CLARITreeRegressor(1, 1e-3, leaf="constant", n_thresholds="full").fit(X, y)
    threshold = model.tree_.threshold[0]
    assert threshold == 3.0
    assert model.apply([[threshold], [np.nextafter(threshold, 9)]]).tolist() == [0, 1]


def test_full_thresholds_are_all_midpoints() -> None:
    X, y = plxor(120, 0)
    model = CLARITreeRegressor(1, 0.0, n_thresholds="full").fit(X, y)
    assert [p.size for p in model.threshold_pool_] == [119] * 6
    fewer = CLARITreeRegressor(1, 0.0, n_thresholds=5).fit(X, y)
    assert model.objective_ < fewer.objective_


def test_a_time_limit_gives_a_tree_at_least_as_good_as_greedy() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 12))
    y = np.where(X[:, 0] * X[:, 1] > 0, X[:, 2], -X[:, 2]) + 0.3 * rng.normal(size=6000)
    CLARITreeRegressor(1).fit(X[:200], y[:200])  # compiled
    start = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match=r"time limit of 0\.05 s was reached"):
        model = CLARITreeRegressor(5, 1e-4, n_thresholds=60, time_limit=0.05).fit(X, y)
    assert time.perf_counter() - start < 10
    assert model.timed_out_
    greedy = CLARITreeRegressor(5, 1e-4, n_thresholds=60, search="greedy").fit(X, y)
    assert model.objective_ <= greedy.objective_ * (1 + 1e-9)
    assert not greedy.timed_out_


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_time_limit_beyond_the_clock_is_none() -> None:
    X, y = plxor(80, 0)
    model = CLARITreeRegressor(1, time_limit=1e18).fit(X, y)
    time.sleep(0.05)  # the timer's thread would fail by now
    assert not model.timed_out_


@pytest.mark.parametrize("engine", ["binned", "rank1", "numpy"])
def test_depth_is_bounded_by_the_rows(engine: str) -> None:
    """Engines reserve 2^depth slots: 120 rows and leaves of 30 allow three cuts on a path, however many are asked for."""
    X, y = plxor(120, 0)
    options = {"lambda_": 1e-4, "n_thresholds": 5, "min_leaf_node_size": 30, "engine": engine}
    deep, three = (CLARITreeRegressor(depth, **options).fit(X, y) for depth in (20, 3))
    assert deep.tree_.to_json() == three.tree_.to_json()
    assert deep.objective_ == three.objective_


def test_text_and_drawing_show_every_leaf_with_its_equation() -> None:
    X, y = plxor(600, 0)
    model = CLARITreeRegressor(2, 1e-3, 1e-4, 19).fit(pd.DataFrame(X, columns=["a", "b", "c<", "d", "e", "f"]), y)
    text = model.export_text(digits=6)
    assert text.count("leaf ") == model.n_leaves_ == 4
    for leaf in range(4):
        assert f"{abs(model.tree_.coef[leaf, 3]):.6g}*d" in text
    assert "(n=600)" in text
    root = ET.fromstring(model.export_svg())
    words = ["".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert sum(w.startswith("leaf ") for w in words) == 4
    assert sum("RMSE" in w for w in words) == 4
    assert any("c<" in w for w in words)
    width = float(root.attrib["width"])
    for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
        if "x" in rect.attrib:
            assert float(rect.attrib["x"]) >= 0
            assert float(rect.attrib["x"]) + float(rect.attrib["width"]) <= width
    with pytest.raises(ValueError, match="2 feature names for 6 columns"):
        model.export_text(["a", "b"])


def test_leaf_facts_are_those_of_the_training_rows() -> None:
    X, y = plxor(600, 0)
    tree = CLARITreeRegressor(3, 1e-3, 1e-4, 19).fit(X, y).tree_
    for leaf, rows in enumerate(tree.rows_of_leaves(X)):
        assert tree.n[tree.leaf == leaf].tolist() == [rows.size]
        assert tree.mse[leaf] == pytest.approx(((y[rows] - tree.predict(X[rows])) ** 2).mean())
        assert tree.y_range[leaf].tolist() == [y[rows].min(), y[rows].max()]
    assert tree.depth <= 3


def test_json_round_trip(tmp_path: Path) -> None:
    X, y = plxor(600, 0)
    table = pd.DataFrame(X, columns=list("abcdef"))
    model = CLARITreeRegressor(3, 1e-3, 1e-4, 19, categorical=None, n_jobs=np.int64(1)).fit(table, y)
    file = tmp_path / "tree.json"
    text = model.to_json(file)
    assert file.read_text() == text
    for source in (text, file, str(file)):
        again = CLARITreeRegressor.from_json(source)
        assert np.array_equal(again.predict(table), model.predict(table))
        assert again.to_json() == text
        assert again.get_params() == model.get_params()
        assert again.export_text() == model.export_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tree.json"]
    constants = CLARITreeRegressor(2, 1e-3, leaf="constant").fit(X, y)
    assert np.array_equal(CLARITreeRegressor.from_json(constants.to_json()).predict(X), constants.predict(X))


def _with(document: dict, path: str, value: object) -> dict:
    copy = json.loads(json.dumps(document))
    at = copy
    *way, last = path.split(".")
    for key in way:
        at = at[key]
    at[last] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema", "other/1", "schema is"),
        ("params.depht", 3, "depht"),
        ("params.engine", "gpu", "engine must be one of"),
        ("tree.feature", [99, -1, -1], "a split column does not exist"),
        ("tree.left", [0, -1, -1], "children do not form a tree"),
        ("tree.left", [1, -1], "differ in length"),
        ("feature_names", 3, "feature_names is not a list of 6"),
        ("tree.leaf", [], "node arrays differ in length"),
        ("tree.feature", 1, "node arrays differ in length"),
        ("tree.left", [[1, -1, -1]], "node arrays differ in length"),
        ("tree.leaf", [-1, 0, 0], "leaves are not numbered"),
        ("tree.intercept", [0.0, None], "not finite"),
        ("tree.columns.continuous", [0, 1, 2, 3, 4, 60], "an input column does not exist"),
        ("tree.coef", [[0.0]], "differ in length"),
        ("n_features", 1e400, "not the JSON of a fitted"),
        ("objective", 10**400, "not the JSON of a fitted"),
        ("tree.n", [10**400, 1, 1], "not the JSON of a CLARITree"),
        ("n_features", 4, "another number of columns"),
        ("tree", {}, "not the JSON of a CLARITree"),
    ],
)
def test_damaged_json_is_refused(path: str, value: object, message: str) -> None:
    X, y = plxor(300, 0)
    document = json.loads(CLARITreeRegressor(1, 1e-4, 1e-4, 19).fit(X, y).to_json())
    assert document["tree"]["feature"][1:] == [-1, -1]
    with pytest.raises(ValueError, match=message):
        CLARITreeRegressor.from_json(json.dumps(_with(document, path, value)))


def test_truncated_json_and_missing_files_are_refused(tmp_path: Path) -> None:
    X, y = plxor(100, 0)
    text = CLARITreeRegressor(1).fit(X, y).to_json()
    with pytest.raises(ValueError, match="not the JSON of a fitted CLARITreeRegressor"):
        CLARITreeRegressor.from_json(text[:-20])
    with pytest.raises(FileNotFoundError):
        CLARITreeRegressor.from_json(tmp_path / "none.json")


@pytest.mark.parametrize("source", ["", "  ", "[]", "{}", '["schema"]'])
def test_other_json_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="not the JSON of a fitted CLARITreeRegressor"):
        CLARITreeRegressor.from_json(source)


@pytest.mark.parametrize("source", [None, 3, b"{}", {"schema": "x"}])
def test_json_is_a_text_or_a_path(source: object) -> None:
    with pytest.raises(TypeError, match="takes a JSON text or a path"):
        CLARITreeRegressor.from_json(source)  # type: ignore[arg-type]


@pytest.mark.parametrize("digits", [-1, 0, 1.5, "a", None, True])
def test_odd_numbers_of_digits_are_refused(digits: object) -> None:
    X, y = mixed_data(0, 60)
    model = CLARITreeRegressor(engine="numpy").fit(X, y)
    for export in (model.export_text, model.export_svg):
        with pytest.raises(ValueError, match="digits must be an integer of at least 1"):
            export(digits=digits)  # type: ignore[operator]


def test_without_numba_auto_is_numpy_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "numba" else find(name, *a))
    X, y = plxor(200, 0)
    model = CLARITreeRegressor(2, 1e-3, 1e-4, 5).fit(X, y)
    assert "numba is not installed" in caplog.text
    monkeypatch.undo()
    assert model.objective_ == pytest.approx(CLARITreeRegressor(2, 1e-3, 1e-4, 5).fit(X, y).objective_, rel=1e-10)


def test_refitting_and_cloning() -> None:
    X, y = plxor(300, 0)
    model = CLARITreeRegressor(2, 1e-3).fit(X, y)
    first = model.predict(X)
    assert np.array_equal(model.fit(X, y).predict(X), first)
    assert np.array_equal(clone(model).fit(X, y).predict(X), first)


def test_extreme_scales() -> None:
    X, y = plxor(600, 0)
    base = CLARITreeRegressor(2, 1e-3, 1e-4, 19).fit(X, y)
    for factor in (1e-150, 1e150):
        scaled = CLARITreeRegressor(2, 1e-3, 1e-4, 19).fit(X * factor, y * factor)
        assert scaled.predict(X * factor) / factor == pytest.approx(base.predict(X), rel=1e-6)
