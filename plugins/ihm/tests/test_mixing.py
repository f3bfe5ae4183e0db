import dataclasses

import numpy as np
import pytest
from data import bounded_problem, least_squares
from icml26_plugin_ihm.baselines import adassp, gradient_descent
from icml26_plugin_ihm.calibration import (
    plan_adassp,
    plan_gradient_descent,
    plan_hessian_mixing,
    plan_linear_mixing,
)
from icml26_plugin_ihm.mixing import iterative_hessian_mixing, linear_mixing, private_ridge
from icml26_plugin_ihm.noise import NumpyNoise
from icml26_plugin_ihm.rows import BoundedRows
from icml26_plugin_ihm.sketch import DenseHessian, gaussian_hessian
from scipy.stats import ks_2samp


def exact_hessian(rows, spectrum, ridge, k, noise):
    """A Hessian sampler without randomness: G + g I itself. Not private; for tests of the iteration."""
    gram = spectrum.vectors @ np.diag(spectrum.values) @ spectrum.vectors.T
    return DenseHessian(gram + ridge[:, None, None] * np.eye(len(gram)))


def quiet(seed=0):
    return NumpyNoise(np.random.default_rng(seed))


def noiseless(plan, ridge):
    """The plan without noise and with a ridge of known size."""
    return dataclasses.replace(plan, sigma=0.0, eta=0.0, tau=0.0, gamma=ridge)


@pytest.fixture(scope="module")
def problem():
    X, y = bounded_problem(noise=0.01)
    return X, y, BoundedRows.from_arrays(X, y)


@pytest.mark.parametrize("iterations", [1, 3, 6])
def test_without_noise_the_error_is_that_of_iterated_tikhonov(problem, iterations):
    X, y, rows = problem
    gram, ols = X.T @ X, least_squares(X, y)
    least = np.linalg.eigvalsh(gram)[0]
    plan = noiseless(plan_hessian_mixing(4, 1.0, 1e-6, iterations=iterations), ridge=least + 9.0)
    release = iterative_hessian_mixing(rows, plan, quiet(), sampler=exact_hessian)
    assert (np.abs(y[:, None] - X @ release.iterates[:, 0].T) <= 1).all()  # nothing was clipped on the way
    np.testing.assert_allclose(release.ridge, 9.0, rtol=1e-12)
    shrink = np.linalg.matrix_power(9.0 * np.linalg.inv(gram + 9.0 * np.eye(4)), iterations)
    np.testing.assert_allclose(ols - release.theta[0], shrink @ ols, atol=1e-10)


def test_without_ridge_one_exact_step_is_least_squares(problem):
    X, y, rows = problem
    plan = noiseless(plan_hessian_mixing(4, 1.0, 1e-6, iterations=1), ridge=0.0)
    release = iterative_hessian_mixing(rows, plan, quiet(), sampler=exact_hessian)
    np.testing.assert_allclose(release.theta[0], least_squares(X, y), atol=1e-10)


def test_a_huge_budget_recovers_least_squares(problem):
    X, y, rows = problem
    plan = plan_hessian_mixing(4, 1e6, 1e-6, k=20_000, iterations=5)
    theta = iterative_hessian_mixing(rows, plan, quiet()).theta[0]
    np.testing.assert_allclose(theta, least_squares(X, y), atol=1e-3)


@pytest.mark.parametrize("accounting", ["paper", "joint"])
def test_a_tiny_budget_gives_finite_noise(problem, accounting):
    plan = plan_hessian_mixing(4, 1e-6, 1e-6, accounting=accounting)
    assert np.isfinite(iterative_hessian_mixing(problem[2], plan, quiet(), repeats=50).theta).all()


def test_each_step_uses_fresh_noise_and_a_fresh_hessian(problem):
    plan = plan_hessian_mixing(4, 1.0, 1e-6)
    release = iterative_hessian_mixing(problem[2], plan, quiet(), keep_hessians=True)
    assert release.hessians is not None
    assert len({float(H[0, 0, 0]) for H in release.hessians}) == plan.iterations
    assert release.scores.shape == (plan.iterations, 1, 4)


def test_score_noise_has_the_calibrated_scale(problem):
    X, y, rows = problem
    plan = plan_hessian_mixing(4, 1.0, 1e-6)
    scores = iterative_hessian_mixing(rows, plan, quiet(), repeats=20_000).scores
    assert scores[0].std(axis=0) == pytest.approx(np.full(4, plan.sigma), rel=0.03)
    assert scores[0].mean(axis=0) == pytest.approx(X.T @ y, abs=5 * plan.sigma / np.sqrt(20_000))


def test_literal_and_wishart_paths_give_one_law_of_coefficients(problem):
    rows, plan = problem[2], plan_hessian_mixing(4, 10.0, 1e-3, k=30)
    fast = iterative_hessian_mixing(rows, plan, quiet(1), repeats=600).theta
    literal = iterative_hessian_mixing(rows, plan, quiet(2), repeats=600, sampler=gaussian_hessian).theta
    for j in range(4):
        assert ks_2samp(fast[:, j], literal[:, j]).pvalue > 0.001


def test_linear_mixing_paths_have_one_law():
    X, y = bounded_problem(n=80, d=2)
    rows, plan = BoundedRows.from_arrays(X, y), plan_linear_mixing(2, 10.0, 1e-3, k=20)
    fast = linear_mixing(rows, plan, quiet(1), repeats=800)
    literal = linear_mixing(rows, plan, quiet(2), repeats=800, sketch="gaussian")
    for j in range(2):
        assert ks_2samp(fast[:, j], literal[:, j]).pvalue > 0.001


def test_the_ridge_lifts_the_least_eigenvalue_to_gamma_up_to_the_allowed_failures():
    """P(lower bound > eigenvalue) <= exp(-tau^2/2); with tau = 0 it would be one half."""
    tau = np.sqrt(2 * np.log(4 / 1e-2))
    ridge = private_ridge(50.0, 80.0, 3.0, tau, 1_000_000, quiet())
    failures = np.mean(50.0 + ridge < 80.0)
    assert failures <= np.exp(-(tau**2) / 2)
    assert failures == pytest.approx(0.00027, abs=1e-4)  # Phi(-tau): the exact probability
    assert np.mean(50.0 + private_ridge(50.0, 80.0, 3.0, 0.0, 10_000, quiet()) < 80.0) > 0.4


def test_a_well_conditioned_gram_matrix_needs_no_ridge():
    assert (private_ridge(1e6, 80.0, 3.0, 4.0, 100, quiet()) == 0).all()
    assert (private_ridge(0.0, 80.0, 3.0, 4.0, 1000, quiet()) == 80.0).mean() > 0.99


def test_one_seed_gives_one_result(problem):
    plan = plan_hessian_mixing(4, 1.0, 1e-6)
    first, again, other = (iterative_hessian_mixing(problem[2], plan, quiet(s)).theta for s in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


def test_adassp_without_noise_is_ridge_regression(problem):
    X, y, rows = problem
    plan = dataclasses.replace(plan_adassp(4, 1.0, 1e-6), s=0.0, s_y=0.0, shift=0.0, ridge_target=500.0)
    gram = X.T @ X
    ridge = 500.0 - np.linalg.eigvalsh(gram)[0]
    expected = np.linalg.solve(gram + ridge * np.eye(4), X.T @ y)
    np.testing.assert_allclose(adassp(rows, plan, quiet())[0], expected, atol=1e-12)


def test_adassp_gram_noise_is_symmetric_and_of_the_calibrated_scale():
    """With X = 0 and a unit ridge target far above the noise, theta is (ridge I + s E)^{-1} (s_y N)."""
    X, y = np.zeros((5, 2)), np.zeros(5)
    plan = dataclasses.replace(plan_adassp(2, 1.0, 1e-6), s=1.0, s_y=2.0, shift=1e9, ridge_target=1e4)
    theta = adassp(BoundedRows.from_arrays(X, y), plan, quiet(), repeats=40_000)
    assert (1e4 * theta).std(axis=0) == pytest.approx([2.0, 2.0], rel=0.02)


def test_linear_mixing_with_a_huge_budget_is_least_squares():
    X, y = bounded_problem(n=3000, d=3, noise=0.01)
    rows, plan = BoundedRows.from_arrays(X, y), plan_linear_mixing(3, 1e6, 1e-6, k=50_000)
    np.testing.assert_allclose(linear_mixing(rows, plan, quiet())[0], least_squares(X, y), atol=0.02)


def test_gradient_descent_without_noise_follows_the_closed_form(problem):
    X, y, rows = problem
    n, rate, steps = len(X), 2.0, 6
    plan = dataclasses.replace(plan_gradient_descent(1.0, 1e-6, steps=steps, learning_rate=rate), sigma=0.0)
    contraction = np.linalg.matrix_power(np.eye(4) - rate / n * X.T @ X, steps)
    expected = (np.eye(4) - contraction) @ least_squares(X, y)
    np.testing.assert_allclose(gradient_descent(rows, plan, quiet(), n)[0], expected, atol=1e-10)


def test_adassp_mirrors_one_noisy_triangle(problem):
    """A scripted noise source: the Gram matrix is the upper triangle plus its noise, mirrored, plus the ridge."""
    X, y, rows = problem
    shifts = np.arange(10, dtype=float)

    class Scripted:
        def release(self, values, sigma):
            return values + sigma * shifts[: values.shape[1]]

    plan = dataclasses.replace(plan_adassp(4, 1.0, 1e-6), s=2.0, s_y=3.0, shift=1.0, ridge_target=200.0)
    noise = np.zeros((4, 4))
    noise[np.triu_indices(4)] = 2.0 * shifts
    noise = noise + np.triu(noise, 1).T
    gram = X.T @ X
    ridge = 200.0 - (np.linalg.eigvalsh(gram)[0] - 1.0)  # shifts[0] is 0: the noisy eigenvalue is the eigenvalue
    expected = np.linalg.solve(gram + noise + ridge * np.eye(4), X.T @ y + 3.0 * shifts[:4])
    for _ in range(2):
        np.testing.assert_allclose(adassp(rows, plan, Scripted(), repeats=3), np.tile(expected, (3, 1)), rtol=1e-9)
