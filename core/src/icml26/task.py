"""What a dataset hands over: inputs for the method, truth for the metrics, never both to one of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Inputs = TypeVar("Inputs")
Truth = TypeVar("Truth")
Output = TypeVar("Output")


@dataclass(frozen=True, slots=True)
class Problem(Generic[Inputs, Truth]):
    """One loaded problem. ``info`` holds JSON values that describe it (sizes, what was attacked), for people to read."""

    inputs: Inputs
    truth: Truth
    info: dict[str, Any] = field(default_factory=dict)
