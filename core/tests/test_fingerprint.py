"""Fingerprints of inputs, truths and outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from icml26.fingerprints import fingerprint


@dataclass
class Pair:
    a: Any
    b: Any = None


class Module:
    def __init__(self, weight: np.ndarray) -> None:
        self.weight = weight

    def state_dict(self) -> dict[str, np.ndarray]:
        return {"weight": self.weight}


class Own:
    def __init__(self, text: str) -> None:
        self.text = text

    def __fingerprint__(self) -> str:
        return self.text


X = np.arange(6.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (X, X.astype(np.float32)),
        (X, X.reshape(2, 3)),
        (X, np.where(X == 3, np.nextafter(3, 4), X)),
        (np.array([0.0]), np.array([-0.0])),
        (1, 1.0),
        (1, True),
        ("1", 1),
        (None, "None"),
        ([1, [2]], [1, 2]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"b": 1}),
        (["ab", "c"], ["a", "bc"]),
        (Pair(1), Pair(2)),
        (Module(X), Module(X + 1)),
        (Own("a"), Own("b")),
        (np.array(["a", None], dtype=object), np.array(["a", "b"], dtype=object)),
    ],
)
def test_different_content_differs(one: Any, other: Any) -> None:
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (X, X.copy()),
        (X.reshape(2, 3).T, np.ascontiguousarray(X.reshape(2, 3).T)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2, 3}, {3, 2, 1}),
        (Pair(X), Pair(X.copy())),
        (Module(X), Module(X.copy())),
        (lambda: 1, lambda: 2),
        (object(), object()),
    ],
)
def test_equal_content_is_equal(one: Any, other: Any) -> None:
    assert fingerprint(one) == fingerprint(other)


def test_cycles_end() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert fingerprint(loop) == fingerprint(loop)


def test_no_exported_name_is_hidden_by_a_module_of_the_same_name() -> None:
    import importlib.util

    import icml26

    assert [name for name in icml26.__all__ if importlib.util.find_spec(f"icml26.{name}") is not None] == []
    assert callable(icml26.fingerprint)
