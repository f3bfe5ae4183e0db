"""Adapters: methods, baselines, datasets, metrics and figures of `regression.tabular`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import plxor
from icml26 import EnvironmentError_, InputError, Problem, RunContext, fingerprint
from icml26.tasks.tabular import Inputs, Truth
from icml26_plugin_claritree import CLARITreeCV, CLARITreeRegressor, first_cuts, metrics
from icml26_plugin_claritree import datasets as data
from icml26_plugin_claritree.baselines import Cart, LightGBMLinear, LinearTree, Official, RidgeRegression, Streed
from icml26_plugin_claritree.fitted import Encoder, tune
from icml26_plugin_claritree.methods import CLARITree, GreedyLinearTree
from pydantic import ValidationError

FIXED = {"depth": 3, "n_thresholds": 19, "lambda_": 1e-3, "kappa": 1e-4}


def problem(**config: Any) -> Problem[Inputs, Truth]:
    return data.PlXor(data.PlXor.Config(**config)).load(RunContext(0, stream=0))


def run(method: Any, inputs: Inputs, **config: Any) -> Any:
    return method(method.Config(**config)).run(inputs, RunContext(0))


def r2(output: Any, truth: Truth) -> float:
    residual = truth.y_test - output.predict(truth.X_test)
    return float(1 - residual @ residual / np.square(truth.y_test - truth.y_test.mean()).sum())


def test_plxor_is_the_data_of_the_formula() -> None:
    p = problem(n_train=2000, n_test=2000, seed=0)
    X, y = plxor(2000, 0)
    assert np.array_equal(p.inputs.X, X)
    assert np.array_equal(p.inputs.y, y)
    assert np.array_equal(p.truth.X_test, plxor(2000, 1)[0])
    assert p.inputs.feature_names == ("x0", "x1", "x2", "x3", "x4", "x5")
    one = problem(n_train=500, signs=1, step=0.0, noise=0.0, seed=3)
    assert one.inputs.y == pytest.approx(np.sign(one.inputs.X[:, 0]) * (2 * one.inputs.X[:, 3] + one.inputs.X[:, 4]))
    assert not np.array_equal(problem(n_train=50).inputs.X, problem(n_train=50, seed=7).inputs.X)


def test_metrics_tell_a_perfect_output_from_a_broken_one() -> None:
    p = problem(n_train=50, n_test=20)
    perfect, broken = (getattr(data.PlXor(data.PlXor.Config()), kind)(p) for kind in ("perfect", "broken"))
    assert r2(perfect, p.truth) == 1.0
    assert r2(broken, p.truth) < 0.0
    for metric in (metrics.leaves, metrics.train_objective, metrics.timed_out):
        assert metric(perfect, p.truth) < metric(broken, p.truth)


def test_the_bars_of_the_headline() -> None:
    p = problem(n_train=2000, n_test=2000, seed=0)
    ours, greedy = run(CLARITree, p.inputs, **FIXED), run(GreedyLinearTree, p.inputs, **FIXED)
    assert r2(ours, p.truth) >= 0.88
    assert metrics.leaves(ours, p.truth) <= 8
    assert r2(greedy, p.truth) <= 0.25
    assert metrics.train_objective(ours, p.truth) <= 0.15 * metrics.train_objective(greedy, p.truth)
    assert metrics.train_objective(ours, p.truth) == pytest.approx(0.0716, abs=1e-3)
    assert metrics.timed_out(ours, p.truth) == 0.0
    assert ours.info["n_parameters"] == 8 * 7 + 2 * 7


def test_open_options_are_tuned_as_the_paper_does() -> None:
    p = problem(n_train=400)
    grid = {"lambdas": [0.1, 0.01], "kappas": [0.1, 1e-3]}
    output = run(CLARITree, p.inputs, depth=2, n_thresholds=9, **grid)
    search = CLARITreeCV(2, **grid, n_thresholds=9).fit(p.inputs.X, p.inputs.y)
    assert (output.info["lambda"], output.info["kappa"]) == (search.best_lambda_, search.best_kappa_)
    assert np.array_equal(output.predict(p.truth.X_test), search.predict(p.truth.X_test))
    half = run(CLARITree, p.inputs, depth=2, n_thresholds=9, lambda_=0.02, kappas=[0.1, 1e-3])
    assert half.info["lambda"] == 0.02
    assert half.info["kappa"] in (0.1, 1e-3)


def test_the_adapter_passes_every_option_on() -> None:
    p = problem(n_train=400)
    config = {
        **FIXED, "thresholds_strategy": "uniform", "min_leaf_node_size": 40, "engine": "numpy", "clip_predictions": "train",
        "ties": "explore", "top_k": 7, "candidate_features": ["x1", "x4"],
    }  # fmt: skip
    output = run(CLARITree, p.inputs, **config)
    params = output.predict.estimator.get_params()
    assert {k: params[k] for k in FIXED} == FIXED
    assert (params["thresholds_strategy"], params["min_leaf_node_size"], params["engine"]) == ("uniform", 40, "numpy")
    assert (params["clip_predictions"], params["top_k"], params["candidate_features"]) == ("train", 7, [1, 4])
    assert params["ties"] == "explore"
    assert run(GreedyLinearTree, p.inputs, **FIXED).predict.estimator.search == "greedy"
    with pytest.raises(InputError, match="candidate_features: no column is called 'x9'"):
        run(CLARITree, p.inputs, **FIXED, candidate_features=["x9"])


@pytest.mark.parametrize(
    "bad", [{"depth": -1}, {"lambda_": -1}, {"kappa": "x"}, {"lambdas": []}, {"leaf": "cubic"}, {"detph": 3}]
)
def test_bad_options_are_refused(bad: dict) -> None:
    with pytest.raises(ValidationError, match=next(iter(bad))):
        CLARITree.Config(**bad)


def test_outputs_are_stored_and_read_back(tmp_path: Path) -> None:
    p = problem(n_train=400)
    method = CLARITree(CLARITree.Config(**FIXED))
    output = method.run(p.inputs, RunContext(0))
    method.save(output, tmp_path)
    again = CLARITree.load(tmp_path)
    assert fingerprint(again) == fingerprint(output)
    assert np.array_equal(again.predict(p.truth.X_test), output.predict(p.truth.X_test))
    other = method.run(problem(n_train=401).inputs, RunContext(0))
    assert fingerprint(other) != fingerprint(output)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_do_not_change_the_output(threads: int) -> None:
    p = problem(n_train=400)
    outputs = [CLARITree(CLARITree.Config(**FIXED)).run(p.inputs, RunContext(0, threads=t)) for t in (1, threads)]
    assert fingerprint(outputs[0]) == fingerprint(outputs[1])


def test_figures_show_the_tree_what_the_lookahead_saw_and_the_predictions(tmp_path: Path) -> None:
    p = problem(n_train=600)
    method = CLARITree(CLARITree.Config(**FIXED))
    output = method.run(p.inputs, RunContext(0))
    ctx = RunContext(0, folder=tmp_path)
    method.visualize(p, output, ctx)
    assert set(ctx.artifacts) == {"tree.svg", "tree.txt", "tree.json", "predictions.svg", "first-cuts.svg"}
    namespace = "{http://www.w3.org/2000/svg}"
    for name, kind, number in (("predictions.svg", "circle", 2000), ("first-cuts.svg", "circle", 2 * 6 * 19)):
        root = ET.parse(tmp_path / name).getroot()
        assert len(list(root.iter(namespace + kind))) == number
    ET.parse(tmp_path / "tree.svg")
    assert "leaf 0" in (tmp_path / "tree.txt").read_text()
    greedy = GreedyLinearTree(GreedyLinearTree.Config(**FIXED))
    ctx = RunContext(0, folder=tmp_path)
    greedy.visualize(p, greedy.run(p.inputs, ctx), ctx)
    assert "first-cuts.svg" not in ctx.artifacts


def test_first_cuts_are_what_the_searches_compare() -> None:
    X, y = plxor(1000, 0)
    model = CLARITreeRegressor(3, 1e-3, 1e-4, 19)
    cuts = first_cuts(model, X, y)
    assert cuts.column.size == 6 * 19
    tree = model.fit(X, y).tree_
    # x0 then x1 parts the rows as x1 then x0 does, so two first cuts tie: the first one is taken
    best = int(np.flatnonzero(cuts.completed <= cuts.completed.min() + 1e-12)[0])
    assert (cuts.column[best], cuts.threshold[best]) == (tree.feature[0], tree.threshold[0])
    assert cuts.completed[best] >= model.objective_ / model.tss_ - 1e-12
    greedy = CLARITreeRegressor(1, 1e-3, 1e-4, 19).fit(X, y)
    assert min(cuts.one_step.min(), cuts.leaf) == pytest.approx(greedy.objective_ / greedy.tss_)
    with pytest.raises(ValueError, match="no cuts to judge"):
        first_cuts(model, X, np.ones(1000))


def test_ridge_is_the_tree_with_one_leaf() -> None:
    p = problem(n_train=300, signs=1)
    output = run(RidgeRegression, p.inputs, kappas=[0.01])
    tree = CLARITreeRegressor(0, kappa=0.01).fit(p.inputs.X, p.inputs.y)
    assert output.predict(p.truth.X_test) == pytest.approx(tree.predict(p.truth.X_test), abs=1e-8)


def test_baselines_predict_where_a_first_cut_helps() -> None:
    p = problem(n_train=800, signs=1, seed=0)
    assert r2(run(GreedyLinearTree, p.inputs, **FIXED), p.truth) > 0.9
    assert r2(run(Cart, p.inputs), p.truth) > 0.5
    if importlib.util.find_spec("lightgbm"):
        boosted = run(LightGBMLinear, p.inputs, n_trees=30, leaves=[8], linear_lambdas=[0.01])
        assert r2(boosted, p.truth) > 0.8
        assert boosted.info["n_trees"] == 30
    if importlib.util.find_spec("pystreed"):
        streed = run(Streed, p.inputs, depth=1, n_thresholds=5, time_limit=20.0)
        assert r2(streed, p.truth) > 0.8
        assert streed.info["timed_out"] is False


def test_the_authors_program_as_a_baseline() -> None:
    pytest.importorskip("clari_tree")
    p = problem(n_train=400, step=0.0)
    theirs, ours = run(Official, p.inputs, **FIXED, search="greedy"), run(GreedyLinearTree, p.inputs, **FIXED)
    assert theirs.info["train_objective"] == pytest.approx(ours.info["train_objective"], rel=1e-8)
    assert theirs.predict(p.truth.X_test) == pytest.approx(ours.predict(p.truth.X_test), rel=1e-6, abs=1e-8)
    # first cuts may tie, which rounding decides in their program: exploring all ties is never worse
    theirs, ours = run(Official, p.inputs, **FIXED), run(CLARITree, p.inputs, **FIXED, ties="explore")
    assert ours.info["train_objective"] <= theirs.info["train_objective"] * (1 + 1e-9)


def test_linear_tree_says_what_it_needs() -> None:
    import sklearn

    p = problem(n_train=300, signs=1)
    if tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 6):
        with pytest.raises(EnvironmentError_, match=r"linear-tree needs scikit-learn<1\.6, installed is"):
            run(LinearTree, p.inputs)
    elif importlib.util.find_spec("lineartree"):
        assert r2(run(LinearTree, p.inputs, depths=[2], kappas=[1e-3]), p.truth) > 0.8


def test_sample_weights_are_refused_by_name() -> None:
    p = problem(n_train=60)
    weighted = Inputs(p.inputs.X, p.inputs.y, p.inputs.feature_names, sample_weight=np.ones(60))
    for method in (CLARITree, GreedyLinearTree, RidgeRegression, Cart, Streed):
        with pytest.raises(InputError, match="takes no sample weights"):
            run(method, weighted)


def test_categories_reach_every_method() -> None:
    rng = np.random.default_rng(0)
    code = rng.integers(0, 4, 300).astype(float)
    X = np.column_stack([code, rng.normal(size=300)])
    y = np.where(code == 2, 3.0, 0.0) + X[:, 1] + 0.01 * rng.normal(size=300)
    inputs = Inputs(X, y, ("kind", "x"), categorical=(0,))
    for output in (
        run(CLARITree, inputs, **FIXED),
        run(RidgeRegression, inputs),
        run(Cart, inputs, depths=[8], min_leaves=[1]),
    ):
        assert np.square(y - output.predict(X)).mean() < 0.05 * y.var()


def test_the_encoder_standardises_and_knows_only_seen_categories() -> None:
    X = np.array([[0.0, 1.0], [1.0, 3.0], [1.0, 5.0]])
    encode = Encoder.fit(Inputs(X, np.zeros(3), ("c", "x"), categorical=(0,)), standardize=True)
    assert encode(np.array([[1.0, 3.0], [9.0, 5.0]])) == pytest.approx(np.array([[0, 0, 1], [np.sqrt(1.5), 0, 0]]))


def test_tuning_takes_the_setting_with_the_best_validation_score() -> None:
    class Shrunk:
        def __init__(self, factor: float, n: int) -> None:
            self.factor, self.n = factor, n

        def fit(self, X: np.ndarray, y: np.ndarray) -> Shrunk:
            assert len(y) == self.n
            return self

        def predict(self, X: np.ndarray) -> np.ndarray:
            return self.factor * X[:, 0]

    x = np.random.default_rng(0).normal(size=(60, 1))
    grid = [{"factor": f} for f in (0.5, 2.0, 2.0, 3.0)]
    best, model = tune(lambda options, n: Shrunk(options["factor"], n), grid, x, 2 * x[:, 0], 3, 42)
    assert best is grid[1]
    assert model.n == 60


def test_bundled_tables_are_one_cross_validation() -> None:
    held_out = []
    for seed in range(5):
        p = data.BundledTables(data.BundledTables.Config(name="diabetes")).load(RunContext(seed, stream=0))
        assert p.inputs.X.shape[1] == 10
        held_out.append(p.truth.X_test)
        assert len(p.inputs.y) + len(p.truth.y_test) == 442
    rows = np.concatenate(held_out)
    assert np.unique(rows, axis=0).shape[0] == 442
    assert rows.shape[0] == 442


@pytest.mark.parametrize(
    ("name", "package", "shape"),
    [
        ("auto-mpg", "mlxtend", (392, 7)),
        ("star98", "statsmodels", (303, 12)),
        ("fair", "statsmodels", (6366, 8)),
        ("randhie", "statsmodels", (20190, 9)),
    ],
)
def test_bundled_tables_have_their_published_size(name: str, package: str, shape: tuple[int, int]) -> None:
    pytest.importorskip(package)
    X, y, names = data.READERS[name]()
    assert X.shape == (y.size, len(names)) == shape
    assert np.isfinite(X).all()
    assert np.isfinite(y).all()


def write_splits(folder: Path, train: str, test: str, fold: int = 0) -> None:
    split = folder / "splits" / f"outer_{fold}"
    split.mkdir(parents=True)
    (split / "train.csv").write_text(train)
    (split / "test.csv").write_text(test)


def load_splits(path: Path, **config: Any) -> Problem[Inputs, Truth]:
    return data.PaperSplits(data.PaperSplits.Config(path=path, **config)).load(RunContext(6, stream=0))


def test_the_papers_splits_are_read(tmp_path: Path) -> None:
    write_splits(tmp_path, "a,kind,y\n1.5,red,3\n2,blue,4\n0,red,1\n", "a,kind,y\n7,blue,9\n8,red,2\n", fold=1)
    p = load_splits(tmp_path, categorical=("kind",))  # seed 6: fold 1
    assert p.inputs.feature_names == ("a", "kind")
    assert p.inputs.X.tolist() == [[1.5, 1.0], [2.0, 0.0], [0.0, 1.0]]
    assert p.truth.X_test.tolist() == [[7.0, 0.0], [8.0, 1.0]]
    assert p.truth.y_test.tolist() == [9.0, 2.0]
    assert load_splits(tmp_path, categorical=("kind",), fold=1).inputs.y.tolist() == [3.0, 4.0, 1.0]


@pytest.mark.parametrize(
    ("train", "test", "categorical", "message"),
    [
        ("a,y\n1,2\n", "b,y\n1,2\n", (), "different columns"),
        ("a,y\n1,2\n", "a,y\n1,nan\n", (), "y"),
        ("a,y\n1,2\n", "a,y\n1\n", (), "test.csv"),
        ("a,y\nred,2\n", "a,y\nred,1\n", (), "red"),
        ("a,y\nred,2\n", "a,y\nblue,1\n", ("a",), "'blue' of column 'a' is in no row"),
        ("", "a,y\n1,2\n", (), "train.csv"),
    ],
)
def test_damaged_splits_are_refused(tmp_path: Path, train: str, test: str, categorical: tuple, message: str) -> None:
    write_splits(tmp_path, train, test, fold=1)
    with pytest.raises(InputError, match=message):
        load_splits(tmp_path, categorical=categorical)


def test_missing_splits_say_where_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"outer_1 is not a folder.*github\.com"):
        load_splits(tmp_path)
    (tmp_path / "splits" / "outer_1").mkdir(parents=True)
    with pytest.raises(InputError, match=r"train\.csv is missing"):
        load_splits(tmp_path)


def test_importing_the_hooks_loads_nothing_heavy() -> None:
    code = (
        "import sys, icml26_plugin_claritree, icml26_plugin_claritree.plugin as p; p.icml26_methods(); "
        "bad = {'numpy', 'numba', 'sklearn', 'scipy', 'pydantic'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_the_plugin_conforms() -> None:
    from icml26.testing import assert_conforms

    assert_conforms("claritree")
