"""Datasets, methods and metrics of the contest."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from icml26 import Dataset, DatasetConfig, InputError, Method, MethodConfig, Problem
from pydantic import Field

from icml26_plugin_arena.types import Inputs, Output, Truth


class Draws(Dataset[Inputs, Truth]):
    """Draws around a mean that depends on the seed."""

    class Config(DatasetConfig):
        """How many, how noisy."""

        n: int = Field(20, ge=1, description="number of draws")
        noise: float = Field(1.0, ge=0, description="standard deviation")

    def load(self, ctx: Any) -> Problem[Inputs, Truth]:
        """Draw."""
        mean = float(ctx.rng.normal(0, 3))
        return Problem(
            Inputs(mean + self.config.noise * ctx.rng.standard_normal(self.config.n)), Truth(mean), {"mean": mean}
        )


class FromFile(Dataset[Inputs, Truth]):
    """The numbers of a file; their mean is the truth."""

    class Config(DatasetConfig):
        """Where."""

        path: str = Field(description="a text file of numbers")

    def load(self, ctx: Any) -> Problem[Inputs, Truth]:
        """Read."""
        values = np.loadtxt(self.config.path)
        return Problem(Inputs(values), Truth(float(values.mean())))


class _Guess(Method[Inputs, Output]):
    class Config(MethodConfig):
        """How hard it tries, and how it misbehaves."""

        steps: int = Field(5, ge=1, description="steps, each of which costs one")
        weight: float = Field(1.0, ge=0, le=1, description="shrinkage")
        sleep: float = Field(0.0, ge=0, description="seconds a run")
        fault: str = Field("", description="raise, refuse or exit on odd seeds")

    def guess(self, draws: np.ndarray) -> float:
        """The guess."""
        raise TypeError("abstract")

    def run(self, inputs: Inputs, ctx: Any) -> Output:
        """Guess."""
        for step in ctx.progress(range(self.config.steps), "guess"):
            ctx.log("loss", 1 / (step + 1) + 0.01 * float(ctx.rng.standard_normal()), step=step)
        time.sleep(self.config.sleep)
        print("noise on standard output")
        if self.config.fault and ctx.seed % 2:
            if self.config.fault == "exit":
                os._exit(3)
            raise InputError("column 3 is empty") if self.config.fault == "refuse" else ValueError("odd seed")
        return Output(self.guess(inputs.draws), float(self.config.steps))

    def visualize(self, problem: Any, output: Output, ctx: Any) -> None:
        """A picture."""
        ctx.artifact("guess.svg").write_text(
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle cx="4" cy="4" r="3" fill="#06c"/></svg>'
        )

    def save(self, output: Output, folder: Path) -> None:
        """As JSON."""
        (folder / "guess.json").write_text(json.dumps([output.guess, output.cost]))

    @classmethod
    def load(cls, folder: Path) -> Output:
        """From JSON."""
        return Output(*json.loads((folder / "guess.json").read_text()))


class Shrunk(_Guess):
    """The mean, shrunk."""

    def guess(self, draws: np.ndarray) -> float:
        return float(self.config.weight * draws.mean())


class First(_Guess):
    """The first draw."""

    def guess(self, draws: np.ndarray) -> float:
        return float(draws[0])


class Median(_Guess):
    """The median."""

    def guess(self, draws: np.ndarray) -> float:
        return float(np.median(draws))


class Told(Method[Inputs, Output]):
    """Is told."""

    def run(self, inputs: Inputs, ctx: Any, truth: Truth) -> Output:  # type: ignore[override]
        """Say it."""
        return Output(truth.mean, 0.0)


def error(output: Output, truth: Truth) -> float:
    """Absolute error."""
    return abs(output.guess - truth.mean)


def square(output: Output, truth: Truth) -> float:
    """Squared error."""
    return (output.guess - truth.mean) ** 2


def cost(output: Output, truth: Truth) -> float:
    """Steps."""
    return output.cost


def gain(scores: dict[str, float], reference: dict[str, float]) -> float:
    """How much smaller the error is."""
    return reference["error"] - scores["error"]
