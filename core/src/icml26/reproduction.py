"""Reproduce a recipe: run its bench, judge its claims, keep the result for reports."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from icml26.catalog import Catalog, Recipe, unknown
from icml26.claims import Verdict, judge, verdict_json
from icml26.coordinator import Notice
from icml26.errors import UsageError
from icml26.executors import Executor
from icml26.experiment import Experiment, Figures, plan_experiment
from icml26.home import home_folder
from icml26.keys import jsonable
from icml26.measurement import BenchResult, Stale, run_experiment
from icml26.plan import Planner
from icml26.recipes import RecipeFile, read_recipe
from icml26.records import write_text_durably
from icml26.smallfiles import read_text
from icml26.store import Store

SCHEMA = "icml26.reproduce/1"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What a recipe gave: verdicts of preconditions and claims, the bench behind them, and how long it took."""

    recipe: Recipe
    file: RecipeFile
    preconditions: tuple[Verdict, ...]
    claims: tuple[Verdict, ...]
    bench: BenchResult
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether every claim that must hold does."""
        return all(verdict.state == "holds" for verdict in self.claims if verdict.claim.must)

    def to_json(self, *, records: bool = True) -> dict[str, Any]:
        """The document of ``reproduce --json``; without ``records`` it names them only, which is what reports read."""
        return {
            "recipe": self.recipe.qualified,
            "title": self.file.title,
            "finished": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "claims": [verdict_json(verdict) for verdict in self.claims],
            "preconditions": [verdict_json(verdict) for verdict in self.preconditions],
            "cells": [
                {"method": item.method, "dataset": item.dataset, "seed": item.seed, "record": item.record.id}  # type: ignore[attr-defined]
                for item in self.bench.outcomes
                if item.record is not None
            ],
            "not_applicable": [
                {"method": method, "dataset": dataset, "reason": reason}
                for method, dataset, reason in self.bench.experiment.not_applicable
            ],
            "figures": [dataclasses.asdict(figure) for figure in self.file.figures],
            "records": [record.to_json() for record in self.bench.records] if records else [],
            "seconds": round(self.seconds, 3),
        }

    def to_markdown(self) -> str:
        """The tables as ``reproduce --markdown`` prints them: every row, then preconditions and claims with their verdicts."""
        from icml26.markdown import bench_markdown, claims_markdown

        held = sum(verdict.state == "holds" for verdict in self.claims)
        parts = [f"**{self.file.title}** (`{self.recipe.qualified}`)", bench_markdown(self.bench)]
        if self.preconditions:
            parts.append(claims_markdown("precondition", self.preconditions))
        if self.claims:
            parts += [claims_markdown("claim", self.claims), f"{held} of {len(self.claims)} claims hold."]
        return "\n\n".join(parts)


def find_recipe(catalog: Catalog, name: str) -> Recipe:
    """``plugin`` (its first recipe), ``plugin/recipe``, or the path of a TOML file; raises UsageError with the nearest names."""
    if name.endswith(".toml"):
        path = Path(name).absolute()
        return Recipe("file", path.stem, path.stem, str(path))
    plugin, _, bare = name.rpartition("/")
    distributions = {item.name: item.distribution for item in catalog.plugins}
    for recipe in catalog.recipes:
        owners = (recipe.plugin, distributions.get(recipe.plugin))
        if (not plugin and bare in owners) or (plugin in owners and recipe.name == bare):
            return recipe
    named = [recipe for recipe in catalog.recipes if not plugin and recipe.name == bare]
    if len(named) == 1:
        return named[0]
    known = [recipe.qualified for recipe in catalog.recipes]
    if any(bare in (item.name, item.distribution) for item in catalog.plugins) and not plugin:
        raise UsageError(f"plugin {bare!r} has no recipes; those there are: {', '.join(known) or 'none'}")
    near = unknown("recipe", name, [*known, *distributions]).partition("; see")[0]
    raise UsageError(f"{near}; recipes: {', '.join(known) or 'none'}")


def plan_recipe(
    planner: Planner, recipe: Recipe, *, seeds: tuple[int, ...] | None = None, figures: Figures = "first"
) -> tuple[RecipeFile, Experiment]:
    """Read a recipe and plan its bench; ``seeds`` replace the recipe's."""
    file = read_recipe(Path(recipe.path))
    grid = file.grid if seeds is None else dataclasses.replace(file.grid, seeds=seeds)
    seen_from = None if recipe.plugin == "file" else recipe.plugin
    return file, plan_experiment(planner, grid, seen_from=seen_from, figures=figures)


def run_recipe(
    planner: Planner,
    recipe: Recipe,
    executor: Executor,
    store: Store,
    *,
    runs_folder: Path,
    seeds: tuple[int, ...] | None = None,
    fresh: bool = False,
    stale: Stale = "keep",
    figures: Figures = "first",
    keep: bool = True,
    on_event: Callable[[Notice], None] = lambda notice: None,
) -> Reproduction:
    """Run what the store does not have, judge the claims, and (``keep``) leave the result where reports find it."""
    started = time.perf_counter()
    file, experiment = plan_recipe(planner, recipe, seeds=seeds, figures=figures)
    result = run_experiment(
        experiment, planner, executor, store, runs_folder=runs_folder, fresh=fresh, stale=stale, on_event=on_event
    )
    preconditions, claims = judge(file.claims, file.preconditions, result.outcomes, experiment.seeds)
    reproduction = Reproduction(
        recipe, file, tuple(preconditions), tuple(claims), result, time.perf_counter() - started
    )
    if keep:
        keep_reproduction(reproduction)
    return reproduction


def reproductions_folder() -> Path:
    """Where the last result of each recipe lies."""
    return home_folder() / "reproductions"


def keep_reproduction(reproduction: Reproduction) -> Path:
    """Write the result (without its records) for later reports."""
    folder = reproductions_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{reproduction.recipe.plugin}--{reproduction.recipe.name}.json"
    document = {"schema": SCHEMA, **reproduction.to_json(records=False)}
    write_text_durably(path, json.dumps(jsonable(document), indent=1, allow_nan=False) + "\n")
    return path


def kept_reproductions(folder: Path | None = None) -> Iterator[Mapping[str, Any]]:
    """The kept results; files that cannot be read or are of another schema are passed over."""
    folder = folder or reproductions_folder()
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            document = json.loads(read_text(path))
        except (OSError, ValueError):
            continue
        if isinstance(document, dict) and document.get("schema") == SCHEMA:
            yield document
