"""Iterative Hessian mixing (Lev et al., ICML 2026): private Newton steps with sketched, regularised Hessians.

Mechanisms are pure functions on `BoundedRows`; each takes `repeats` and returns that many independent releases, with the
passes over the data shared. A real release has repeats=1: more of them spend the budget again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from icml26_plugin_ihm.calibration import HessianMixingPlan, LinearMixingPlan
from icml26_plugin_ihm.noise import NoiseSource
from icml26_plugin_ihm.rows import BoundedRows, Moments
from icml26_plugin_ihm.sketch import (
    GramSpectrum,
    HessianSampler,
    Sketch,
    bartlett_factor,
    gaussian_sketch,
    wishart_hessian,
)

Array = NDArray[np.float64]


class MixingRelease(NamedTuple):
    """Everything that iterative mixing may publish, for R independent runs."""

    theta: Array
    """Final coefficients, shape (R, d)."""
    iterates: Array
    """theta_1 .. theta_T, shape (T, R, d)."""
    scores: Array
    """Noisy scores s_0 .. s_{T-1}, shape (T, R, d)."""
    hessians: Array | None
    """H_0 .. H_{T-1}, shape (T, R, d, d); None unless asked for."""
    ridge: Array
    """g, shape (R,)."""


def private_ridge(least: float, gamma: float, eta: float, tau: float, repeats: int, noise: NoiseSource) -> Array:
    """What must be added to G so that its least eigenvalue reaches gamma, from a noisy lower bound; shape (repeats,).

    lower = max(0, least + eta Z - eta tau) with Z ~ N(0, 1); the ridge is max(0, gamma - lower). The bound is wrong
    with probability at most exp(-tau^2 / 2).
    """
    noisy = noise.release(np.full((repeats, 1), least), eta)[:, 0]
    lower = np.maximum(0.0, noisy - eta * tau)
    return np.maximum(0.0, gamma - lower)


def iterative_hessian_mixing(
    rows: BoundedRows,
    plan: HessianMixingPlan,
    noise: NoiseSource,
    *,
    repeats: int = 1,
    sampler: HessianSampler = wishart_hessian,
    keep_hessians: bool = False,
    moments: Moments | None = None,
) -> MixingRelease:
    """theta_{t+1} = theta_t + H_t^{-1} s_t from theta_0 = 0, with s_t = X^T clip(y - X theta_t) + noise.

    H_t is a fresh sketch of G + g I. The ridge g only preconditions: the fixed point is ordinary least squares.
    `moments` saves the first pass when they are known.
    """
    moments = rows.moments() if moments is None else moments
    spectrum = GramSpectrum.of(moments.gram)
    ridge = private_ridge(spectrum.least, plan.gamma, plan.eta, plan.tau, repeats, noise)
    theta = np.zeros((repeats, rows.d))
    iterates, scores, hessians = [], [], []
    for _ in range(plan.iterations):
        hessian = sampler(rows, spectrum, ridge, plan.k, noise)
        score = noise.release(rows.score(theta), plan.sigma)
        theta = theta + hessian.solve(score)
        iterates.append(theta)
        scores.append(score)
        if keep_hessians:
            hessians.append(hessian.matrix())
    return MixingRelease(
        theta, np.stack(iterates), np.stack(scores), np.stack(hessians) if keep_hessians else None, ridge
    )


def linear_mixing(
    rows: BoundedRows,
    plan: LinearMixingPlan,
    noise: NoiseSource,
    *,
    repeats: int = 1,
    sketch: Sketch = "wishart",
    moments: Moments | None = None,
) -> Array:
    """One sketch of [X, y], then least squares on it; coefficients of shape (repeats, d).

    theta = (X~^T X~)^{-1} X~^T y~. With "wishart" the (d+1, d+1) product [X~, y~]^T [X~, y~] is drawn from its law.
    """
    moments = rows.moments() if moments is None else moments
    joint = np.empty((rows.d + 1, rows.d + 1))
    joint[:-1, :-1] = moments.gram
    joint[:-1, -1] = joint[-1, :-1] = moments.correlation
    joint[-1, -1] = moments.label_square
    spectrum = GramSpectrum.of(joint)
    ridge = private_ridge(spectrum.least, plan.gamma, plan.eta, plan.tau, repeats, noise)
    if sketch == "wishart":
        root = np.sqrt(spectrum.values + ridge[:, None])
        factor = bartlett_factor(rows.d + 1, plan.k, repeats, noise)
        half = spectrum.vectors @ (root[..., None] * factor)
        products = half @ np.swapaxes(half, 1, 2)
    else:
        products = np.empty((repeats, rows.d + 1, rows.d + 1))
        for r, g in enumerate(ridge):
            labelled = (np.column_stack([X, y]) for X, y in rows.chunks())
            sketched = np.sqrt(g) * noise.normal((plan.k, rows.d + 1))
            sketched += gaussian_sketch(labelled, rows.d + 1, plan.k, noise)
            products[r] = sketched.T @ sketched
    theta = np.linalg.solve(products[:, :-1, :-1], products[:, :-1, -1:])[..., 0]
    return np.asarray(theta, dtype=np.float64)
