"""scikit-learn estimators: private linear regression on the user's own arrays, batches and units."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from icml26_plugin_ihm.baselines import adassp, gradient_descent
from icml26_plugin_ihm.calibration import (
    Accounting,
    DescentAccounting,
    Shift,
    plan_adassp,
    plan_gradient_descent,
    plan_hessian_mixing,
    plan_linear_mixing,
    tuned_schedule,
)
from icml26_plugin_ihm.linear_model import Budget, PrivateLinearModel, Releases, check_count
from icml26_plugin_ihm.mixing import iterative_hessian_mixing, linear_mixing
from icml26_plugin_ihm.noise import NoiseSource
from icml26_plugin_ihm.rows import BoundedRows, Moments
from icml26_plugin_ihm.sketch import SKETCHES, Sketch


def check_sketch(sketch: str, k: int | None, k_factor: float | Literal["auto"], varrho: float | None) -> None:
    """Refuse sketch parameters that no data could meet."""
    if sketch not in SKETCHES:
        raise ValueError(f"sketch must be one of {sorted(SKETCHES)}, got {sketch!r}")
    if k is not None:
        check_count(k, "k", 3)
    if k_factor != "auto" and not (isinstance(k_factor, int | float) and 0 < k_factor < math.inf):
        raise ValueError(f"k_factor must be positive and finite, got {k_factor!r}")
    if varrho is not None and not 0.0 < varrho < 1.0:
        raise ValueError(f"varrho must lie strictly between 0 and 1, got {varrho!r}")


@dataclass(eq=False, repr=False, kw_only=True)
class IterativeHessianMixing(PrivateLinearModel):
    """Differentially private least squares by iterative Hessian mixing (Lev et al., ICML 2026).

    Parameters
    ----------
    epsilon, delta : privacy budget of one fit under zero-out adjacency; delta=None is 1/n^2.
    x_bound : largest Euclidean norm of a row of X, from public knowledge ("data" reads it off X and warns).
    y_bound : largest |y|, or (low, high). With an intercept the pair is centred, so a tight one costs less noise.
    iterations : Newton steps T; "auto" takes 5 up to epsilon 5.5, then 3 with larger sketches (`tuned_schedule`).
    k, k_factor : rows of each sketch; k=None is max(int(k_factor d), int(k_factor ln(4 T / varrho))); k_factor may be "auto".
    varrho : failure probability of the utility guarantee; None is delta/10.
    sketch : "wishart" draws each Hessian from its exact law, "gaussian" multiplies the sketch out as in the paper.
    accounting : "paper", or "joint" for one Rényi ledger with about 0.6 times the noise (not in the paper).
    fit_intercept : adds a constant column; rows are rescaled to stay in the ball. The paper has none.
    clip_inputs : scale rows into the ball and clip labels (row by row, so private); False refuses such rows.
    random_state : seed or generator for experiments. secure : OpenDP's samplers, no seed (extra `secure`).
    chunk_rows : rows held in work space at once. diagnostics : also store `diagnostics_`, which is NOT private.

    Attributes
    ----------
    coef_ (d,), intercept_ : in the user's units. privacy_report_ : `PrivacyReport`. plan_ : calibrated scales.
    """

    iterations: int | Literal["auto"] = 3
    k: int | None = None
    k_factor: float | Literal["auto"] = 6.0
    varrho: float | None = None
    sketch: Sketch = "wishart"
    accounting: Accounting = "paper"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.iterations != "auto":
            check_count(self.iterations, "iterations", 1)
        check_sketch(self.sketch, self.k, self.k_factor, self.varrho)
        if self.accounting not in ("paper", "joint"):
            raise ValueError(f"accounting must be 'paper' or 'joint', got {self.accounting!r}")

    def _release(
        self, rows: BoundedRows, moments: Moments, budget: Budget, noise: NoiseSource, repeats: int
    ) -> Releases:
        iterations, k_factor = tuned_schedule(budget.epsilon)
        plan = plan_hessian_mixing(
            rows.d,
            *budget,
            iterations=iterations if self.iterations == "auto" else self.iterations,
            k=self.k,
            k_factor=k_factor if self.k_factor == "auto" else self.k_factor,
            varrho=self.varrho,
            accounting=self.accounting,
        )
        release = iterative_hessian_mixing(
            rows, plan, noise, repeats=repeats, sampler=SKETCHES[self.sketch], moments=moments
        )
        return Releases(release.theta, plan)


@dataclass(eq=False, repr=False, kw_only=True)
class AdaSSP(PrivateLinearModel):
    """Adaptive sufficient-statistics perturbation (Wang 2018): noisy Gram matrix and X^T y with an adaptive ridge.

    `shift` is how far the noisy least eigenvalue is lowered: "wang" s sqrt(ln(6/delta)), "official" s^2 as in the code
    of the mixing paper. Other parameters and attributes as in `IterativeHessianMixing`.
    """

    shift: Shift = "wang"
    varrho: float | None = None
    accounting: Accounting = "paper"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.shift not in ("wang", "official"):
            raise ValueError(f"shift must be 'wang' or 'official', got {self.shift!r}")

    def _release(
        self, rows: BoundedRows, moments: Moments, budget: Budget, noise: NoiseSource, repeats: int
    ) -> Releases:
        plan = plan_adassp(rows.d, *budget, varrho=self.varrho, shift=self.shift, accounting=self.accounting)
        return Releases(adassp(rows, plan, noise, repeats=repeats, moments=moments), plan)


@dataclass(eq=False, repr=False, kw_only=True)
class LinearMixing(PrivateLinearModel):
    """One-shot mixing: least squares on a single Gaussian sketch of [X, y].

    Parameters and attributes as in `IterativeHessianMixing`.
    """

    k: int | None = None
    k_factor: float = 2.5
    varrho: float | None = None
    sketch: Sketch = "wishart"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_sketch(self.sketch, self.k, self.k_factor, self.varrho)
        if isinstance(self.k_factor, str):
            raise ValueError("k_factor='auto' is for iterative mixing; linear mixing needs a number")

    def _release(
        self, rows: BoundedRows, moments: Moments, budget: Budget, noise: NoiseSource, repeats: int
    ) -> Releases:
        plan = plan_linear_mixing(rows.d, *budget, k=self.k, k_factor=self.k_factor, varrho=self.varrho)
        theta = linear_mixing(rows, plan, noise, repeats=repeats, sketch=self.sketch, moments=moments)
        return Releases(theta, plan)


@dataclass(eq=False, repr=False, kw_only=True)
class NoisyGradientDescent(PrivateLinearModel):
    """Full-batch gradient descent with noise on each clipped gradient.

    `learning_rate` is in units of the bounded problem (rows in the unit ball): a number, or "isotropic" for the number
    of coefficients, the inverse of the mean eigenvalue that rows on the unit sphere would have. Other parameters as in
    `IterativeHessianMixing`.
    """

    steps: int = 10
    learning_rate: float | Literal["isotropic"] = "isotropic"
    accounting: DescentAccounting = "gdp"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count(self.steps, "steps", 1)
        if self.accounting not in ("official", "zcdp", "gdp"):
            raise ValueError(f"accounting must be 'official', 'zcdp' or 'gdp', got {self.accounting!r}")
        if self.learning_rate != "isotropic" and not (
            isinstance(self.learning_rate, int | float) and 0 < self.learning_rate < math.inf
        ):
            raise ValueError(f"learning_rate must be positive or 'isotropic', got {self.learning_rate!r}")

    def _release(
        self, rows: BoundedRows, moments: Moments, budget: Budget, noise: NoiseSource, repeats: int
    ) -> Releases:
        rate = float(rows.d) if self.learning_rate == "isotropic" else float(self.learning_rate)
        plan = plan_gradient_descent(*budget, steps=self.steps, learning_rate=rate, accounting=self.accounting)
        return Releases(gradient_descent(rows, plan, noise, moments.n, repeats=repeats), plan)
