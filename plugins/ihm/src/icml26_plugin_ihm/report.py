"""Where a privacy budget went: one entry a mechanism, and the total that they compose to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icml26_plugin_ihm.accounting import (
    eigenvalue_epsilon,
    gaussian_rdp,
    rdp_epsilon,
    rdp_to_dp_term,
    sketch_rdp,
)
from icml26_plugin_ihm.calibration import AdaSSPPlan, GradientDescentPlan, HessianMixingPlan, LinearMixingPlan

Plan = HessianMixingPlan | AdaSSPPlan | LinearMixingPlan | GradientDescentPlan

ADJACENCY = "zero-out: neighbouring data sets differ in one row, replaced by zeros; the number of rows is public"


@dataclass(frozen=True)
class MechanismSpend:
    """What one mechanism took from the budget."""

    name: str
    epsilon: float
    delta: float
    parameters: Mapping[str, float | int | str] = field(default_factory=dict)
    """Scales in the units of the bounded problem (rows in the unit ball, |y| <= 1)."""


@dataclass(frozen=True)
class PrivacyReport:
    """The whole guarantee of one fit. `str()` gives a table, `to_dict()` plain JSON values."""

    mechanism: str
    epsilon: float
    """Total; every fit on the same rows adds another one."""
    delta: float
    accounting: str
    spends: tuple[MechanismSpend, ...]
    adjacency: str = ADJACENCY
    bounds_from_data: bool = False
    """True: the bounds themselves were read from private data, which no number here covers."""
    secure_noise: bool = False
    """True: noise came from OpenDP's samplers; False: floating-point noise of NumPy."""
    seeded_noise: bool = False
    """True: noise came from a given random_state; whoever knows that can subtract it."""

    @property
    def replace_one(self) -> tuple[float, float]:
        """(epsilon, delta) when one row is exchanged for another, by group privacy: (2 eps, (1 + e^eps) delta)."""
        factor = 1.0 + math.exp(self.epsilon) if self.epsilon < 700 else math.inf
        return 2.0 * self.epsilon, min(1.0, factor * self.delta)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "spends": [asdict(spend) for spend in self.spends], "replace_one": self.replace_one}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> PrivacyReport:
        """What `to_dict` wrote."""
        fields = {key: value for key, value in document.items() if key not in ("spends", "replace_one")}
        return cls(spends=tuple(MechanismSpend(**spend) for spend in document["spends"]), **fields)

    def __str__(self) -> str:
        lines = [
            f"{self.mechanism}: epsilon = {self.epsilon:g}, delta = {self.delta:.4g} ({self.accounting} accounting)"
        ]
        for spend in self.spends:
            scales = ", ".join(
                f"{k} = {v:.6g}" if isinstance(v, float) else f"{k} = {v}" for k, v in spend.parameters.items()
            )
            lines.append(f"  {spend.name:<28} epsilon {spend.epsilon:<10.4g} delta {spend.delta:<10.3g} {scales}")
        lines.append(f"  adjacency: {self.adjacency}")
        if self.bounds_from_data:
            lines.append("  NOT PRIVATE AS STATED: bounds were computed from the data")
        if self.seeded_noise:
            lines.append("  seeded: whoever knows the random_state can subtract the noise; release fits without one")
        return "\n".join(lines)


def privacy_report(
    plan: Plan, *, bounds_from_data: bool = False, secure_noise: bool = False, seeded_noise: bool = False
) -> PrivacyReport:
    """The ledger of any plan."""
    accounting: str
    if isinstance(plan, HessianMixingPlan):
        name, accounting, spends = "iterative Hessian mixing", plan.accounting, _hessian_mixing_spends(plan)
    elif isinstance(plan, AdaSSPPlan):
        name, accounting, spends = "AdaSSP", plan.accounting, _adassp_spends(plan)
    elif isinstance(plan, LinearMixingPlan):
        name, accounting, spends = "linear mixing", "paper", _linear_mixing_spends(plan)
    else:
        name, accounting, spends = "noisy gradient descent", plan.accounting, _gradient_descent_spends(plan)
    return PrivacyReport(
        name,
        plan.epsilon,
        plan.delta,
        accounting,
        spends,
        bounds_from_data=bounds_from_data,
        secure_noise=secure_noise,
        seeded_noise=seeded_noise,
    )


def _hessian_mixing_spends(plan: HessianMixingPlan) -> tuple[MechanismSpend, ...]:
    share = plan.delta / 4.0
    scores = {
        "releases": plan.iterations,
        "sensitivity": 1.0,
        "sigma": plan.sigma,
        "gdp_mu": math.sqrt(plan.iterations) / plan.sigma,
        "zcdp_rho": plan.iterations / (2.0 * plan.sigma**2),
    }
    eigenvalue = {"releases": 1, "sensitivity": 1.0, "sigma": plan.eta}
    sketches = {"releases": plan.iterations, "rows": plan.k, "gamma": plan.gamma}
    tail = {"tau": plan.tau, "probability": math.exp(-(plan.tau**2) / 2.0)}

    def sketch_curve(alpha: NDArray[np.float64]) -> NDArray[np.float64]:
        return plan.iterations * sketch_rdp(alpha, plan.k, plan.gamma)

    if plan.accounting == "paper":
        sketch_epsilon, order = rdp_epsilon(sketch_curve, share, plan.gamma)
        return (
            MechanismSpend("least eigenvalue", eigenvalue_epsilon(plan.eta, 1.0, share), share, eigenvalue),
            MechanismSpend("sketched Hessians", sketch_epsilon, share, {**sketches, "renyi_order": order}),
            MechanismSpend("eigenvalue bound fails", 0.0, share, tail),
            MechanismSpend("scores X^T r", plan.epsilon / 2.0, share, scores),
        )

    def eigenvalue_curve(alpha: NDArray[np.float64]) -> NDArray[np.float64]:
        return gaussian_rdp(alpha, 1.0 / plan.eta)

    def score_curve(alpha: NDArray[np.float64]) -> NDArray[np.float64]:
        return gaussian_rdp(alpha, math.sqrt(plan.iterations) / plan.sigma)

    _, order = rdp_epsilon(
        lambda alpha: sketch_curve(alpha) + eigenvalue_curve(alpha) + score_curve(alpha), 3.0 * share, plan.gamma
    )
    at = np.asarray(order)
    return (
        MechanismSpend("least eigenvalue", float(eigenvalue_curve(at)), 0.0, eigenvalue),
        MechanismSpend("sketched Hessians", float(sketch_curve(at)), 0.0, {**sketches, "renyi_order": order}),
        MechanismSpend("scores X^T r", float(score_curve(at)), 0.0, scores),
        MechanismSpend("Rényi to approximate DP", float(rdp_to_dp_term(at, 3.0 * share)), 3.0 * share),
        MechanismSpend("eigenvalue bound fails", 0.0, share, tail),
    )


def _adassp_spends(plan: AdaSSPPlan) -> tuple[MechanismSpend, ...]:
    parts = {"least eigenvalue": plan.s, "Gram matrix": plan.s, "X^T y": plan.s_y}
    # Three equal Gaussians: on a joint ledger each holds a third of mu^2, stated as a third of epsilon.
    return tuple(
        MechanismSpend(
            name, plan.epsilon / 3.0, plan.delta / 3.0, {"sensitivity": 1.0, "sigma": sigma, "gdp_mu": 1.0 / sigma}
        )
        for name, sigma in parts.items()
    )


def _linear_mixing_spends(plan: LinearMixingPlan) -> tuple[MechanismSpend, ...]:
    share = plan.delta / 3.0
    sketch_epsilon, order = rdp_epsilon(lambda a: sketch_rdp(a, plan.k, plan.gamma, 2.0), share, plan.gamma / 2.0)
    return (
        MechanismSpend(
            "least eigenvalue",
            eigenvalue_epsilon(plan.eta, 2.0, share),
            share,
            {"releases": 1, "sensitivity": 2.0, "sigma": plan.eta},
        ),
        MechanismSpend(
            "sketch of [X, y]", sketch_epsilon, share, {"rows": plan.k, "gamma": plan.gamma, "renyi_order": order}
        ),
        MechanismSpend(
            "eigenvalue bound fails", 0.0, share, {"tau": plan.tau, "probability": math.exp(-(plan.tau**2) / 2.0)}
        ),
    )


def _gradient_descent_spends(plan: GradientDescentPlan) -> tuple[MechanismSpend, ...]:
    parameters = {
        "releases": plan.steps,
        "sensitivity": 2.0 if plan.accounting == "official" else 1.0,
        "sigma": plan.sigma,
        "gdp_mu": math.sqrt(plan.steps) / plan.sigma,
    }
    return (MechanismSpend("gradients", plan.epsilon, plan.delta, parameters),)
