"""The ridge loss of a box: four ways to compute it, one answer."""

from __future__ import annotations

import numpy as np
import pytest
from icml26_plugin_claritree.engines import kernels, rank1_kernels
from icml26_plugin_claritree.leaves import fit_leaf
from icml26_plugin_claritree.moments import pack_moments, packed_size, ridge_losses
from icml26_plugin_claritree.problem import INTERCEPT_JITTER, RELATIVE_PIVOT


def dense_loss(design: np.ndarray, target: np.ndarray, ridge: float) -> float:
    """Squared error + penalty at the minimum, by solving the normal equations of the augmented system by QR."""
    k = design.shape[1]
    augmented = np.vstack([design, np.sqrt(ridge) * np.eye(k)[1:]])
    right = np.concatenate([target, np.zeros(k - 1)])
    beta = np.linalg.lstsq(augmented, right, rcond=None)[0]
    residual = target - design @ beta
    return float(residual @ residual + ridge * beta[1:] @ beta[1:])


def sample(seed: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.column_stack([np.ones(n), rng.normal(size=(n, k - 1))]), rng.normal(size=n)


@pytest.mark.parametrize("k", [1, 2, 3, 6, 13])
@pytest.mark.parametrize("ridge", [1e-3, 5.0])
def test_the_schur_complement_of_the_moments_is_the_ridge_loss(k: int, ridge: float) -> None:
    design, target = sample(k, 80, k)
    moments = pack_moments(design, target)
    assert moments.shape == (80, packed_size(k))
    assert moments[:, 0].sum() == 80
    loss = ridge_losses(moments.sum(axis=0, keepdims=True), k, ridge)[0]
    assert loss == pytest.approx(dense_loss(design, target, ridge), rel=1e-9)


@pytest.mark.parametrize("k", [1, 2, 6, 13])
def test_compiled_losses_are_those_of_numpy(k: int) -> None:
    design, target = sample(k, 60, k)
    rows = np.arange(10, 55, dtype=np.int32)
    packed = kernels.pack_moments(design, target)
    assert packed[:, : packed_size(k)] == pytest.approx(pack_moments(design, target), rel=1e-15)
    loss = kernels.box_loss(packed, rows, k, (0.3, INTERCEPT_JITTER, RELATIVE_PIVOT))
    assert loss == pytest.approx(dense_loss(design[rows], target[rows], 0.3), rel=1e-9)


def test_boxes_are_eliminated_independently() -> None:
    design, target = sample(3, 60, 4)
    moments = pack_moments(design, target)
    boxes = np.stack([moments[:30].sum(0), moments[30:].sum(0), moments[::2].sum(0)])
    expected = [dense_loss(design[s], target[s], 0.1) for s in (slice(30), slice(30, 60), slice(None, None, 2))]
    assert ridge_losses(boxes, 4, 0.1) == pytest.approx(expected, rel=1e-9)


def test_collinear_columns_without_a_ridge_give_the_least_squares_loss() -> None:
    design, target = sample(0, 50, 4)
    design = np.column_stack([design, design[:, 1] + 2 * design[:, 2], np.zeros(50)])
    k = design.shape[1]
    expected = dense_loss(design[:, :4], target, 0.0)
    loss = ridge_losses(pack_moments(design, target).sum(0, keepdims=True), k, 0.0)[0]
    compiled = kernels.box_loss(
        kernels.pack_moments(design, target), np.arange(50, dtype=np.int32), k, (0.0, INTERCEPT_JITTER, RELATIVE_PIVOT)
    )
    assert loss == pytest.approx(expected, rel=1e-9)
    assert compiled == pytest.approx(expected, rel=1e-9)


def test_losses_are_never_negative() -> None:
    design, _ = sample(0, 40, 4)
    target = design @ np.array([1.0, 2.0, -3.0, 0.5])
    moments = pack_moments(design, target).sum(0, keepdims=True)
    assert 0.0 <= ridge_losses(moments, 4, 0.0)[0] < 1e-10


def test_a_rank_one_update_and_its_downdate_restore_the_factor() -> None:
    design, _ = sample(1, 30, 5)
    gram = design.T @ design + np.diag([INTERCEPT_JITTER, 0.1, 0.1, 0.1, 0.1])
    factor = np.linalg.cholesky(gram)
    row = np.array([1.0, 2.0, -1.0, 0.3, 4.0])
    changed = factor.copy()
    rank1_kernels.update(changed, row.copy())
    assert changed == pytest.approx(np.linalg.cholesky(gram + np.outer(row, row)), rel=1e-10, abs=1e-12)
    assert rank1_kernels.downdate(changed, row.copy())
    assert changed == pytest.approx(factor, rel=1e-8, abs=1e-10)


def test_updates_from_the_ridge_prior_equal_a_fresh_factorisation() -> None:
    design, target = sample(2, 40, 4)
    factor = np.diag(np.sqrt([INTERCEPT_JITTER, 0.2, 0.2, 0.2]))
    for row in design:
        rank1_kernels.update(factor, row.copy())
    fresh, cross = np.zeros((4, 4)), np.zeros(4)
    rows = np.arange(40, dtype=np.int32)
    squares = rank1_kernels.factorize(design, target, rows, (0.2, INTERCEPT_JITTER, RELATIVE_PIVOT), fresh, cross)
    assert np.abs(factor) == pytest.approx(np.abs(fresh), rel=1e-8, abs=1e-10)
    assert squares == pytest.approx(target @ target)
    assert cross == pytest.approx(design.T @ target)
    loss = rank1_kernels.loss_of(fresh, cross, squares, RELATIVE_PIVOT, np.empty(4))
    assert loss == pytest.approx(dense_loss(design, target, 0.2), rel=1e-9)


def test_a_downdate_that_takes_the_last_of_a_direction_is_refused() -> None:
    factor = np.diag([1.0, 1e-9])
    assert not rank1_kernels.downdate(factor, np.array([1.0, 0.0]))


def test_a_leaf_model_reaches_the_loss_and_reports_its_condition() -> None:
    design, target = sample(4, 50, 4)
    model = fit_leaf(design, target, 0.5)
    assert model.loss == pytest.approx(dense_loss(design, target, 0.5), rel=1e-10)
    assert model.loss > model.squared_error
    assert model.condition < 1e4
    twice = np.column_stack([design, design[:, 1]])
    collinear = fit_leaf(twice, target, 0.0)
    assert collinear.condition > 1e12
    assert np.isfinite(collinear.coefficients).all()
    assert collinear.coefficients[1] == pytest.approx(collinear.coefficients[4])  # of least norm
