import gzip
import json
import os

import numpy as np
import pytest
from data import bounded_problem, least_squares
from icml26 import InputError, PluginError, Problem, RunContext
from icml26.tasks.tabular import Inputs, Output, Truth
from icml26_plugin_ihm import figures, methods
from icml26_plugin_ihm.bounds import PrivacyLeakWarning
from icml26_plugin_ihm.calibration import linear_mixing_k
from icml26_plugin_ihm.datasets import Aniso, BoundedTable, Fair, Randhie, Uci, draw_aniso
from icml26_plugin_ihm.metrics import clipped_residuals, excess_risk
from icml26_plugin_ihm.predictor import LinearPredictor, OneHot, linear_output
from icml26_plugin_ihm.report import PrivacyReport
from icml26_plugin_ihm.tradeoff import tradeoff
from pydantic import ValidationError

PRIVATE = [
    methods.HessianMixing,
    methods.AdaSSP,
    methods.LinearMixing,
    methods.OneStep,
    methods.GradientDescent,
    methods.OfficialAdaSSP,
    methods.OfficialGradientDescent,
]


def inputs_of(X, y, **options):
    return Inputs(X, y, tuple(f"x{j}" for j in range(X.shape[1])), **options)


def truth_of(X, y):
    return Truth(X.copy(), y.copy(), X.copy(), y.copy())


def run(method, inputs, seed=0, **config):
    return method(method.Config(**config)).run(inputs, RunContext(seed))


@pytest.fixture(scope="module")
def problem():
    return bounded_problem(n=300, d=3)


@pytest.mark.parametrize("method", PRIVATE)
def test_private_methods_report_their_budget_and_average_over_fits(method, problem):
    X, y = problem
    output = run(method, inputs_of(X, y), repeats=7, epsilon=2.0)
    assert output.predict(X).shape == y.shape
    predictions = output.replicates(X)
    assert predictions.shape == (7, len(y))
    np.testing.assert_allclose(predictions[0], output.predict(X), atol=1e-12)
    assert len(np.unique(predictions[:, 0])) == 7
    report = PrivacyReport.from_dict(json.loads(json.dumps(output.info["privacy"])))
    assert report.epsilon == 2.0
    assert sum(s.epsilon for s in report.spends) == pytest.approx(2.0)
    assert output.info["n_parameters"] == 3


@pytest.mark.parametrize("method", [*PRIVATE, methods.LeastSquares, methods.Null])
def test_outputs_survive_saving(method, problem, tmp_path):
    X, y = problem
    config = {"repeats": 3} if method in PRIVATE else {}
    output = run(method, inputs_of(X, y), **config)
    method(method.Config()).save(output, tmp_path)
    again = method.load(tmp_path)
    np.testing.assert_array_equal(again.predict(X), output.predict(X))
    assert (again.replicates is None) == (output.replicates is None)
    assert again.info["n_parameters"] == output.info["n_parameters"]


def test_one_seed_one_output(problem):
    X, y = problem
    first, again, other = (run(methods.HessianMixing, inputs_of(X, y), seed=s).predict(X) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_one_step_uses_the_sketch_of_linear_mixing(problem):
    X, y = problem
    output = run(methods.OneStep, inputs_of(X, y), delta=1e-6)
    scales = {spend["name"]: spend["parameters"] for spend in output.info["privacy"]["spends"]}
    assert scales["sketched Hessians"]["rows"] == linear_mixing_k(3, 1e-7)
    assert scales["sketched Hessians"]["releases"] == 1


def test_least_squares_and_null_are_exact(problem):
    X, y = problem
    ols = run(methods.LeastSquares, inputs_of(X, y))
    np.testing.assert_allclose(ols.predict(X), X @ least_squares(X, y), atol=1e-12)
    with_constant = run(methods.LeastSquares, inputs_of(X, y + 5), fit_intercept=True).predict(X)
    expected = np.column_stack([X, np.ones(len(X))])
    np.testing.assert_allclose(with_constant, expected @ least_squares(expected, y + 5), atol=1e-10)
    weight = np.where(np.arange(len(X)) < 50, 1.0, 0.0)
    weighted = run(methods.LeastSquares, inputs_of(X, y, sample_weight=weight)).predict(X)
    np.testing.assert_allclose(weighted, X @ least_squares(X[:50], y[:50]), atol=1e-10)
    assert (run(methods.Null, inputs_of(X, y)).predict(X) == 0).all()


def test_categories_become_indicator_columns():
    X = np.array([[0.5, 0.0], [0.1, 2.0], [0.2, 1.0]])
    encode = OneHot.of(inputs_of(X, np.zeros(3), categorical=(1,)))
    np.testing.assert_array_equal(encode(X), [[0.5, 1, 0, 0], [0.1, 0, 0, 1], [0.2, 0, 1, 0]])
    np.testing.assert_array_equal(encode(np.array([[0.3, 7.0]])), [[0.3, 0, 0, 0]])
    y = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(run(methods.LeastSquares, inputs_of(X, y, categorical=(1,))).predict(X), y)


def test_sample_weights_are_refused(problem):
    X, y = problem
    with pytest.raises(InputError, match="no sample weights"):
        run(methods.AdaSSP, inputs_of(X, y, sample_weight=np.ones(len(X))))


def test_bad_data_for_a_mechanism_is_an_input_error(problem):
    X, y = problem
    with pytest.raises(InputError, match="row 0 is out of bounds"):
        run(methods.HessianMixing, inputs_of(10 * X, y), clip_inputs=False, x_bound=0.01)
    with pytest.raises(InputError, match="k >= d"):
        run(methods.HessianMixing, inputs_of(X, y), k=4)


@pytest.mark.parametrize(
    "config",
    [
        {"epsilon": 0},
        {"epsilon": float("nan")},
        {"delta": 1.0},
        {"x_bound": -1},
        {"x_bound": "auto"},
        {"y_bound": (1, 0)},
        {"repeats": 0},
        {"iterations": 0},
        {"sketch": "srht"},
        {"k": 2},
        {"unknown": 1},
    ],
)
def test_bad_config_is_refused(config):
    with pytest.raises(ValidationError):
        methods.HessianMixing.Config(**config)


def test_bad_learning_rate_is_refused():
    with pytest.raises(ValidationError, match="learning_rate"):
        methods.GradientDescent.Config(learning_rate=-1.0)


def test_excess_risk_is_the_gap_of_the_training_errors(problem):
    X, y = problem
    n, ols = len(y), least_squares(X, y)
    coef = np.random.default_rng(0).standard_normal((5, 3))
    gaps = [(np.sum((y - X @ c) ** 2) - np.sum((y - X @ ols) ** 2)) / n for c in coef]
    scores = excess_risk(linear_output(coef, np.zeros(5), OneHot(), {}), truth_of(X, y))
    assert scores[""] == pytest.approx(np.mean(gaps))
    assert scores["se"] == pytest.approx(np.std(gaps, ddof=1) / np.sqrt(5))
    assert scores["median"] == pytest.approx(np.median(gaps))
    null = (np.sum(y**2) - np.sum((y - X @ ols) ** 2)) / n
    assert scores["worse-than-null"] == np.mean(np.array(gaps) > null)
    best = excess_risk(linear_output(ols[None], np.zeros(1), OneHot(), {}), truth_of(X, y))
    assert best[""] == pytest.approx(0.0, abs=1e-15)
    assert "se" not in best


def test_excess_risk_takes_outputs_of_other_plugins(problem):
    X, y = problem
    assert excess_risk(Output(predict=lambda X: np.zeros(len(X))), truth_of(X, y))["worse-than-null"] == 0.0
    with pytest.raises(PluginError, match="expected"):
        excess_risk(Output(predict=lambda X: np.zeros((len(X), 2))), truth_of(X, y))


def test_clipped_share_counts_residuals_beyond_the_label_bound(problem):
    X, y = problem
    output = linear_output(np.zeros((2, 3)), np.array([0.0, 100.0]), OneHot(), {"label_bound": 0.5})
    assert clipped_residuals(output, truth_of(X, y)) == pytest.approx((np.mean(np.abs(y) > 0.5) + 1) / 2)
    with pytest.raises(PluginError, match="label_bound"):
        clipped_residuals(linear_output(np.zeros((1, 3)), np.zeros(1), OneHot(), {}), truth_of(X, y))


def test_randhie_has_the_published_facts():
    problem = Randhie(Randhie.Config()).load(RunContext(0))
    X, y = problem.inputs.X, problem.inputs.y
    assert X.shape == (20190, 9)
    assert np.linalg.norm(X, axis=1).max() == pytest.approx(1.0)
    assert np.abs(y).max() == pytest.approx(1.0)
    assert np.linalg.eigvalsh(X.T @ X)[0] == pytest.approx(59.505, abs=5e-4)
    ols = least_squares(X, y)
    assert np.mean((y - X @ ols) ** 2) == pytest.approx(0.0820881, abs=5e-8)
    assert np.mean((X @ ols) ** 2) == pytest.approx(0.0034956, abs=5e-8)
    assert problem.info["bounds_from_data"]


def test_fair_has_hardly_any_signal():
    problem = Fair(Fair.Config()).load(RunContext(0))
    X, y = problem.inputs.X, problem.inputs.y
    assert X.shape == (6366, 8)
    assert np.mean((X @ least_squares(X, y)) ** 2) == pytest.approx(8.0e-5, abs=5e-7)


def test_held_out_rows_are_scaled_by_the_training_rows():
    problem = Randhie(Randhie.Config(test_fraction=0.25, rows=400)).load(RunContext(0))
    assert (len(problem.inputs.y), len(problem.truth.y_test)) == (300, 100)
    np.testing.assert_allclose(problem.inputs.X.mean(axis=0), 0, atol=1e-12)
    assert np.abs(problem.truth.X_test.mean(axis=0)).max() > 1e-3
    assert not np.shares_memory(problem.inputs.X, problem.truth.X_train)


def test_aniso_follows_its_recipe():
    X, y = draw_aniso(5000, 4, 1.0, np.random.default_rng(3))
    rng = np.random.default_rng(3)
    raw = rng.standard_normal((5000, 4)) * np.array([1.0, 2.0, 3.0, 4.0]) ** -0.5
    raw /= np.linalg.norm(raw, axis=1).max()
    np.testing.assert_array_equal(X, raw)
    theta = rng.standard_normal(4)
    z = X @ (theta / np.linalg.norm(theta))
    z /= 1.2 * np.abs(z).max()
    np.testing.assert_array_equal(y, np.clip(z + 0.2 * z.std() * rng.standard_normal(5000), -1, 1))
    own = Aniso(Aniso.Config(n=100, d=2, seed=5)).load(RunContext(0)).inputs.X
    np.testing.assert_array_equal(own, draw_aniso(100, 2, 1.0, np.random.default_rng(5))[0])


def write_uci(folder, data, mask):
    for name, values in (("data", data), ("test_mask", mask)):
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            np.savetxt(file, values, delimiter=",")


def test_uci_folder_is_read_with_its_split(tmp_path):
    rng = np.random.default_rng(0)
    data, mask = rng.standard_normal((50, 4)), np.arange(50)[:, None] % 10 == np.arange(10)
    write_uci(tmp_path, data, mask)
    with pytest.warns(PrivacyLeakWarning):
        problem = Uci(Uci.Config(path=str(tmp_path), split=3, standardise=False)).load(RunContext(0))
    assert problem.truth.X_test.shape == (5, 3)
    train = data[~mask[:, 3]]
    np.testing.assert_allclose(problem.inputs.X, train[:, :3] / np.linalg.norm(train[:, :3], axis=1).max())
    np.testing.assert_allclose(problem.inputs.y, train[:, 3] / np.abs(train[:, 3]).max())


def test_uci_in_two_parts_is_joined(tmp_path):
    rng = np.random.default_rng(0)
    data, mask = rng.standard_normal((40, 3)), np.arange(40)[:, None] % 10 == np.arange(10)
    write_uci(tmp_path, data[:25], mask)
    with gzip.open(tmp_path / "data1.csv.gz", "wt") as file:
        np.savetxt(file, data[25:], delimiter=",")
    with pytest.warns(PrivacyLeakWarning):
        assert Uci(Uci.Config(path=str(tmp_path))).load(RunContext(0)).info["n"] == 36


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (np.ones(6), "split 0 has 0 training and 6 test rows"),
        (np.zeros(6), "split 0 has 6 training and 0 test rows"),
        ([1, 1, 1, 1, 1, 0], "split 0 has 1 training"),
        ([0, 0, 0, 2, 0, 1], "holds 2 in row 3; 0 .train. or 1 .test."),
        ([0, 0, 0, 0.5, 0, 1], "holds 0.5 in row 3"),
    ],
)
def test_a_damaged_mask_is_named(column, message, tmp_path):
    write_uci(tmp_path, np.arange(18.0).reshape(6, 3), np.asarray(column, dtype=float)[:, None])
    with pytest.raises(InputError, match=f"test_mask.csv.gz.*{message}"):
        Uci(Uci.Config(path=str(tmp_path))).load(RunContext(0))


def test_parts_that_do_not_fit_and_pipes_are_no_data(tmp_path):
    write_uci(tmp_path, np.ones((5, 3)), np.zeros((10, 1)))
    with gzip.open(tmp_path / "data2.csv.gz", "wt") as file:
        np.savetxt(file, np.ones((5, 4)), delimiter=",")
    with pytest.raises(InputError, match=r"differ in their number of columns.*'data2.csv.gz': 4"):
        Uci(Uci.Config(path=str(tmp_path))).load(RunContext(0))
    for name in ("data.csv.gz", "data2.csv.gz"):
        (tmp_path / name).unlink()
    os.mkfifo(tmp_path / "data.csv.gz")
    with pytest.raises(InputError, match="holds no data"):
        Uci(Uci.Config(path=str(tmp_path))).load(RunContext(0))


def test_uci_faults_name_the_file(tmp_path):
    with pytest.raises(InputError, match="get the folder of one set"):
        Uci(Uci.Config(path=str(tmp_path))).load(RunContext(0))
    write_uci(tmp_path, np.ones((5, 3)), np.ones((4, 10)))
    with pytest.raises(InputError, match="does not exist"):
        Uci(Uci.Config(path=str(tmp_path))).load(RunContext(0))
    whole = (tmp_path / "data.csv.gz").read_bytes()
    (tmp_path / "data.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"data\.csv\.gz cannot be read"):
        Uci(Uci.Config(path=str(tmp_path))).load(RunContext(0))
    write_uci(tmp_path, np.full((5, 3), np.nan), np.ones((5, 10)))
    with pytest.raises(InputError, match="holds nan in row 0"):
        Uci(Uci.Config(path=str(tmp_path))).load(RunContext(0))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "people.csv"
    rows = ["age,income,score"] + [f"{20 + i},{1000 * i},{i % 5}" for i in range(40)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return {"path": str(path), "target": "score"}


def test_table_reaches_the_ball_by_public_bounds_alone(table):
    bounds = {"column_bounds": {"age": (0, 120), "income": (0, 20_000)}, "label_bounds": (0, 10), "test_fraction": 0}
    problem = BoundedTable(BoundedTable.Config(**table, **bounds)).load(RunContext(0))
    X, y = problem.inputs.X, problem.inputs.y
    np.testing.assert_allclose(X[0], [(20 - 60) / 60 / np.sqrt(2), -1 / np.sqrt(2)])
    np.testing.assert_allclose(X[30, 1], 1 / np.sqrt(2))  # income 30,000 is clipped to its bound
    np.testing.assert_allclose(y[:5], [-1, -0.8, -0.6, -0.4, -0.2])
    assert np.linalg.norm(X, axis=1).max() <= 1
    assert problem.info["bounds_from_data"] is False


def test_table_scaled_by_its_own_rows_warns_and_is_marked(table):
    with pytest.warns(PrivacyLeakWarning, match="scaled by its own rows"):
        problem = BoundedTable(BoundedTable.Config(**table, bounds="data")).load(RunContext(0))
    assert problem.info["bounds_from_data"]


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({}, ValidationError, "needs column_bounds"),
        ({"column_bounds": {"age": (1, 0)}, "label_bounds": (0, 1)}, ValidationError, "low < high"),
        ({"column_bounds": {"age": (0, 1)}, "label_bounds": (0, 1)}, InputError, r"missing \['income'\]"),
        ({"bounds": "data", "categorical": ("age",)}, ValidationError, "encode them"),
        ({"bounds": "data", "weight": "age"}, ValidationError, "sample weights"),
    ],
)
def test_bad_table_configs_are_refused(table, config, error, message):
    with pytest.raises(error, match=message):
        BoundedTable(BoundedTable.Config(**table, **config)).load(RunContext(0))


def test_figures_and_ledger_are_written(problem, tmp_path):
    X, y = problem
    method = methods.HessianMixing(methods.HessianMixing.Config(repeats=3, tradeoff_repeats=3))
    context = RunContext(0, folder=tmp_path)
    output = method.run(inputs_of(X, y), context)
    method.visualize(Problem(inputs_of(X, y), truth_of(X, y)), output, context)
    assert set(context.artifacts) == {"privacy.json", "privacy.txt", "privacy-budget.svg", "excess-risk.svg"}
    assert "sketched Hessians" in (tmp_path / "privacy.txt").read_text()
    assert json.loads((tmp_path / "privacy.json").read_text())["epsilon"] == 1.0
    assert (tmp_path / "excess-risk.svg").read_text().startswith("<?xml")


def test_tradeoff_measures_what_the_metric_measures(problem):
    X, y = problem
    result = tradeoff(X, y, methods.HessianMixing.Config(), 4, np.random.default_rng(0))
    ols = least_squares(X, y)
    assert result.null == pytest.approx(np.mean((X @ ols) ** 2))
    by_name = {curve.name: curve for curve in result.curves}
    assert len(by_name) == 6
    assert by_name["IHM, T=3"].mean[-1] < by_name["IHM, T=3"].mean[0]
    fits = methods.IterativeHessianMixing(result.epsilons[0], random_state=np.random.default_rng(0)).simulate(X, y, 4)
    scores = excess_risk(linear_output(fits.coef, fits.intercept, OneHot(), {}), truth_of(X, y))
    assert by_name["IHM, T=3"].mean[0] == pytest.approx(scores[""], rel=1e-9)


def test_a_single_fit_is_drawn_without_intervals(problem, tmp_path):
    X, y = problem
    result = tradeoff(X, y, methods.HessianMixing.Config(), 1, np.random.default_rng(0))
    figures.draw_tradeoff(result, tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 1000


def test_predictors_compare_by_content():
    assert LinearPredictor(np.ones(2), 1.0)(np.ones((3, 2))).tolist() == [3.0, 3.0, 3.0]


def test_official_variants_differ_in_their_defaults_alone(problem):
    X, y = problem
    pairs = [
        (methods.OfficialAdaSSP, methods.AdaSSP, {"shift": "official"}),
        (
            methods.OfficialGradientDescent,
            methods.GradientDescent,
            {"steps": 3, "learning_rate": 0.25, "accounting": "official"},
        ),
    ]
    for official, plain, config in pairs:
        expected = run(plain, inputs_of(X, y), epsilon=5, **config).predict(X)
        np.testing.assert_array_equal(run(official, inputs_of(X, y), epsilon=5).predict(X), expected)
        assert (run(plain, inputs_of(X, y), epsilon=5).predict(X) != expected).any()
