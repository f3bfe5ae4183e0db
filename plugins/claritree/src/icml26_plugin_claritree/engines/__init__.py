"""Engines: three ways to compute the same losses, and so the same tree."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any, Literal

from icml26_plugin_claritree.moments import packed_size
from icml26_plugin_claritree.problem import SearchProblem
from icml26_plugin_claritree.search import Engine

EngineName = Literal["auto", "binned", "rank1", "numpy"]

MOST_MOMENTS = 4 * 2**30  # bytes

_logger = logging.getLogger(__name__)


def make_engine(name: EngineName, problem: SearchProblem, n_threads: int = 1) -> Engine[Any]:
    """The engine called `name` on a problem.

    `auto` is `binned`; `rank1` where the moments of `binned` would take more than `MOST_MOMENTS` bytes; `numpy` where
    Numba is not installed.
    """
    if name == "auto":
        name = _choose(problem)
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


def _choose(problem: SearchProblem) -> EngineName:
    """The engine of `auto`; a slower one is told to the log."""
    if importlib.util.find_spec("numba") is None:
        _logger.warning("numba is not installed: NumPy finds the same tree, tens of times slower; pip install numba")
        return "numpy"
    if 8 * problem.n * packed_size(problem.k) > MOST_MOMENTS:
        _logger.warning(
            "moments of %d rows and %d leaf columns take more than %.0f GiB: engine 'rank1' finds the same tree without them, "
            "more slowly; engine='binned' takes the memory",
            problem.n,
            problem.k - 1,
            MOST_MOMENTS / 2**30,
        )
        return "rank1"
    return "binned"
