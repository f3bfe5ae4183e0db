import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import compute_epsilon
from icml26_plugin_ihm.accounting import (
    analytic_gaussian_sigma,
    bisect_smallest,
    eigenvalue_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_rdp,
    rdp_epsilon,
    rdp_to_dp_term,
    sketch_rdp,
    zcdp_epsilon,
    zcdp_rho,
)

mpmath = pytest.importorskip("mpmath")


@pytest.mark.parametrize(
    ("epsilon", "delta", "expected", "digits"),
    [(1.0, 1e-5, 3.7306316, 5e-8), (0.5, 1e-6, 8.05762, 5e-6), (5.0, 1e-6, 0.980049, 5e-7), (0.1, 1e-9, 50.2098, 5e-5)],
)
def test_analytic_gaussian_equals_published_values(epsilon, delta, expected, digits):
    assert analytic_gaussian_sigma(epsilon, delta) == pytest.approx(expected, abs=digits)


def test_analytic_gaussian_scales_with_the_sensitivity():
    assert analytic_gaussian_sigma(1.0, 1e-5, 3.0) == pytest.approx(3 * analytic_gaussian_sigma(1.0, 1e-5), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 5.0, 50.0])
def test_analytic_gaussian_errs_on_the_private_side_and_is_tight(epsilon):
    sigma = analytic_gaussian_sigma(epsilon, 1e-7)
    with mpmath.workdps(60):

        def exact_delta(s):
            s, e = mpmath.mpf(s), mpmath.mpf(epsilon)
            return mpmath.ncdf(1 / (2 * s) - e * s) - mpmath.exp(e) * mpmath.ncdf(-1 / (2 * s) - e * s)

        assert exact_delta(sigma) <= 1e-7 * (1 + 1e-9)
        assert exact_delta(sigma * (1 - 1e-8)) > 1e-7


def test_gaussian_delta_of_a_large_epsilon_does_not_overflow():
    assert gaussian_delta(1e6, 1.0) == 0.0
    assert gaussian_delta(1e6, 2000.0) == pytest.approx(1.0, abs=1e-12)


def test_scaled_gaussians_compose_to_one_analytic_gaussian():
    sigma = analytic_gaussian_sigma(0.5, 1e-6)
    assert gaussian_delta(0.5, 1.0 / sigma) == pytest.approx(1e-6, abs=1e-8)
    accountant = PLDAccountant()
    accountant.compose(dp_event.GaussianDpEvent(math.sqrt(3.0) * sigma), 3)
    assert accountant.get_epsilon(1e-6) == pytest.approx(0.5, abs=1e-3)


def test_gaussian_epsilon_inverts_the_calibration():
    assert gaussian_epsilon(1.0 / analytic_gaussian_sigma(2.0, 1e-6), 1e-6) == pytest.approx(2.0, abs=1e-9)
    assert gaussian_epsilon(1e-9, 1e-6) == 0.0


def test_zcdp_conversion_inverts():
    assert zcdp_epsilon(zcdp_rho(0.7, 1e-6), 1e-6) == pytest.approx(0.7, rel=1e-12)
    # The textbook form of the same root.
    root = math.sqrt(math.log(1e6))
    assert zcdp_rho(0.7, 1e-6) == pytest.approx((math.sqrt(0.7 + math.log(1e6)) - root) ** 2, rel=1e-9)


def test_sketch_divergence_equals_the_determinant_formula():
    sigma, v, alpha, k = np.diag([3.0, 5.0, 7.0]), np.array([0.6, 0.5, 0.3]), 1.7, 4
    q = float(v @ np.linalg.solve(sigma, v))
    assert q == pytest.approx(0.18285714, abs=5e-9)
    # D_alpha(N(0,S)||N(0,S')) = -1/(2(alpha-1)) ln( |(1-alpha) S + alpha S'| / (|S|^(1-alpha) |S'|^alpha) ).
    other = sigma - np.outer(v, v)
    mixed = (1 - alpha) * sigma + alpha * other
    log_ratio = (
        np.linalg.slogdet(mixed)[1] - (1 - alpha) * np.linalg.slogdet(sigma)[1] - alpha * np.linalg.slogdet(other)[1]
    )
    by_determinants = -k / (2 * (alpha - 1)) * log_ratio
    assert float(sketch_rdp(np.array(alpha), k, 1.0 / q)) == pytest.approx(by_determinants, rel=1e-12)
    assert by_determinants == pytest.approx(0.0828754440, abs=5e-11)


def test_reverse_direction_never_exceeds_the_curve():
    for q in np.linspace(0.01, 0.99, 25):
        alpha = 1.0 + (1.0 / q - 1.0) * np.linspace(0.001, 0.999, 60)
        forward = sketch_rdp(alpha, 7, 1.0 / q)
        reverse = -7 / (2 * (alpha - 1)) * np.log1p((alpha - 1) * q) - 3.5 * np.log1p(-q)
        assert (reverse <= forward + 1e-12).all()


@pytest.mark.parametrize("gamma", [1.5, 40.0, 3307.0, 1e9])
def test_sketch_divergence_agrees_with_high_precision(gamma):
    for alpha in (1.0 + 1e-3 * (gamma - 1), 1.0 + 0.5 * (gamma - 1)):
        with mpmath.workdps(60):
            a, g = mpmath.mpf(alpha), mpmath.mpf(gamma)
            exact = 100 / (2 * (a - 1)) * (a * mpmath.log(1 - 1 / g) - mpmath.log(1 - a / g))
        assert float(sketch_rdp(np.array(alpha), 100, gamma)) == pytest.approx(float(exact), rel=1e-9)


def test_sketch_divergence_is_infinite_beyond_its_last_order():
    assert np.isinf(sketch_rdp(np.array([50.0, 60.0]), 10, 50.0)).all()


def test_conversion_agrees_with_dp_accounting():
    orders = np.linspace(1.5, 60, 200)
    curve = 3 * sketch_rdp(orders, 147, 347.0) + gaussian_rdp(orders, 0.1)
    ours = (curve + rdp_to_dp_term(orders, 1e-9)).min()
    theirs, _ = compute_epsilon(orders, curve, 1e-9)
    assert ours == pytest.approx(theirs, rel=1e-12)


def test_order_search_finds_the_minimum_of_a_fine_grid():
    for mu, delta in ((0.05, 1e-9), (1.0, 1e-6), (20.0, 1e-3)):
        fine = 1.0 + np.logspace(-6, 6, 400_001)
        best = (gaussian_rdp(fine, mu) + rdp_to_dp_term(fine, delta)).min()
        found, order = rdp_epsilon(lambda a, mu=mu: gaussian_rdp(a, mu), delta, math.inf)
        assert found == pytest.approx(best, rel=1e-6)
        assert found == pytest.approx(float(gaussian_rdp(np.array(order), mu) + rdp_to_dp_term(np.array(order), delta)))


def test_bisection_returns_an_accepted_value():
    root = bisect_smallest(lambda x: x * x >= 2.0, 1e-3, 1e-2)
    assert root * root >= 2.0
    assert root == pytest.approx(math.sqrt(2), rel=1e-11)
    with pytest.raises(ValueError, match="no finite noise scale"):
        bisect_smallest(lambda x: False, 1.0, 2.0)


@pytest.mark.parametrize("noise_std", [0.001, 0.01, 0.1, 0.3, 1.0, 30.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-3])
def test_eigenvalue_epsilon_is_valid_also_where_the_classical_bound_is_not(noise_std, delta):
    epsilon = eigenvalue_epsilon(noise_std, 1.0, delta)
    classical = math.sqrt(2 * math.log(1.25 / delta)) / noise_std
    assert gaussian_delta(epsilon, 1.0 / noise_std) <= delta * (1 + 1e-9)
    assert epsilon == pytest.approx(classical) or epsilon > classical
    if classical <= 1.0:
        assert epsilon == pytest.approx(classical, rel=1e-14)


def test_the_classical_bound_breaks_for_little_noise():
    assert eigenvalue_epsilon(0.01, 1.0, 1e-3) > math.sqrt(2 * math.log(1.25 / 1e-3)) / 0.01
