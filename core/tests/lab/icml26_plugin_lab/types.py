"""The types of the lab's task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Inputs:
    values: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Truth:
    total: float = 0.0


@dataclass(frozen=True)
class Output:
    value: Any = 0.0
