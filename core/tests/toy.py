"""A tiny task with methods, datasets and metrics of every sort, for tests of planning and running."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from icml26 import (
    Dataset,
    DatasetConfig,
    DatasetSpec,
    InputError,
    Method,
    MethodConfig,
    MethodSpec,
    MetricSpec,
    Problem,
    Provides,
    TaskSpec,
    Value,
)
from icml26.catalog import Catalog, Entry, Plugin
from pydantic import Field, model_validator


@dataclass(frozen=True)
class Inputs:
    x: np.ndarray


@dataclass(frozen=True)
class Truth:
    total: float


@dataclass(frozen=True)
class Output:
    total: float
    draw: float = 0.0


class Shift(Method[Inputs, Output]):
    """Returns the sum of the inputs plus a shift."""

    class Config(MethodConfig):
        shift: float = Field(0.0, ge=-10, le=10, description="added to the sum")
        rate: float = Field(1e-3, gt=0, description="a rate")
        steps: int = Field(3, ge=1, description="steps of progress")
        kind: Literal["plain", "square"] = Field("plain", description="what is summed")
        limit: float | None = Field(None, description="cap of the sum")
        weights: str | None = Field(None, description="a file")
        fault: str = Field("", description="how to misbehave")

        @model_validator(mode="after")
        def _together(self) -> Any:
            if self.kind == "square" and self.shift < 0:
                raise ValueError("kind 'square' needs shift >= 0")
            return self

    def run(self, inputs: Inputs, ctx: Any) -> Output:
        fault = self.config.fault
        if fault == "raise":
            raise RuntimeError("boom")
        if fault == "exit":
            raise SystemExit(7)
        if fault == "refuse":
            raise InputError("column 'x' holds NaN in row 3")
        if fault == "memory":
            raise MemoryError
        if fault == "type":
            return "nonsense"  # type: ignore[return-value]
        if fault == "mutate":
            inputs.x[0] = 99
        if fault == "print":
            print('{"schema": "icml26.run/1"}')
            os.write(1, b"from C\n")
        for step in ctx.progress(range(self.config.steps), "step"):
            ctx.log("loss", 1 / (step + 1), step=step)
        total = float(np.sum(inputs.x**2 if self.config.kind == "square" else inputs.x)) + self.config.shift
        return Output(float("nan") if fault == "nan" else total, float(ctx.rng.standard_normal()))

    def visualize(self, problem: Any, output: Output, ctx: Any) -> None:
        if self.config.fault == "visualize":
            raise ValueError("no canvas")
        ctx.artifact("total.txt").write_text(str(output.total))

    def save(self, output: Output, folder: Path) -> None:
        (folder / "total.txt").write_text(repr(output.total))

    @classmethod
    def load(cls, folder: Path) -> Output:
        return Output(float((folder / "total.txt").read_text()))


class Told(Method[Inputs, Output]):
    """Is told the truth."""

    def run(self, inputs: Inputs, ctx: Any, truth: Truth) -> Output:  # type: ignore[override]
        return Output(truth.total)


class Numbers(Dataset[Inputs, Truth]):
    """Normal draws and their sum."""

    class Config(DatasetConfig):
        n: int = Field(5, ge=1, description="how many")
        attack: Literal["none", "random"] = Field("none", description="what was planted")
        path: str | None = Field(None, description="a file of numbers")

    def load(self, ctx: Any) -> Problem[Inputs, Truth]:
        if self.config.path is not None:
            x = np.loadtxt(self.config.path)
        else:
            x = ctx.rng.standard_normal(self.config.n)
        return Problem(Inputs(x), Truth(float(x.sum())), {"n": len(x)})


def error(output: Output, truth: Truth) -> float:
    return abs(output.total - truth.total)


def attack_error(output: Output, truth: Truth) -> float:
    return 2 * abs(output.total - truth.total)


def parts(output: Output, truth: Truth, ctx: Any, *, scale: float = 1.0) -> dict[str, float]:
    return {"draw": scale * float(ctx.rng.standard_normal()), "total": output.total}


def gain(scores: dict[str, float], reference: dict[str, float]) -> float:
    return reference["error"] - scores["error"]


HERE = __name__
TASK = TaskSpec(
    "toy.sum",
    "sum numbers",
    f"{HERE}:Inputs",
    f"{HERE}:Truth",
    f"{HERE}:Output",
    ("error", "parts"),
    {"attack": "planted"},
)
METHODS = (
    MethodSpec(
        "shift", "toy.sum", f"{HERE}:Shift", "sum and shift", reference="plain", default_dataset="numbers", metrics=("gain",),
        profiles={"small": {"shift": 2.0}}, smoke={"steps": 1}, files=("weights",),
    ),
    MethodSpec("plain", "toy.sum", f"{HERE}:Shift", "sum", role="reference", default_dataset="numbers"),
    MethodSpec("told", "toy.sum", f"{HERE}:Told", "the truth", role="oracle", default_dataset="numbers"),
    MethodSpec("needy", "toy.sum", f"{HERE}:Shift", "needs an attack", requires=("attack",), default_dataset="numbers"),
)  # fmt: skip
DATASETS = (
    DatasetSpec(
        "numbers", "toy.sum", f"{HERE}:Numbers", "numbers", (Provides("attack", {"attack": ["random"]}),),
        files=("path",), profile="small", smoke={"n": 2},
    ),
)  # fmt: skip
METRICS = (
    MetricSpec("error", "toy.sum", f"{HERE}:error", (Value(unit="units", direction="lower"),)),
    MetricSpec("attack-error", "toy.sum", f"{HERE}:attack_error", requires=("attack",)),
    MetricSpec("parts", "toy.sum", f"{HERE}:parts", (Value("draw"), Value("total"))),
    MetricSpec("gain", "toy.sum", f"{HERE}:gain", (Value(direction="higher"),), needs=("error",), relative_to="plain"),
)


def catalog() -> Catalog:
    """The toy plugin's catalog."""
    schemas = {"shift": Shift, "plain": Shift, "needy": Shift, "told": Told, "numbers": Numbers}
    kinds: tuple[tuple[Any, tuple[Any, ...]], ...] = (
        ("task", (TASK,)), ("method", METHODS), ("dataset", DATASETS), ("metric", METRICS),
    )  # fmt: skip
    entries = tuple(
        Entry(
            kind,
            "toy",
            "icml26-plugin-toy",
            spec,
            schemas[spec.name].Config.model_json_schema() if kind in ("method", "dataset") else None,
        )
        for kind, specs in kinds
        for spec in specs
    )
    return Catalog((Plugin("toy", "icml26-plugin-toy", "0", HERE),), entries)
