import json
import tracemalloc
import warnings

import numpy as np
import pytest
from data import bounded_problem, least_squares
from icml26_plugin_ihm import (
    AdaSSP,
    IterativeHessianMixing,
    LinearMixing,
    NoisyGradientDescent,
    PrivacyLeakWarning,
)
from icml26_plugin_ihm.bounds import Bounds
from icml26_plugin_ihm.calibration import hessian_mixing_k, plan_hessian_mixing
from icml26_plugin_ihm.mixing import iterative_hessian_mixing
from icml26_plugin_ihm.noise import NumpyNoise
from icml26_plugin_ihm.rows import BoundedRows
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

ESTIMATORS = [IterativeHessianMixing, AdaSSP, LinearMixing, NoisyGradientDescent]
GENEROUS = {"epsilon": 1e6, "delta": 1e-6, "random_state": 0}


@parametrize_with_checks([E() for E in ESTIMATORS])
def test_scikit_learn_conformance(estimator, check):
    check(estimator)


def test_estimator_releases_what_the_mechanism_releases():
    X, y = bounded_problem()
    fitted = IterativeHessianMixing(epsilon=1.0, random_state=5).fit(X, y)
    plan = plan_hessian_mixing(4, 1.0, 1 / 400**2)
    expected = iterative_hessian_mixing(BoundedRows.from_arrays(X, y), plan, NumpyNoise(np.random.default_rng(5)))
    np.testing.assert_array_equal(fitted.coef_, expected.theta[0])
    assert fitted.plan_ == plan
    assert fitted.intercept_ == 0.0


@pytest.mark.parametrize("estimator", [IterativeHessianMixing(k=4000, iterations=6), AdaSSP(), LinearMixing(k=40_000)])
def test_units_of_the_user_are_restored(estimator):
    """With a budget that drowns the noise, any scale of rows and labels gives least squares in those units."""
    X, y = bounded_problem(noise=0.01)
    X, y = 50 * X, 7 * y
    fitted = estimator.set_params(**GENEROUS, x_bound=50.0, y_bound=7.0).fit(X, y)
    np.testing.assert_allclose(fitted.coef_, least_squares(X, y), atol=0.01)
    np.testing.assert_allclose(fitted.predict(X), X @ fitted.coef_)


def test_intercept_and_asymmetric_labels_recover_an_affine_model():
    X, y = bounded_problem(n=2000, noise=0.01)
    X, y = 3 * X, 100 + 20 * y
    model = IterativeHessianMixing(
        **GENEROUS, x_bound=3.0, y_bound=(70.0, 130.0), fit_intercept=True, k=20_000, iterations=6
    ).fit(X, y)
    expected = least_squares(np.column_stack([X, np.ones(len(X))]), y)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), expected, rtol=5e-3)


def test_noise_follows_the_width_of_the_label_interval_not_its_position():
    """(0, 100) must cost the noise of a half width of 50 with an intercept, and of 100 without one."""
    X, _ = bounded_problem()
    y = np.full(len(X), 50.0)
    # An AdaSSP fit of constant zero labels is pure noise times the frame's half width.
    wide = AdaSSP(1.0, y_bound=(0.0, 100.0), fit_intercept=True, random_state=1).fit(X, y)
    unit = AdaSSP(1.0, y_bound=(-1.0, 1.0), fit_intercept=True, random_state=1).fit(X, 0 * y)
    np.testing.assert_allclose(wide.coef_, 50 * unit.coef_, rtol=1e-9)
    zero = AdaSSP(1.0, y_bound=(0.0, 100.0), random_state=1).fit(X, 0 * y)
    unit = AdaSSP(1.0, y_bound=1.0, random_state=1).fit(X, 0 * y)
    np.testing.assert_allclose(zero.coef_, 100 * unit.coef_, rtol=1e-9)
    assert np.abs(zero.coef_).max() > 0


def test_streamed_rows_give_the_same_fit_as_arrays():
    X, y = bounded_problem()
    whole = IterativeHessianMixing(random_state=3).fit(X, y)
    parts = IterativeHessianMixing(random_state=3).fit_stream(
        lambda: zip(np.array_split(X, 7), np.array_split(y, 7), strict=True), X.shape[1]
    )
    np.testing.assert_allclose(whole.coef_, parts.coef_, rtol=1e-9)
    assert parts.predict(X).shape == y.shape


def test_default_delta_is_the_inverse_square_of_the_rows():
    X, y = bounded_problem(n=100)
    assert IterativeHessianMixing().fit(X, y).privacy_report_.delta == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"epsilon": -1.0}, "epsilon must be positive"),
        ({"epsilon": np.nan}, "epsilon must be positive"),
        ({"epsilon": np.inf}, "epsilon must be positive"),
        ({"delta": 0.0}, "delta must lie strictly"),
        ({"delta": 1.0}, "delta must lie strictly"),
        ({"k": 5}, r"k >= d \+ 2 = 6"),
        ({"k": 2.5}, "k must be an integer"),
        ({"k_factor": 0.0}, "k_factor must be positive"),
        ({"varrho": 1.0}, "varrho"),
        ({"iterations": 0}, "iterations must be an integer of at least 1"),
        ({"sketch": "srht"}, "sketch must be one of"),
        ({"accounting": "zcdp"}, "accounting must be"),
        ({"x_bound": 0.0}, "x_bound must be positive"),
        ({"y_bound": (1.0, 0.0)}, "low < high"),
        ({"chunk_rows": 0}, "chunk_rows"),
        ({"secure": True, "random_state": 0}, "takes no seed"),
        ({"clip_inputs": False, "x_bound": 0.1}, "row 0 is out of bounds"),
        ({"clip_inputs": False, "y_bound": 1e-3}, "out of bounds"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    X, y = bounded_problem()
    with pytest.raises(ValueError, match=message):
        IterativeHessianMixing(**parameters).fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (NoisyGradientDescent(learning_rate=0.0), "learning_rate"),
        (NoisyGradientDescent(steps=0), "steps"),
        (NoisyGradientDescent(accounting="paper"), "accounting"),
        (AdaSSP(shift="none"), "shift"),
        (LinearMixing(k=3), "k >= d"),
    ],
)
def test_bad_parameters_of_baselines_are_refused(estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(*bounded_problem())


def test_rows_that_are_not_finite_are_refused():
    X, y = bounded_problem()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        IterativeHessianMixing().fit(X, y)
    with pytest.raises(ValueError, match="row 3 of X"):
        IterativeHessianMixing().fit_stream(lambda: [(X, y)], 4)


def test_stream_refuses_bounds_from_the_data_and_an_empty_stream():
    with pytest.raises(ValueError, match="as numbers"):
        IterativeHessianMixing(x_bound="data").fit_stream(list, 4)
    with pytest.raises(ValueError, match="n_samples = 0"):
        IterativeHessianMixing().fit_stream(list, 4)


def test_bounds_from_the_data_warn_and_mark_the_result():
    X, y = bounded_problem()
    with pytest.warns(PrivacyLeakWarning, match="private data"):
        model = IterativeHessianMixing(x_bound="data").fit(X, y)
    assert model.privacy_report_.bounds_from_data
    assert "NOT PRIVATE" in str(model.privacy_report_)


def test_a_delta_above_one_over_n_and_too_few_rows_warn():
    X, y = bounded_problem(n=20)
    with pytest.warns(UserWarning, match="exceeds 1/n"):
        IterativeHessianMixing(delta=0.1).fit(X, y)
    with pytest.warns(UserWarning, match="3 rows for 4 coefficients"):
        IterativeHessianMixing().fit(X[:3], y[:3])


def test_diagnostics_are_behind_a_flag_and_warn():
    X, y = bounded_problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = IterativeHessianMixing(random_state=0).fit(2 * X, y)
    assert not hasattr(plain, "diagnostics_")
    with pytest.warns(PrivacyLeakWarning, match="do not publish"):
        model = IterativeHessianMixing(random_state=0, diagnostics=True).fit(2 * X, y)
    assert model.diagnostics_["clipped_rows"] == np.mean(np.linalg.norm(2 * X, axis=1) > 1)


def test_nothing_private_stands_among_the_attributes():
    """Same noise, other data: everything but the coefficients must be equal."""
    X, y = bounded_problem()
    first, second = (IterativeHessianMixing(random_state=0).fit(data, y) for data in (X, X[::-1] * 0.3))
    public = {name: value for name, value in vars(first).items() if name not in ("coef_", "random_state")}
    for name, value in public.items():
        assert vars(second)[name] == value, name


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"epsilon": True}, ValueError, "epsilon must be positive and finite, got True"),
        ({"epsilon": 1e300}, ValueError, "at most 1e\\+09"),
        ({"x_bound": np.array([1.0, 2.0])}, TypeError, "x_bound must be a number"),
        ({"x_bound": 1e-200}, ValueError, "x_bound is 1e-200.*change the unit"),
        ({"x_bound": 1.7e308}, ValueError, "change the unit"),
        ({"y_bound": (-1.7e308, 1.7e308)}, ValueError, "change the unit"),
        ({"y_bound": (None, 1)}, TypeError, "two numbers"),
        ({"y_bound": ("0", "1")}, TypeError, "two numbers"),
        ({"random_state": -1}, ValueError, "random_state must be None"),
        ({"random_state": 1.5}, ValueError, "random_state must be None"),
        ({"clip_inputs": "no"}, ValueError, "clip_inputs must be True or False"),
        ({"secure": "no"}, ValueError, "secure must be True or False"),
        ({"fit_intercept": 2}, ValueError, "fit_intercept must be True or False"),
    ],
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_parameters_without_meaning_are_refused_by_name(estimator, parameters, error, message):
    with pytest.raises(error, match=message):
        estimator(**parameters).fit(*bounded_problem())


def test_no_unit_of_the_rows_gets_around_the_bound():
    """At x_bound 1e-200 the squares of a row that is ten times too long are zero: it would pass as short."""
    X = np.full((4, 2), 1e-199)
    with pytest.raises(ValueError, match="change the unit"):
        IterativeHessianMixing(x_bound=1e-200).fit(X, np.zeros(4))
    small = BoundedRows.from_arrays(np.full((4, 2), 1e-99), np.zeros(4), Bounds(x=1e-100))
    for rows, _ in small.chunks():
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0)
    with pytest.warns(PrivacyLeakWarning), pytest.raises(ValueError, match="change the unit"):
        IterativeHessianMixing(x_bound="data").fit(np.full((4, 2), 1e200), np.zeros(4))


@pytest.mark.parametrize("estimator", [IterativeHessianMixing(), NoisyGradientDescent(), AdaSSP(fit_intercept=True)])
def test_a_stream_that_is_spent_after_one_pass_is_refused(estimator):
    X, y = bounded_problem()
    spent = iter([(X[:200], y[:200]), (X[200:], y[200:])])
    if isinstance(estimator, AdaSSP):  # one pass is all that it makes
        assert estimator.fit_stream(lambda: spent, 4).coef_.shape == (4,)
        return
    with pytest.raises(ValueError, match="400 rows in the first pass and 0 in another"):
        estimator.fit_stream(lambda: spent, 4)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([(1, 2)], "must be a function"),
        (lambda: [(np.full((3, 4), "1"), np.zeros(3))], "X must hold real numbers, got dtype <U1"),
        (lambda: [(np.zeros((3, 4), complex), np.zeros(3))], "X must hold real numbers, got dtype complex128"),
        (lambda: [(np.zeros((3, 4)), np.array(["a", "b", "c"], object))], "y must hold numbers"),
    ],
)
def test_streams_of_something_else_than_numbers_are_refused(batches, message):
    with pytest.raises(ValueError, match=message):
        IterativeHessianMixing().fit_stream(batches, 4)


def test_labels_that_are_texts_are_refused():
    X, y = bounded_problem()
    with pytest.raises(ValueError, match="y must hold real numbers"):
        IterativeHessianMixing().fit(X, y.astype(str))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_simulation_or_a_failed_fit_is_no_fit(estimator):
    X, y = bounded_problem()
    model = estimator()
    model.simulate(X, y, 2)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(ValueError, match="epsilon"):
        model.set_params(epsilon=-1.0).fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_stream_forgets_the_names_of_an_earlier_table():
    pandas = pytest.importorskip("pandas")
    X, y = bounded_problem()
    model = IterativeHessianMixing(random_state=0).fit(pandas.DataFrame(X, columns=list("abcd")), y)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pandas.DataFrame(X, columns=list("dcba")))
    model.fit_stream(lambda: [(X, y)], 4)
    assert not hasattr(model, "feature_names_in_")
    model.predict(X)


def test_rows_on_the_bound_are_not_refused_for_a_rounding():
    X, y = bounded_problem()
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    assert np.linalg.norm(X.astype(float), axis=1).max() > 1.0
    rows = BoundedRows.from_arrays(X, y, clip=False)
    assert max(np.linalg.norm(chunk, axis=1).max() for chunk, _ in rows.chunks()) <= 1.0 + 1e-12
    with pytest.raises(ValueError, match="out of bounds"):
        IterativeHessianMixing(clip_inputs=False).fit(X * np.float32(1.001), y)


def test_a_given_seed_is_told():
    X, y = bounded_problem()
    seeded = IterativeHessianMixing(random_state=0).fit(X, y).privacy_report_
    assert seeded.seeded_noise
    assert "can subtract the noise" in str(seeded)
    assert "seeded" not in str(IterativeHessianMixing().fit(X, y).privacy_report_)


def test_the_shape_of_memory_does_not_matter():
    X, y = bounded_problem()
    expected = IterativeHessianMixing(random_state=0).fit(X, y).coef_
    wide = np.zeros((800, 8))
    wide[::2, ::2] = X
    locked = X.copy()
    locked.setflags(write=False)
    for same in (np.asfortranarray(X), wide[::2, ::2], locked, X.tolist(), X.astype(object)):
        np.testing.assert_allclose(IterativeHessianMixing(random_state=0).fit(same, y).coef_, expected, rtol=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_extreme_budgets_and_rows_give_finite_coefficients(estimator):
    X, y = bounded_problem()
    for parameters in ({"epsilon": 1e-300}, {"epsilon": 1e9}, {"delta": 1e-300}):
        assert np.isfinite(estimator(**parameters, random_state=0).fit(X, y).coef_).all(), parameters
    for rows in (0 * X, 0 * X + 0.5, 1e300 * X):
        assert np.isfinite(estimator(random_state=0).fit(rows, y).coef_).all()
    state = np.random.get_state()[1].copy()
    first, second = (estimator().fit(X, y).coef_ for _ in range(2))
    assert (first != second).all()
    assert (np.random.get_state()[1] == state).all()


def test_secure_fits_differ_and_hit_the_target():
    X, y = bounded_problem(noise=0.01)
    first, second = (IterativeHessianMixing(1e4, 1e-4, secure=True, k=400).fit(X, y) for _ in range(2))
    assert (first.coef_ != second.coef_).all()
    assert np.abs(first.coef_ - least_squares(X, y)).max() < 0.05
    assert first.privacy_report_.secure_noise


def test_report_adds_up_to_the_budget():
    X, y = bounded_problem()
    for estimator in (*(E(2.0) for E in ESTIMATORS), IterativeHessianMixing(2.0, accounting="joint")):
        report = estimator.fit(X, y).privacy_report_
        assert sum(s.epsilon for s in report.spends) == pytest.approx(2.0, rel=1e-6)
        assert sum(s.delta for s in report.spends) == pytest.approx(report.delta)
        assert report.replace_one == (4.0, pytest.approx((1 + np.exp(2.0)) * report.delta))
        restored = json.loads(json.dumps(report.to_dict()))
        assert restored["spends"][0]["name"] in str(report)


def test_works_in_scikit_learn_pipelines():
    X, y = bounded_problem(n=20_000, noise=0.01)
    model = make_pipeline(
        FunctionTransformer(lambda Z: Z / 2), IterativeHessianMixing(100.0, x_bound=0.5, random_state=0)
    )
    assert cross_val_score(model, X, y, cv=3).min() > 0.9


def test_single_precision_and_integers_are_taken():
    X, y = bounded_problem()
    single = IterativeHessianMixing(random_state=0).fit(X.astype(np.float32), y.astype(np.float32))
    double = IterativeHessianMixing(random_state=0).fit(X, y)
    np.testing.assert_allclose(single.coef_, double.coef_, rtol=1e-2, atol=0.05)
    IterativeHessianMixing(x_bound=10, y_bound=5).fit(np.arange(12).reshape(6, 2), np.arange(6))


def test_work_space_does_not_grow_with_the_rows():
    X, y = bounded_problem(n=200_000, d=10)
    tracemalloc.start()
    IterativeHessianMixing(random_state=0).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.75 * X.nbytes


@pytest.mark.parametrize(("epsilon", "iterations", "factor"), [(0.3, 5, 6), (3.0, 5, 12), (10.0, 3, 48)])
def test_auto_schedule_follows_epsilon_alone(epsilon, iterations, factor):
    for seed in (0, 1):
        X, y = bounded_problem(seed=seed, n=500 * (seed + 1))
        plan = IterativeHessianMixing(epsilon, 1e-6, iterations="auto", k_factor="auto").fit(X, y).plan_
        assert plan.iterations == iterations
        assert plan.k == hessian_mixing_k(4, iterations, 1e-7, factor)


def test_auto_is_for_iterative_mixing_only():
    with pytest.raises(ValueError, match="k_factor"):
        LinearMixing(k_factor="auto").fit(*bounded_problem())
