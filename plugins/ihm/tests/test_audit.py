import dataclasses

import numpy as np
import pytest
from icml26_plugin_ihm.audit import audit_hessian_mixing, clopper_pearson, epsilon_lower_bound
from icml26_plugin_ihm.calibration import plan_hessian_mixing

DELTA = 1e-3


def audit(plan, runs=60_000, seed=0):
    return audit_hessian_mixing(plan, np.random.default_rng(seed), runs=runs)


def scaled(plan, factor):
    return dataclasses.replace(plan, gamma=factor * plan.gamma, eta=factor * plan.eta, sigma=factor * plan.sigma)


def without_ridge(plan):
    return dataclasses.replace(plan, gamma=0.0, eta=0.0)


def test_clopper_pearson_equals_its_closed_forms():
    assert clopper_pearson(0, 10, 0.99) == (0.0, pytest.approx(1 - 0.005**0.1))
    assert clopper_pearson(10, 10, 0.99) == (pytest.approx(0.005**0.1), 1.0)


def test_bound_on_a_mechanism_of_known_epsilon_is_below_it_and_near_it():
    rng = np.random.default_rng(0)
    shift = np.log(3.0)  # Laplace(1) shifted by ln 3 is exactly ln 3 - DP
    first, second = rng.laplace(size=400_000), shift + rng.laplace(size=400_000)
    assert 0.9 * shift < epsilon_lower_bound(first, second, 0.0) <= shift


def test_bound_on_equal_distributions_is_not_positive():
    rng = np.random.default_rng(0)
    assert epsilon_lower_bound(rng.standard_normal(50_000), rng.standard_normal(50_000), DELTA) <= 0.02


def test_shipped_mechanism_passes_and_broken_ones_fail():
    plan = plan_hessian_mixing(1, 1.0, DELTA)
    assert audit(plan).epsilon <= 1.0
    assert audit(scaled(plan, 0.1)).epsilon > 1.0
    assert audit(without_ridge(plan)).epsilon > 1.0


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("accounting", ["paper", "joint"])
def test_full_audit(epsilon, accounting):
    plan = plan_hessian_mixing(1, epsilon, DELTA, accounting=accounting)
    assert audit(plan, runs=200_000).epsilon <= epsilon
    assert audit(scaled(plan, 0.1), runs=200_000).epsilon > epsilon
