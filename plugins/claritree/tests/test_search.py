"""The search: golden values, exact optima, invariants, and engines that agree."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from conftest import golden_data, mixed_data, plxor
from hypothesis import given, settings
from hypothesis import strategies as st
from icml26_plugin_claritree import CLARITreeRegressor
from icml26_plugin_claritree.engines import make_engine
from icml26_plugin_claritree.search import Budget, Lookahead, greedy_tree, greedy_value, least
from icml26_plugin_claritree.training import Prepared, prepare

ENGINES = ("binned", "rank1", "numpy")

GOLDEN = [  # depth, lambda, kappa, T, min_leaf, then (objective, leaves) of lookahead and of greedy
    (2, 0.01, 1e-3, 5, 5, (18.547772317, 4), (53.702711943, 4)),
    (3, 0.01, 1e-3, 5, 5, (14.368037381, 8), (37.573073535, 7)),
    (4, 0.001, 1e-4, 20, 0, (4.722184527, 9), (19.387710845, 7)),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: f"depth{c[0]}")
def test_golden_objectives_of_the_authors_program(engine: str, case: tuple) -> None:
    depth, lambda_, kappa, n_thresholds, min_leaf, lookahead, greedy = case
    X, y = golden_data()
    assert ((y - y.mean()) ** 2).sum() == pytest.approx(67.401832042, rel=1e-10)
    for search, (objective, leaves) in (("lookahead", lookahead), ("greedy", greedy)):
        model = CLARITreeRegressor(
            depth, lambda_, kappa, n_thresholds, min_leaf_node_size=min_leaf, engine=engine, search=search
        ).fit(X, y)
        assert model.objective_ == pytest.approx(objective, rel=1e-8)
        assert model.n_leaves_ == leaves


def prepared_problem(
    X: np.ndarray, y: np.ndarray, kappa: float, n_thresholds: int, min_leaf: int = 0, engine: str = "binned"
) -> Prepared:
    prepared = prepare(
        X, y, n_thresholds=n_thresholds, strategy="quantile", min_leaf=min_leaf, leaf="linear", categorical=(),
        one_hot=True, engine=engine, n_threads=1,
    )  # fmt: skip
    assert prepared.engine is not None
    return prepared


def brute_force(X: np.ndarray, y: np.ndarray, depth: int, lambda_: float, kappa: float, n_thresholds: int) -> float:
    """Least objective of all trees on the pool, each leaf by a dense solve. Independent of every engine."""
    n, p = X.shape
    z = (X - X.mean(0)) / X.std(0)
    target = y - y.mean()
    tss = target @ target
    min_leaf = 5 * p

    def leaf(rows: np.ndarray) -> float:
        design = np.column_stack([np.ones(rows.size), z[rows]])
        penalty = n * kappa * np.diag([0.0] + [1.0] * p)
        beta = np.linalg.lstsq(design.T @ design + penalty, design.T @ target[rows], rcond=None)[0]
        residual = target[rows] - design @ beta
        return float(residual @ residual + beta @ penalty @ beta + lambda_ * tss)

    def best(rows: np.ndarray, levels: int) -> float:
        value = leaf(rows)
        if levels == 0:
            return value
        for j in range(p):
            for q in np.arange(1, n_thresholds + 1) / (n_thresholds + 1):
                left = X[rows, j] <= np.quantile(X[:, j], q)
                if min_leaf <= left.sum() <= rows.size - min_leaf:
                    value = min(value, best(rows[left], levels - 1) + best(rows[~left], levels - 1))
        return value

    return best(np.arange(n), depth)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    p=st.integers(1, 2),
    depth=st.integers(1, 2),
    lambda_=st.sampled_from([0.0, 1e-3, 0.02, 0.2]),
    kappa=st.sampled_from([1e-6, 1e-3, 0.1]),
)
def test_up_to_depth_two_the_optimum_is_found(seed: int, p: int, depth: int, lambda_: float, kappa: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, p))
    y = np.where(X[:, 0] > 0.2, X[:, -1], -1 - X[:, 0] ** 2) + 0.3 * rng.normal(size=60)
    model = CLARITreeRegressor(depth, lambda_, kappa, 5).fit(X, y)
    assert model.objective_ == pytest.approx(brute_force(X, y, depth, lambda_, kappa, 5), rel=1e-8)


@pytest.mark.parametrize("depth", [1, 2])
def test_three_columns_up_to_depth_two_the_optimum_is_found(depth: int) -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 3))
    y = np.where(X[:, 0] * X[:, 1] > 0, X[:, 2], -X[:, 2]) + 0.1 * rng.normal(size=60)
    for engine in ENGINES:
        model = CLARITreeRegressor(depth, 1e-3, 1e-3, 5, engine=engine).fit(X, y)
        assert model.objective_ == pytest.approx(brute_force(X, y, depth, 1e-3, 1e-3, 5), rel=1e-8)


data_sets = st.builds(mixed_data, seed=st.integers(0, 10**6), n=st.integers(30, 120))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    data=data_sets,
    depth=st.integers(0, 5),
    lambda_=st.sampled_from([0.0, 1e-4, 1e-2, 0.3]),
    kappa=st.sampled_from([0.0, 1e-6, 1e-3, 1.0]),
    min_leaf=st.sampled_from([0, 1, 6]),
)
def test_lookahead_is_never_worse_than_greedy_nor_greedy_than_a_leaf(
    data: tuple, depth: int, lambda_: float, kappa: float, min_leaf: int
) -> None:
    prepared = prepared_problem(*data, kappa, 8, min_leaf)
    engine = prepared.engine.with_ridge(prepared.problem.n * kappa)
    lookahead = Lookahead(engine, Budget()).path(engine.root(), depth, [lambda_])[0].value
    greedy = greedy_tree(engine, engine.root(), depth, lambda_).value
    assert lookahead <= greedy * (1 + 1e-9) + 1e-11
    assert greedy <= (engine.root().loss + lambda_) * (1 + 1e-9)
    assert lookahead >= 0.0


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    data=data_sets,
    depth=st.integers(1, 4),
    lambda_=st.sampled_from([0.0, 1e-3, 0.02]),
    kappa=st.sampled_from([1e-6, 1e-3, 0.1]),
    min_leaf=st.sampled_from([0, 7]),
)
def test_engines_find_the_same_tree(data: tuple, depth: int, lambda_: float, kappa: float, min_leaf: int) -> None:
    X, y = data
    models = [
        CLARITreeRegressor(depth, lambda_, kappa, 6, min_leaf_node_size=min_leaf, engine=engine).fit(X, y)
        for engine in ENGINES
    ]
    for other in models[1:]:
        assert other.objective_ == pytest.approx(models[0].objective_, rel=1e-8)
        assert other.tree_.feature.tolist() == models[0].tree_.feature.tolist()
        assert other.tree_.threshold.tolist() == models[0].tree_.threshold.tolist()
        assert other.tree_.coef == pytest.approx(models[0].tree_.coef, rel=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_completions_in_bulk_are_greedy_completions_one_by_one(engine: str) -> None:
    X, y = mixed_data(3, 140)
    prepared = prepared_problem(X, y, 1e-3, 9, 4, engine)
    built = prepared.engine.with_ridge(0.14)
    box = built.root()
    from icml26_plugin_claritree.problem import legal_cuts

    cuts = legal_cuts(prepared.problem.codes, prepared.problem.n_bins, 4)
    reference = make_engine("numpy", prepared.problem).with_ridge(0.14)
    for depth, lambdas in itertools.product((0, 1, 2, 3), ([0.2, 0.01, 0.0], [0.02], [0.05], [0.1])):
        scores = built.completions(box, cuts, depth, np.array(lambdas), Budget())
        for (feature, code), score in zip(cuts, scores, strict=True):
            sides = reference.split(reference.root(), int(feature), int(code))
            expected = sum(greedy_value(reference, side, depth, np.array(lambdas)) for side in sides)
            assert score == pytest.approx(expected, rel=1e-9)


def test_auto_avoids_moments_that_do_not_fit(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    X, y = plxor(300, 3)
    assert type(prepared_problem(X, y, 1e-3, 5, engine="auto").engine).__name__ == "BinnedEngine"
    monkeypatch.setattr("icml26_plugin_claritree.engines.MOST_MOMENTS", 300 * 36 * 8 - 1)
    assert type(prepared_problem(X, y, 1e-3, 5, engine="auto").engine).__name__ == "Rank1Engine"
    assert "300 rows and 6 leaf columns" in caplog.text


def test_threads_change_nothing() -> None:
    X, y = plxor(1500, 3)
    one, two = (CLARITreeRegressor(3, 1e-3, 1e-4, 19, n_jobs=n).fit(X, y) for n in (1, 2))
    assert one.to_json() == two.to_json().replace('"n_jobs": 2', '"n_jobs": 1')


def test_a_path_of_lambdas_equals_separate_fits() -> None:
    X, y = mixed_data(8, 150)
    prepared = prepared_problem(X, y, 1e-3, 9, 5)
    engine = prepared.engine.with_ridge(0.15)
    lambdas = [0.3, 0.05, 0.01, 1e-3, 0.0]
    path = Lookahead(engine, Budget()).path(engine.root(), 4, lambdas)
    for lambda_, found in zip(lambdas, path, strict=True):
        alone = Lookahead(engine, Budget()).path(engine.root(), 4, [lambda_])[0]
        assert found.value == pytest.approx(alone.value, rel=1e-12)
        assert (found.feature, found.code) == (alone.feature, alone.code)
    assert len({found.value for found in path}) == len(lambdas)


def test_the_first_of_equal_scores_wins() -> None:
    scores = np.array([[2.0, 1.0], [1.0, 1.0], [1.0 - 1e-15, 3.0]])
    assert least(scores, 1).tolist() == [[False, True], [True, False], [False, False]]
    assert least(scores, 4).tolist() == [[False, True], [True, True], [True, False]]
    assert least(np.empty((0, 2)), 1).shape == (0, 2)


def test_exploring_ties_is_never_worse_and_sometimes_better() -> None:
    better = 0
    for seed in range(8):
        X, y = plxor(400, seed)
        first, explored = (
            CLARITreeRegressor(3, 1e-3, 1e-4, 19, ties=ties).fit(X, y).objective_ for ties in ("first", "explore")
        )
        assert explored <= first * (1 + 1e-12)
        better += explored < first * (1 - 1e-3)
    assert better >= 1


def test_columns_that_part_the_rows_alike_are_searched_once() -> None:
    X, y = plxor(300, 0)
    twice = np.column_stack([X[:, :2], X[:, 0] > 0, X[:, 0] <= 0]).astype(float)
    prepared = prepared_problem(twice, y, 1e-4, 5, 20)
    search = Lookahead(prepared.engine.with_ridge(0.03), Budget(), explore_ties=True)
    box = search.engine.root()
    cuts = np.array([[0, 2], [2, 0], [3, 0]])
    chosen = np.array([[True, False], [True, True], [True, True]])
    assert [(c, m.tolist()) for c, m in search._partitions(box, cuts, chosen)] == [
        (0, [True, False]),
        (1, [True, True]),
    ]


def test_no_first_cut_helps_on_plxor_so_that_greedy_fails() -> None:
    X, y = plxor(2000, 0)
    Xt, yt = plxor(2000, 1)
    ours = CLARITreeRegressor(3, 1e-3, 1e-4, 19).fit(X, y)
    greedy = CLARITreeRegressor(3, 1e-3, 1e-4, 19, search="greedy").fit(X, y)
    assert ours.score(Xt, yt) >= 0.88
    assert ours.n_leaves_ <= 8
    assert greedy.score(Xt, yt) <= 0.25


@pytest.mark.parametrize(
    ("seed", "ours", "greedy", "two_levels"),
    [
        (0, 0.0716, 0.866, 0.121),
        (1, 0.0535, 0.672, 0.089),
        (2, 0.0257, 0.703, 0.061),
        (3, 0.0598, 0.792, 0.098),
        (4, 0.0569, 0.904, 0.099),
    ],
)
def test_training_objectives_on_plxor(seed: int, ours: float, greedy: float, two_levels: float) -> None:
    X, y = plxor(2000, seed)

    def share(depth: int, search: str) -> tuple[float, int]:
        model = CLARITreeRegressor(depth, 1e-3, 1e-4, 19, search=search).fit(X, y)
        return model.objective_ / model.tss_, model.n_leaves_

    found, leaves = share(3, "lookahead")
    beaten, _ = share(3, "greedy")
    assert (found, leaves) == (pytest.approx(ours, abs=1e-3), 8)
    assert beaten == pytest.approx(greedy, abs=1e-3)
    assert found <= 0.15 * beaten
    assert share(2, "lookahead") == (pytest.approx(two_levels, abs=1e-3), 4)


def test_without_the_step_the_two_signs_are_found_at_depth_two() -> None:
    X, y = plxor(2000, 0, step=0.0)
    model = CLARITreeRegressor(2, 1e-3, 1e-4, 19).fit(X, y)
    tree = model.tree_
    assert model.n_leaves_ == 4
    root, children = tree.feature[0], {int(tree.feature[tree.left[0]]), int(tree.feature[tree.right[0]])}
    assert {int(root)} | children == {0, 1}
    assert len(children) == 1
    assert np.abs(tree.threshold[tree.feature >= 0]).max() < 0.1
    assert model.score(X, y) > 0.9
    assert CLARITreeRegressor(2, 1e-3, 1e-4, 19, search="greedy").fit(X, y).score(X, y) < 0.3


def test_preselected_candidates_keep_the_greedy_guarantee() -> None:
    X, y = plxor(800, 2)
    full = CLARITreeRegressor(3, 1e-3, 1e-4, 19).fit(X, y).objective_
    greedy = CLARITreeRegressor(3, 1e-3, 1e-4, 19, search="greedy").fit(X, y).objective_
    for options in ({"top_k": 3}, {"candidate_features": [5]}, {"candidate_features": []}):
        some = CLARITreeRegressor(3, 1e-3, 1e-4, 19, **options).fit(X, y).objective_
        assert full * (1 - 1e-9) <= some <= greedy * (1 + 1e-9)
    signs = CLARITreeRegressor(3, 1e-3, 1e-4, 19, candidate_features=[0, 1, 2]).fit(X, y).objective_
    assert signs == pytest.approx(full)


def test_a_spent_budget_falls_back_to_greedy_completions() -> None:
    X, y = plxor(1000, 0)
    for engine in ENGINES:
        prepared = prepared_problem(X, y, 1e-4, 19, engine=engine)
        built = prepared.engine.with_ridge(0.1)
        spent = Budget()
        spent.stop()
        search = Lookahead(built, spent)
        found = search.path(built.root(), 3, [1e-3])[0]
        assert search.timed_out
        assert found.value == pytest.approx(greedy_tree(built, built.root(), 3, 1e-3).value)


def test_time_running_out_among_candidates_keeps_the_best_so_far() -> None:
    X, y = plxor(600, 0)
    prepared = prepared_problem(X, y, 1e-4, 19)
    built = prepared.engine.with_ridge(0.06)
    greedy = greedy_tree(built, built.root(), 3, 1e-3).value
    complete = Lookahead(built, Budget()).path(built.root(), 3, [1e-3])[0].value

    class Interrupted:
        """The binned engine whose time runs out after the first feature of the root."""

        problem = built.problem
        root, split, best_cut = built.root, built.split, built.best_cut

        def completions(self, box, cuts, depth, lambdas, budget):
            scores = built.completions(box, cuts, depth, lambdas, Budget())
            scores[cuts[:, 0] > 0] = np.inf
            budget.stop()
            return scores

    search = Lookahead(Interrupted(), Budget())
    found = search.path(built.root(), 3, [1e-3])[0]
    assert search.timed_out
    assert complete <= found.value * (1 + 1e-9)
    assert found.value < 0.9 * greedy


def test_row_order_does_not_matter() -> None:
    X, y = mixed_data(1, 150)
    order = np.random.default_rng(0).permutation(150)
    a = CLARITreeRegressor(3, 1e-3, 1e-3, 8, min_leaf_node_size=5).fit(X, y)
    b = CLARITreeRegressor(3, 1e-3, 1e-3, 8, min_leaf_node_size=5).fit(X[order], y[order])
    assert a.objective_ == pytest.approx(b.objective_, rel=1e-9)


def test_affine_targets_and_rescaled_columns_map_the_tree() -> None:
    X, y = mixed_data(2, 150)
    options = {"depth": 3, "lambda_": 1e-3, "kappa": 1e-3, "n_thresholds": 8, "min_leaf_node_size": 5}
    base = CLARITreeRegressor(**options).fit(X, y)
    affine = CLARITreeRegressor(**options).fit(X, -3 * y + 7)
    assert affine.tree_.feature.tolist() == base.tree_.feature.tolist()
    assert affine.predict(X) == pytest.approx(-3 * base.predict(X) + 7, rel=1e-8)
    scale = np.array([2.0, 0.1, 30.0, 1.0, 1.0])
    shift = np.array([5.0, -1.0, 100.0, 0.0, 3.0])
    moved = CLARITreeRegressor(**options).fit(X * scale + shift, y)
    assert moved.apply(X * scale + shift).tolist() == base.apply(X).tolist()
    assert moved.predict(X * scale + shift) == pytest.approx(base.predict(X), rel=1e-7)
    inner = base.tree_.feature >= 0
    at = base.tree_.feature[inner]
    assert moved.tree_.threshold[inner] == pytest.approx(base.tree_.threshold[inner] * scale[at] + shift[at])


def test_the_objective_is_that_of_the_fitted_leaves() -> None:
    for seed, search in itertools.product(range(3), ("lookahead", "greedy")):
        X, y = mixed_data(seed, 150)
        model = CLARITreeRegressor(4, 2e-3, 1e-3, 10, min_leaf_node_size=6, search=search).fit(X, y)
        total = model.n_leaves_ * 2e-3 * model.tss_
        columns = model.tree_.columns
        for leaf, rows in enumerate(model.tree_.rows_of_leaves(X)):
            residual = y[rows] - model.predict(X[rows])
            beta = model.tree_.coef[leaf] * columns.std
            total += residual @ residual + 150 * 1e-3 * beta @ beta
        assert model.n_leaves_ > 2
        assert model.objective_ == pytest.approx(total, rel=1e-8)


def test_leaves_hold_the_automatic_minimum_of_rows() -> None:
    X, y = plxor(400, 0)
    model = CLARITreeRegressor(6, 0.0, 1e-3, 20).fit(X, y)
    assert np.bincount(model.apply(X)).min() >= 5 * 6
    model = CLARITreeRegressor(6, 0.0, 1e-3, 20, leaf="constant", min_leaf_node_size=0).fit(X, y)
    assert np.bincount(model.apply(X)).min() >= 1
