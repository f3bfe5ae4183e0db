import math
import time

import numpy as np
import pytest
from icml26_plugin_ihm import calibration
from icml26_plugin_ihm.accounting import analytic_gaussian_sigma, gaussian_delta, zcdp_epsilon
from icml26_plugin_ihm.calibration import (
    hessian_mixing_k,
    joint_epsilon,
    linear_mixing_k,
    plan_adassp,
    plan_gradient_descent,
    plan_hessian_mixing,
    plan_linear_mixing,
    sketch_epsilon,
    solve_gamma,
)
from icml26_plugin_ihm.report import privacy_report

mpmath = pytest.importorskip("mpmath")

N, DELTA = 20190, 1.0 / 20190**2


@pytest.mark.parametrize(
    ("arguments", "expected", "digits"),
    [
        ((60, 3, 0.5, 7.5e-7), 185.7256, 5e-5),
        ((147, 3, 0.5, 3e-8), 318.007, 5e-4),
        ((147, 3, 0.05, 0.75 * DELTA), 3307.47, 5e-3),
        ((147, 3, 5.0, 0.75 * DELTA), 37.17336, 5e-6),
        ((50, 1, 1.0, 1e-6, 2.0), 101.676, 5e-4),
    ],
)
def test_gamma_equals_the_golden_values(arguments, expected, digits):
    assert solve_gamma(*arguments) == pytest.approx(expected, abs=digits)


@pytest.mark.parametrize(("k", "iterations", "epsilon", "delta"), [(147, 3, 0.5, 0.75 * DELTA), (60, 1, 5.0, 1e-6)])
def test_gamma_is_the_smallest_that_meets_the_target_in_high_precision(k, iterations, epsilon, delta):
    """Near-optimal orders are searched with 40 digits, so that a coarse search of ours would show as a loose gamma."""

    def exact_epsilon(gamma):
        share, gamma = mpmath.mpf(delta) / 3, mpmath.mpf(gamma)

        def objective(alpha):
            rdp = k / (2 * (alpha - 1)) * (alpha * mpmath.log(1 - 1 / gamma) - mpmath.log(1 - alpha / gamma))
            conversion = mpmath.log(1 / share) + (alpha - 1) * mpmath.log(1 - 1 / alpha) - mpmath.log(alpha)
            return iterations * rdp + conversion / (alpha - 1)

        low, high = mpmath.mpf("1.0001"), gamma * (1 - mpmath.mpf("1e-9"))
        for _ in range(250):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (low, right) if objective(left) < objective(right) else (left, high)
        return objective(low) + mpmath.sqrt(2 * mpmath.log(mpmath.mpf("1.25") / share)) * mpmath.sqrt(k) / gamma

    with mpmath.workdps(40):
        gamma = solve_gamma(k, iterations, epsilon, delta)
        assert exact_epsilon(gamma) <= epsilon * (1 + 1e-12)
        assert exact_epsilon(gamma * (1 - 1e-7)) > epsilon


@pytest.mark.parametrize(
    ("epsilon", "gamma", "sigma"), [(0.1, 3307.474, 172.5045), (1.0, 346.9886, 18.77458), (10.0, 37.17336, 2.124643)]
)
def test_full_calibration_equals_the_golden_values(epsilon, gamma, sigma):
    plan = plan_hessian_mixing(9, epsilon, DELTA)
    assert plan.k == 147
    assert plan.tau == pytest.approx(6.857808, abs=5e-7)
    # The reference calibrator stops its order search early: its gamma at epsilon 1 is 2.4e-6 looser than the optimum.
    assert plan.gamma == pytest.approx(gamma, rel=3e-6)
    assert plan.sigma == pytest.approx(sigma, rel=5e-7)
    assert plan.eta == pytest.approx(plan.gamma / math.sqrt(147), rel=1e-14)


def test_eigenvalue_noise_and_adassp_scale_equal_the_golden_values():
    assert plan_hessian_mixing(9, 1.0, DELTA).eta == pytest.approx(28.6191, abs=1e-4)
    assert plan_adassp(9, 1.0, DELTA).s == pytest.approx(15.86353, abs=5e-6)


def test_score_noise_carries_the_square_root_of_the_iterations():
    for iterations in (1, 3, 7):
        plan = plan_hessian_mixing(9, 1.0, DELTA, iterations=iterations)
        assert gaussian_delta(0.5, math.sqrt(iterations) / plan.sigma) == pytest.approx(DELTA / 4, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("accounting", ["paper", "joint"])
def test_achieved_epsilon_never_exceeds_the_target(epsilon, accounting):
    plan = plan_hessian_mixing(9, epsilon, DELTA, accounting=accounting)
    if accounting == "paper":
        achieved = sketch_epsilon(plan.gamma, plan.k, plan.iterations, 0.75 * DELTA) + epsilon / 2
    else:
        achieved = joint_epsilon(plan.k, plan.iterations, plan.gamma, plan.sigma, 0.75 * DELTA)
    assert epsilon * (1 - 1e-6) < achieved <= epsilon
    assert math.exp(-(plan.tau**2) / 2) <= DELTA / 4 * (1 + 1e-12)


@pytest.mark.parametrize(("epsilon", "factor"), [(0.1, 0.61), (1.0, 0.62), (10.0, 0.66)])
def test_joint_ledger_shrinks_all_scales_by_one_factor(epsilon, factor):
    paper, joint = (plan_hessian_mixing(9, epsilon, DELTA, accounting=a) for a in ("paper", "joint"))
    assert joint.gamma / paper.gamma == pytest.approx(factor, abs=0.006)
    assert joint.sigma / paper.sigma == pytest.approx(joint.gamma / paper.gamma, rel=1e-12)
    assert joint.eta / paper.eta == pytest.approx(joint.gamma / paper.gamma, rel=1e-12)


def test_joint_adassp_is_one_analytic_gaussian():
    plan = plan_adassp(9, 1.0, DELTA, accounting="joint")
    assert gaussian_delta(1.0, math.sqrt(3.0) / plan.s) == pytest.approx(DELTA, rel=1e-6)


def test_adassp_shifts_differ_as_documented():
    wang, official = (plan_adassp(9, 1.0, DELTA, shift=s) for s in ("wang", "official"))
    assert wang.shift == pytest.approx(wang.s * math.sqrt(math.log(6 / DELTA)))
    assert official.shift == pytest.approx(official.s**2)
    assert wang.ridge_target == pytest.approx(wang.s * math.sqrt(9 * math.log(2 * 81 / (DELTA / 10))))


def test_linear_mixing_counts_the_full_sensitivity_of_the_eigenvalue():
    plan = plan_linear_mixing(9, 1.0, DELTA)
    assert plan.k == linear_mixing_k(9, DELTA / 10) == int(2.5 * math.log(20 / DELTA))
    assert plan.eta == pytest.approx(2 * plan.gamma / math.sqrt(plan.k))
    assert sketch_epsilon(plan.gamma, plan.k, 1, DELTA, 2.0) <= 1.0
    assert math.exp(-(plan.tau**2) / 2) <= DELTA / 3


def test_sketch_rows_follow_the_larger_of_two_rules():
    assert hessian_mixing_k(9, 3, DELTA / 10) == 147
    assert hessian_mixing_k(40, 3, DELTA / 10) == 240
    assert hessian_mixing_k(40, 3, DELTA / 10, factor=10) == 400


def test_gradient_noise_of_each_accounting():
    official, zcdp, gdp = (
        plan_gradient_descent(1.0, 1e-8, steps=5, learning_rate=1.0, accounting=a) for a in ("official", "zcdp", "gdp")
    )
    assert official.sigma == pytest.approx(2 * zcdp.sigma)
    assert zcdp_epsilon(5 / (2 * zcdp.sigma**2), 1e-8) == pytest.approx(1.0)
    assert gdp.sigma == pytest.approx(math.sqrt(5) * analytic_gaussian_sigma(1.0, 1e-8))
    assert gdp.sigma < zcdp.sigma


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 1e6])
@pytest.mark.parametrize("accounting", ["paper", "joint"])
def test_extreme_budgets_calibrate_to_finite_scales(epsilon, accounting):
    plan = plan_hessian_mixing(9, epsilon, DELTA, accounting=accounting)
    assert plan.gamma > 1.0
    assert np.isfinite([plan.gamma, plan.eta, plan.sigma]).all()


def test_too_few_sketch_rows_are_refused():
    with pytest.raises(ValueError, match=r"k >= d \+ 2 = 11"):
        plan_hessian_mixing(9, 1.0, DELTA, k=10)
    with pytest.raises(ValueError, match="raise k"):
        plan_linear_mixing(9, 1.0, DELTA, k=10)


def test_cold_calibration_is_fast():
    """In processor time, so that other work on the machine does not count; helper threads would count against it."""
    times = []
    for repeat in range(5):
        calibration.solve_gamma.cache_clear()
        calibration.plan_hessian_mixing.cache_clear()
        start = time.process_time()
        plan_hessian_mixing(9, 1.0 + 1e-3 * repeat, DELTA)
        times.append(time.process_time() - start)
    assert min(times) < 0.05


def test_ledgers_of_the_scores_agree_with_each_other():
    """GDP: mu spends exactly (epsilon/2, delta/4); zCDP: rho is mu^2/2, looser when converted."""
    for iterations in (1, 5):
        spends = privacy_report(plan_hessian_mixing(9, 1.0, DELTA, iterations=iterations)).spends
        (scores,) = (spend for spend in spends if spend.name.startswith("scores"))
        mu, rho = float(scores.parameters["gdp_mu"]), float(scores.parameters["zcdp_rho"])
        assert gaussian_delta(0.5, mu) == pytest.approx(DELTA / 4, rel=1e-6)
        assert rho == pytest.approx(mu * mu / 2)
        assert zcdp_epsilon(rho, DELTA / 4) > 0.5
    (gradients,) = privacy_report(plan_gradient_descent(1.0, DELTA, steps=7, learning_rate=1.0)).spends
    assert gaussian_delta(1.0, float(gradients.parameters["gdp_mu"])) == pytest.approx(DELTA, rel=1e-6)
