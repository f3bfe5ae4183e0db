"""The environment variables by which numerical libraries choose their threads; they are read when a library loads."""

from __future__ import annotations

import os

_COUNTS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)


def thread_variables(threads: int) -> dict[str, str]:
    """The variables for a process that may use this many threads."""
    return {**dict.fromkeys(_COUNTS, str(threads)), **_waiting()}


def wait_passively() -> None:
    """Let idle OpenMP threads of this process sleep. Call before torch or numpy is imported.

    By default they spin, which makes small networks tens of times slower as soon as another process wants the cores.
    """
    os.environ.update(_waiting())


def _waiting() -> dict[str, str]:
    return {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
