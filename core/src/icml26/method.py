"""The base class of methods and of their configs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from icml26.context import RunContext
    from icml26.task import Problem

Inputs = TypeVar("Inputs")
Output = TypeVar("Output")


class MethodConfig(BaseModel):
    """Base of a method's config: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, protected_namespaces=())


class Method(ABC, Generic[Inputs, Output]):
    """A thin adapter between a plugin's native API and a task.

    Subclasses declare a nested ``Config`` and ``run``. A method that can store its output overrides ``save`` and
    ``load`` (without pickle); one that has something to show overrides ``visualize``.
    """

    class Config(MethodConfig):
        """No options."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Solve the problem. Methods of ``role="oracle"`` take the truth as a third parameter."""

    def visualize(self, problem: Problem[Inputs, Any], output: Output, ctx: RunContext) -> None:
        """Write figures and declared artifacts through ``ctx.artifact(name)``; called after scoring."""

    def save(self, output: Output, folder: Path) -> None:
        """Write ``output`` into the existing, empty ``folder``."""
        raise TypeError(f"{type(self).__name__} does not store its output")

    @classmethod
    def load(cls, folder: Path) -> Output:
        """Read what ``save`` wrote."""
        raise TypeError(f"{cls.__name__} does not store its output")


def can_save(method: type[Method[Any, Any]]) -> bool:
    """Whether a method class stores its output."""
    return method.save is not Method.save and method.load.__func__ is not Method.load.__func__  # type: ignore[attr-defined]
