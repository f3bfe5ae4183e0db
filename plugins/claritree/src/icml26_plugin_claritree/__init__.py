"""CLARITree: near-optimal sparse piecewise linear regression trees by lookahead (ICML 2026).

The native API; names are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icml26_plugin_claritree.cuts import FirstCuts, first_cuts
    from icml26_plugin_claritree.cv import CLARITreeCV
    from icml26_plugin_claritree.defaults import PAPER_KAPPAS, PAPER_LAMBDAS
    from icml26_plugin_claritree.estimator import CLARITreeRegressor
    from icml26_plugin_claritree.tree import Tree

__all__ = ["PAPER_KAPPAS", "PAPER_LAMBDAS", "CLARITreeCV", "CLARITreeRegressor", "FirstCuts", "Tree", "first_cuts"]

__version__ = "0.1.0"

_HOMES = {
    "CLARITreeRegressor": "estimator",
    "CLARITreeCV": "cv",
    "PAPER_LAMBDAS": "defaults",
    "PAPER_KAPPAS": "defaults",
    "Tree": "tree",
    "FirstCuts": "cuts",
    "first_cuts": "cuts",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
