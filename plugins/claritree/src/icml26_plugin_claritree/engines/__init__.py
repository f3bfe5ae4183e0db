"""Engines: three ways to compute the same losses, and so the same tree."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any, Literal

from icml26_plugin_claritree.problem import SearchProblem
from icml26_plugin_claritree.search import Engine

EngineName = Literal["auto", "binned", "rank1", "numpy"]

_logger = logging.getLogger(__name__)


def make_engine(name: EngineName, problem: SearchProblem, n_threads: int = 1) -> Engine[Any]:
    """The engine called `name` on a problem; `auto` is `binned`, or `numpy` where Numba is not installed."""
    if name == "auto":
        name = "binned" if importlib.util.find_spec("numba") else "numpy"
        if name == "numpy":
            _logger.warning(
                "numba is not installed: the same tree is found by NumPy, tens of times slower; pip install numba"
            )
    if name == "numpy":
        from icml26_plugin_claritree.engines.vectorized import NumpyEngine

        return NumpyEngine(problem)
    if name in ("binned", "rank1"):
        try:
            import numba  # noqa: F401
        except ImportError as error:
            raise ImportError(
                f"engine {name!r} needs numba (pip install numba); engine='numpy' works without it"
            ) from error
        if name == "binned":
            from icml26_plugin_claritree.engines.binned import BinnedEngine

            return BinnedEngine(problem, n_threads)
        from icml26_plugin_claritree.engines.rank1 import Rank1Engine

        return Rank1Engine(problem, n_threads)
    raise ValueError(f"engine must be one of 'auto', 'binned', 'rank1', 'numpy', got {name!r}")
