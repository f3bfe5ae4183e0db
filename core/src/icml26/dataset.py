"""The base class of datasets and of their configs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from icml26.context import RunContext
    from icml26.task import Problem

Inputs = TypeVar("Inputs")
Truth = TypeVar("Truth")


class DatasetConfig(BaseModel):
    """Base of a dataset's config. A config with its own ``seed`` field draws from ``numpy.random.default_rng(seed)`` alone."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, protected_namespaces=())


class Dataset(ABC, Generic[Inputs, Truth]):
    """Loads a problem, deterministically in (config, seed)."""

    class Config(DatasetConfig):
        """No options."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Load the problem; random draws come from ``ctx.rng``."""

    def perfect(self, problem: Problem[Inputs, Truth]) -> Any:
        """An output of the task that no method can beat, made from the truth; None when there is no way to make one.

        The conformance kit compares each metric on it with ``broken`` to see that the metric's direction is right.
        """
        return None

    def broken(self, problem: Problem[Inputs, Truth]) -> Any:
        """An output of the task that is plainly bad; None when there is no way to make one. See ``perfect``."""
        return None
