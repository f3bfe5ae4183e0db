"""Membership attacks: scores of one text from its token log-probabilities. Low means that the model has seen it."""

from __future__ import annotations

import zlib

import numpy as np

ATTACKS = ("loss", "zlib", "min-k", "min-k-plus-plus")
_SMALLEST_VARIANCE = 1e-6


def loss(log_probs: np.ndarray) -> float:
    """Mean negative log-likelihood (nats) of the tokens (N,)."""
    return -float(np.mean(log_probs))


def zlib_ratio(log_probs: np.ndarray, text: str) -> float:
    """The loss over the number of bytes to which zlib compresses the text (never 0, not even for an empty text)."""
    return loss(log_probs) / len(zlib.compress(text.encode("utf-8", "surrogatepass")))


def min_k(log_probs: np.ndarray, *, share: float = 0.2) -> float:
    """Minus the mean of the lowest max(1, floor(share * N)) of the values (N,)."""
    count = max(1, int(share * len(log_probs)))
    return -float(np.mean(np.sort(np.asarray(log_probs, float))[:count]))


def min_k_plus_plus(log_probs: np.ndarray, mean: np.ndarray, variance: np.ndarray, *, share: float = 0.2) -> float:
    """:func:`min_k` of log-probabilities standardised at each position.

    ``mean`` and ``variance`` (N,) are those of the log-probability of a token drawn from the model itself there; a flat
    distribution has variance 0, which counts as 1e-6.
    """
    standard = (np.asarray(log_probs, float) - mean) / np.sqrt(np.maximum(variance, _SMALLEST_VARIANCE))
    return min_k(standard, share=share)
