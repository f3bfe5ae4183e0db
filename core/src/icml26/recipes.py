"""Recipes: a bench that a plugin ships together with the paper's claims, as data. Reading and checking of the file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

from icml26.errors import UsageError
from icml26.grid import Grid, label_of, read_grid, take_seeds
from icml26.statistics import Aggregate
from icml26.strict_toml import Table, nearest, read_toml

RECIPE_SCHEMA = "icml26.recipe/1"
BEST_BASELINE = "best-baseline"

As: TypeAlias = Literal["value", "ratio", "difference"]

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured: a metric's key of a method (by label), alone or over others, on one dataset (by label).

    ``over`` is empty for a value; several labels mean the better of them; ``("best-baseline",)`` the best baseline.
    """

    metric: str
    of: str
    on: str
    kind: As = "value"
    over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the paper, scaled to this recipe, with what would make it hold.

    ``paper`` is the paper's own number, as text; ``strict`` demands that the interval's bound holds too.
    """

    id: str
    text: str
    measure: Measure
    at_least: float | None = None
    at_most: float | None = None
    paper: str | None = None
    must: bool = False
    strict: bool = False
    aggregate: Aggregate = "mean"


@dataclass(frozen=True, slots=True)
class Precondition:
    """A claim about the setting; when it fails, ``claims`` (all of them when empty) are void."""

    claim: Claim
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture of the runs: ``y`` (a metric's key) against ``x`` (a config key or another metric's), a line for each ``by``.

    ``by`` is ``method`` (its name), ``label``, ``dataset`` or a config key.
    """

    x: str
    y: str
    by: str = "method"
    on: str | None = None
    title: str | None = None
    log: Literal["", "x", "y", "xy"] = ""


@dataclass(frozen=True, slots=True)
class RecipeFile:
    """A recipe as its author wrote it."""

    title: str
    grid: Grid
    claims: tuple[Claim, ...]
    preconditions: tuple[Precondition, ...] = ()
    figures: tuple[Figure, ...] = ()


def read_recipe(path: Path) -> RecipeFile:
    """Read and check a recipe; raises UsageError that says which table and key is wrong, and what is near."""
    document = Table(str(path), read_toml(path))
    schema = document.need("schema", str)
    if schema != RECIPE_SCHEMA:
        raise document.fail(f"schema is {schema!r}; this version reads {RECIPE_SCHEMA!r}")
    title = document.need("title", str)
    seeds = take_seeds(document)
    aggregate = _aggregate(document, "mean")
    grid = read_grid(Table(f"{path}: [bench]", document.need("bench", dict)), seeds, path.parent.resolve())
    if not grid.methods or not grid.datasets:
        raise document.fail("[bench] of a recipe names its methods and datasets")
    claims = tuple(_claim(table, grid, aggregate) for table in document.tables("claim"))
    _distinct(document, (claim.id for claim in claims))
    preconditions = tuple(_precondition(table, grid, aggregate, claims) for table in document.tables("precondition"))
    _distinct(document, (item.claim.id for item in preconditions))
    figures = tuple(_figure(table, grid) for table in document.tables("figure"))
    document.done()
    return RecipeFile(title, grid, claims, preconditions, figures)


def _claim(table: Table, grid: Grid, aggregate: Aggregate, finish: bool = True) -> Claim:
    identity = table.need("id", str)
    if not _ID.fullmatch(identity):
        raise table.fail(f"id {identity!r} is not kebab-case")
    claim = Claim(
        id=identity,
        text=table.need("text", str),
        measure=_measure(Table(f"{table.where} measure", table.need("measure", dict)), grid),
        at_least=table.take("at-least", float),
        at_most=table.take("at-most", float),
        paper=table.take("paper", str),
        must=bool(table.take("must", bool, False)),
        strict=bool(table.take("strict", bool, False)),
        aggregate=_aggregate(table, aggregate),
    )
    if claim.at_least is None and claim.at_most is None:
        raise table.fail("'at-least' or 'at-most' is missing: what makes the claim hold?")
    if claim.at_least is not None and claim.at_most is not None and claim.at_least > claim.at_most:
        raise table.fail(f"nothing is at least {claim.at_least} and at most {claim.at_most}")
    if finish:
        table.done()
    return claim


def _precondition(table: Table, grid: Grid, aggregate: Aggregate, claims: tuple[Claim, ...]) -> Precondition:
    claim = _claim(table, grid, aggregate, finish=False)
    guarded = table.strings("claims") or ()
    for name in guarded:
        _known(table, "claims", name, [item.id for item in claims])
    table.done()
    return Precondition(claim, guarded)


def _measure(table: Table, grid: Grid) -> Measure:
    metric = table.need("metric", str)
    if grid.metrics is not None:
        _known(table, "metric", metric.split(".")[0], [name.rpartition("/")[2] for name in grid.metrics])
    labels = [label_of(entry) for entry in grid.methods]
    of = _known(table, "of", table.need("of", str), labels)
    kind = cast(As, table.choice("as", ("value", "ratio", "difference"), "value"))
    over = _over(table, labels, of)
    if kind == "value" and over:
        raise table.fail("'over' goes with as = 'ratio' or 'difference'")
    if kind != "value" and not over:
        raise table.fail(f"'over' is missing: a {kind} to what?")
    datasets = [label_of(entry) for entry in grid.datasets]
    on = table.take("on", str)
    if on is None:
        if len(datasets) > 1:
            raise table.fail(f"'on' is missing: one of {', '.join(datasets)}")
        on = datasets[0]
    _known(table, "on", on, datasets)
    table.done()
    return Measure(metric, of, on, kind, over)


def _over(table: Table, labels: list[str], of: str) -> tuple[str, ...]:
    over = table.raw("over")
    if over is None:
        return ()
    values = [over] if isinstance(over, str) else over
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        raise table.fail("over must be a method's label, an array of labels, or 'best-baseline'")
    if over == BEST_BASELINE:
        return (BEST_BASELINE,)
    for value in values:
        _known(table, "over", value, [*labels, BEST_BASELINE] if isinstance(over, str) else labels)
        if value == of:
            raise table.fail(f"{of!r} is compared with itself")
    return tuple(values)


def _figure(table: Table, grid: Grid) -> Figure:
    on = table.take("on", str)
    figure = Figure(
        x=table.need("x", str),
        y=table.need("y", str),
        by=table.take("by", str, "method") or "method",
        on=None if on is None else _known(table, "on", on, [label_of(entry) for entry in grid.datasets]),
        title=table.take("title", str),
        log=cast('Literal["", "x", "y", "xy"]', table.choice("log", ("", "x", "y", "xy"), "")),
    )
    table.done()
    return figure


def _aggregate(table: Table, default: Aggregate) -> Aggregate:
    return cast(Aggregate, table.choice("aggregate", ("mean", "median"), default))


def _known(table: Table, key: str, name: str, known: list[str]) -> str:
    if name not in known:
        raise table.fail(f"{key} = {name!r} is not part of this bench{nearest(name, known)}")
    return name


def _distinct(document: Table, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UsageError(f"{document.where}: two claims have the id {name!r}")
        seen.add(name)
