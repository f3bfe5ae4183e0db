"""Find the arrays of a value, and those of two values that lie in the same memory."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def arrays_of(value: Any, path: str = "", above: frozenset[int] = frozenset()) -> list[tuple[str, np.ndarray]]:
    """The NumPy arrays (and CPU tensors as arrays) of a value, with their paths; models are left out."""
    if id(value) in above or isinstance(value, str | bytes):
        return []
    above = above | {id(value)}
    if isinstance(value, np.ndarray):
        return [(path, value)]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return (
            [(path, value.detach().view(torch.uint8).numpy())] if value.device.type == "cpu" and value.numel() else []
        )
    if is_dataclass(value) and not isinstance(value, type):
        items = [(f".{item.name}", getattr(value, item.name)) for item in fields(value)]
    elif isinstance(value, Mapping):
        items = [(f"[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, Sequence):
        items = [(f"[{i}]", item) for i, item in enumerate(value)]
    else:
        return []
    return [found for name, item in items for found in arrays_of(item, path + name, above)]


def share_memory(one: list[tuple[str, np.ndarray]], other: list[tuple[str, np.ndarray]]) -> list[tuple[str, str]]:
    """The pairs of paths whose arrays overlap in memory."""
    return [(a, b) for a, x in one for b, y in other if x.size and y.size and np.shares_memory(x, y)]
