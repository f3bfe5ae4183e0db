"""Excess risk against epsilon, for every method on one data set."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from icml26_plugin_ihm.bounds import XBound, YBound
from icml26_plugin_ihm.estimators import AdaSSP, IterativeHessianMixing, LinearMixing, NoisyGradientDescent
from icml26_plugin_ihm.linear_model import PrivateLinearModel, Simulation
from icml26_plugin_ihm.sketch import Sketch

Array = NDArray[np.float64]

EPSILONS = tuple(10.0 ** np.linspace(-1.0, 1.0, 6))
"""The paper's grid."""


class Settings(Protocol):
    """What the curves take from a config of the paper's method."""

    delta: float | None
    x_bound: XBound
    y_bound: YBound
    fit_intercept: bool
    clip_inputs: bool
    iterations: int | Literal["auto"]
    k_factor: float | Literal["auto"]
    sketch: Sketch


class Curve(NamedTuple):
    """One method's mean excess risk and its standard error at each epsilon."""

    name: str
    mean: Array
    standard_error: Array


class Tradeoff(NamedTuple):
    """All curves on one axis."""

    epsilons: Array
    curves: tuple[Curve, ...]
    null: float
    """Excess risk of predicting zero."""
    repeats: int


def tradeoff(X: Array, y: Array, settings: Settings, repeats: int, generator: np.random.Generator) -> Tradeoff:
    """Curves of all private methods on X (n, d), y (n,): R = `repeats` independent fits a point."""
    risk = _Risk(X, y)
    shared: dict[str, Any] = {"random_state": generator}
    shared |= {
        name: getattr(settings, name) for name in ("delta", "x_bound", "y_bound", "fit_intercept", "clip_inputs")
    }
    mixing: dict[str, Any] = {"k_factor": settings.k_factor, "sketch": settings.sketch}
    models: dict[str, PrivateLinearModel] = {
        f"IHM, T={settings.iterations}": IterativeHessianMixing(iterations=settings.iterations, **mixing, **shared),
        "IHM, auto, joint ledger": IterativeHessianMixing(
            iterations="auto", k_factor="auto", sketch=settings.sketch, accounting="joint", **shared
        ),
        "AdaSSP": AdaSSP(**shared),
        "AdaSSP, joint ledger": AdaSSP(accounting="joint", **shared),
        "linear mixing": LinearMixing(sketch=settings.sketch, **shared),
        "noisy gradient descent": NoisyGradientDescent(**shared),
    }
    curves = []
    for name, model in models.items():
        risks = np.array([risk(model.set_params(epsilon=e).simulate(X, y, repeats)) for e in EPSILONS])
        error = risks.std(axis=1, ddof=1) / np.sqrt(repeats) if repeats > 1 else np.full(len(EPSILONS), np.nan)
        curves.append(Curve(name, risks.mean(axis=1), error))
    return Tradeoff(np.array(EPSILONS), tuple(curves), risk.null, repeats)


class _Risk:
    """Excess risk of many linear models from one pass over the rows."""

    def __init__(self, X: Array, y: Array) -> None:
        rows = np.column_stack([X, np.ones(len(X)), y])
        self._moments = rows.T @ rows / len(X)
        theta = np.linalg.lstsq(X, y, rcond=None)[0]
        self._least = float(np.square(y - X @ theta).mean())
        self.null = float(np.square(y).mean()) - self._least

    def __call__(self, fits: Simulation) -> Array:
        """Shape (R,)."""
        residual = np.column_stack([fits.coef, fits.intercept, np.full(len(fits.coef), -1.0)])
        return np.einsum("ri,ij,rj->r", residual, self._moments, residual, optimize=True) - self._least
