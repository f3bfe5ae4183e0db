"""Differentially private linear regression by iterative Hessian mixing (Lev et al., ICML 2026).

The native API, loaded when first used: estimators `IterativeHessianMixing`, `AdaSSP`, `LinearMixing`,
`NoisyGradientDescent`; `audit_hessian_mixing` attacks the mechanism statistically.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icml26_plugin_ihm.audit import AuditResult, audit_hessian_mixing
    from icml26_plugin_ihm.bounds import PrivacyLeakWarning
    from icml26_plugin_ihm.estimators import AdaSSP, IterativeHessianMixing, LinearMixing, NoisyGradientDescent
    from icml26_plugin_ihm.report import MechanismSpend, PrivacyReport

__all__ = [
    "AdaSSP",
    "AuditResult",
    "IterativeHessianMixing",
    "LinearMixing",
    "MechanismSpend",
    "NoisyGradientDescent",
    "PrivacyLeakWarning",
    "PrivacyReport",
    "audit_hessian_mixing",
]

_HOMES = {
    "AdaSSP": "estimators",
    "AuditResult": "audit",
    "IterativeHessianMixing": "estimators",
    "LinearMixing": "estimators",
    "MechanismSpend": "report",
    "NoisyGradientDescent": "estimators",
    "PrivacyLeakWarning": "bounds",
    "PrivacyReport": "report",
    "audit_hessian_mixing": "audit",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
