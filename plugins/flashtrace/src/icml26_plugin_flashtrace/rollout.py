"""Read-outs of token-wise scores: the IFR row, and exhaustive rollout through all generated tokens (CAGE at token level)."""

from __future__ import annotations

import numpy as np


def normalised_rows(scores: np.ndarray) -> np.ndarray:
    """Each row (M, N) clamped at 0 and divided by its sum + 1e-8."""
    clamped = np.clip(scores, 0.0, None)
    return np.asarray(clamped / (clamped.sum(axis=1, keepdims=True) + 1e-8))


def ifr_row(rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """(N,) the normalised rows of the targets, summed; ``rows`` (M, N), ``targets`` (M,) bool."""
    return np.asarray(normalised_rows(rows)[targets].sum(axis=0))


def exhaustive_rollout(rows: np.ndarray, n_prompt: int, targets: np.ndarray) -> np.ndarray:
    """(N,) what each target owes to the prompt when every generated token on the way is replaced by what it owes.

    ``rows`` (G, N) token-wise scores of all G generated tokens, ``targets`` the indices among them. For a target t:
    r = B[t]; for k = t-1 down to 0: r += r[P + k] B[k], then r[P + k] = 0. All targets go together, since each step is linear.
    """
    b = normalised_rows(rows)
    total = np.zeros(b.shape[1], dtype=np.float64)
    order = np.sort(np.asarray(targets))
    waiting = set(order.tolist())
    for k in range(int(order.max()), -1, -1):
        passed = total[n_prompt + k]
        if passed > 0:
            total += passed * b[k]
            total[n_prompt + k] = 0.0
        if k in waiting:
            total += b[k]
    return total
