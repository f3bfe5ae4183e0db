import numpy as np
import pytest
from data import bounded_problem
from icml26_plugin_ihm.noise import NumpyNoise, SecureNoise
from icml26_plugin_ihm.rows import BoundedRows
from icml26_plugin_ihm.sketch import GramSpectrum, bartlett_factor, gaussian_hessian, gaussian_sketch, wishart_hessian
from scipy.stats import ks_2samp, kstest, wishart

K, DRAWS = 12, 4000


@pytest.fixture(scope="module")
def problem():
    X, y = bounded_problem(n=60, d=3)
    return BoundedRows.from_arrays(X, y), GramSpectrum.of(X.T @ X)


def draws(sampler, problem, seed, ridge=2.0, repeats=DRAWS):
    rows, spectrum = problem
    noise = NumpyNoise(np.random.default_rng(seed))
    return sampler(rows, spectrum, np.full(repeats, ridge), K, noise).matrix()


def test_wishart_and_literal_sketch_have_one_law(problem):
    fast, literal = draws(wishart_hessian, problem, 0), draws(gaussian_hessian, problem, 1)
    for statistic in (lambda H: np.linalg.slogdet(H)[1], lambda H: np.trace(H, axis1=1, axis2=2), lambda H: H[:, 0, 1]):
        assert ks_2samp(statistic(fast), statistic(literal)).pvalue > 0.001


def test_a_wrong_degree_of_freedom_would_be_seen(problem):
    """The power of the test above: degrees of freedom that start one too low are told apart."""
    rows, spectrum = problem
    noise = NumpyNoise(np.random.default_rng(0))
    short = 11 / K * wishart_hessian(rows, spectrum, np.full(DRAWS, 2.0), 11, noise).matrix()
    literal = draws(gaussian_hessian, problem, 1)
    assert ks_2samp(np.linalg.slogdet(short)[1], np.linalg.slogdet(literal)[1]).pvalue < 0.001


@pytest.mark.parametrize("sampler", [wishart_hessian, gaussian_hessian])
def test_hessian_mean_and_inverse_mean(problem, sampler):
    expected = problem[1].vectors @ np.diag(problem[1].values + 2.0) @ problem[1].vectors.T
    H = draws(sampler, problem, 2)
    inverse = np.linalg.inv(H)
    for sample, mean in ((H, expected), (inverse, K / (K - 3 - 1) * np.linalg.inv(expected))):
        standard_error = sample.std(axis=0) / np.sqrt(len(sample))
        assert (np.abs(sample.mean(axis=0) - mean) <= 4 * standard_error).all()


def test_bartlett_factor_has_the_law_of_scipys_wishart():
    factor = bartlett_factor(2, 5, DRAWS, NumpyNoise(np.random.default_rng(3)))
    ours = factor @ np.swapaxes(factor, 1, 2)
    theirs = wishart(5, np.eye(2)).rvs(DRAWS, random_state=np.random.default_rng(4))
    for entry in ((0, 0), (1, 1), (0, 1)):
        assert ks_2samp(ours[:, *entry], theirs[:, *entry]).pvalue > 0.001


@pytest.mark.parametrize("sampler", [wishart_hessian, gaussian_hessian])
def test_solve_inverts_the_matrix(problem, sampler):
    rows, spectrum = problem
    hessian = sampler(rows, spectrum, np.array([0.5, 3.0]), K, NumpyNoise(np.random.default_rng(5)))
    score = np.random.default_rng(6).standard_normal((2, 3))
    expected = np.linalg.solve(hessian.matrix(), score[..., None])[..., 0]
    np.testing.assert_allclose(hessian.solve(score), expected, rtol=1e-9)


def test_literal_sketch_spans_chunks():
    """S is drawn chunk by chunk; the result must use every row once."""
    X, _ = bounded_problem(n=10, d=2)

    class Ones:
        def normal(self, shape):
            return np.ones(shape)

    blocks = [X[:3], X[3:9], X[9:]]
    np.testing.assert_allclose(gaussian_sketch(blocks, 2, 4, Ones()), np.tile(X.sum(axis=0), (4, 1)))


def test_rounding_below_zero_is_clamped():
    x = np.random.default_rng(0).standard_normal((1, 6))
    assert GramSpectrum.of(x.T @ x).least == pytest.approx(0.0, abs=1e-14)
    assert GramSpectrum.of(x.T @ x).least >= 0.0


def test_secure_noise_is_gaussian_and_chi_square():
    # It takes no seed, so the thresholds leave one false alarm in a million runs.
    noise = SecureNoise()
    assert kstest(noise.release(np.full((1, 3000), 5.0), 2.0)[0], "norm", args=(5.0, 2.0)).pvalue > 1e-6
    assert kstest(noise.chi_square(np.array([7.0]), 500)[:, 0], "chi2", args=(7,)).pvalue > 1e-6
    np.testing.assert_array_equal(noise.release(np.ones((1, 2)), 0.0), 1.0)
