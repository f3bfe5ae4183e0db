"""Tokens that carry no content: left out of targets, of weights between hops, and of what is read out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Stripped texts that count as empty words, as the paper's released code has them; ``()`` switches the rule off.
STOP_TOKENS: tuple[str, ...] = ("", ",", ".")


def kept_tokens(tokens: Sequence[str], stop_tokens: Sequence[str] = STOP_TOKENS) -> np.ndarray:
    """A (N,) bool array, False where a token's text without surrounding white space is in ``stop_tokens``."""
    stops = frozenset(stop_tokens)
    return np.fromiter((token.strip() not in stops for token in tokens), dtype=bool, count=len(tokens))
