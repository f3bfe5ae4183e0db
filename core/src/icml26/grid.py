"""What a bench is to run, as written by its author: methods and datasets with labels and configs, metrics, seeds.

Names are not resolved here; ``plan`` does that against the catalog.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icml26.errors import UsageError
from icml26.plan import Choice
from icml26.strict_toml import Table, read_toml

BENCH_SCHEMA = "icml26.bench-file/1"
MAXIMUM_SEEDS = 100_000

_LABEL = re.compile(r"[^\s:=][^:=\n]{0,79}")


@dataclass(frozen=True, slots=True)
class Grid:
    """All methods × all datasets × all seeds. ``metrics`` None means those of the task and the methods.

    ``folder`` is what relative paths in configs are relative to. With ``task`` and no methods or no datasets, all of the
    task are meant.
    """

    methods: tuple[Choice, ...]
    datasets: tuple[Choice, ...]
    seeds: tuple[int, ...] = (0,)
    metrics: tuple[str, ...] | None = None
    task: str | None = None
    folder: Path | None = None


def parse_seeds(text: str) -> tuple[int, ...]:
    """``"0,1,2"``, ``"0..4"`` (both ends) or a mixture; raises UsageError."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})\s*(?:\.\.\s*(\d{1,18})\s*)?", part)
        if match is None:
            raise UsageError(f"seeds {text!r}: whole numbers are expected, as in 0,1,2 or 0..4")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= MAXIMUM_SEEDS:
            raise UsageError(f"seeds {text!r}: {part.strip()} is not a range of at most {MAXIMUM_SEEDS} seeds")
        seeds.extend(range(first, last + 1))
    return check_seeds(seeds, f"seeds {text!r}")


def check_seeds(seeds: Iterable[Any], where: str) -> tuple[int, ...]:
    """Distinct non-negative integers, at least one; raises UsageError."""
    values = tuple(seeds)
    if not values:
        raise UsageError(f"{where}: at least one seed is needed")
    if any(isinstance(seed, bool) or not isinstance(seed, int) or seed < 0 for seed in values):
        raise UsageError(f"{where}: seeds are whole numbers from 0 on")
    if len(set(values)) != len(values):
        raise UsageError(f"{where}: a seed stands there twice")
    return values


def read_bench(path: Path) -> Grid:
    """A bench file: ``schema = "icml26.bench-file/1"``, ``seeds``, a table ``[bench]`` as in recipes."""
    document = Table(str(path), read_toml(path))
    schema = document.need("schema", str)
    if schema != BENCH_SCHEMA:
        raise document.fail(f"schema is {schema!r}; this version reads {BENCH_SCHEMA!r}")
    document.take("title", str)
    seeds = take_seeds(document, default=(0,))
    grid = read_grid(Table(f"{path}: [bench]", document.need("bench", dict)), seeds, path.parent.resolve())
    document.done()
    return grid


def take_seeds(document: Table, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """``seeds`` of a document: an array, or a string as on the command line; required without a default."""
    seeds = document.raw("seeds")
    if isinstance(seeds, str):
        return parse_seeds(seeds)
    if seeds is None:
        if default is None:
            raise document.fail("'seeds' is missing (an array of whole numbers)")
        return default
    if not isinstance(seeds, list):
        raise document.fail("seeds must be an array of whole numbers, or a string as '0..4'")
    return check_seeds(seeds, f"{document.where}: seeds")


def read_grid(table: Table, seeds: tuple[int, ...], folder: Path | None) -> Grid:
    """The ``[bench]`` table: ``methods``, ``datasets``, optional ``metrics``, optional ``task``."""
    task = table.take("task", str)
    methods = _entries(table, "methods", required=task is None, profiles=True)
    datasets = _entries(table, "datasets", required=task is None, profiles=False)
    metrics = table.strings("metrics")
    table.done()
    return Grid(methods, datasets, seeds, metrics, task, folder)


def choice_from_argument(argument: str) -> Choice:
    """``NAME`` or ``LABEL=NAME`` on the command line."""
    label, separator, name = argument.rpartition("=")
    if not separator:
        label = argument
    if not name or not _LABEL.fullmatch(label):
        raise UsageError(f"{argument!r}: NAME or LABEL=NAME is expected")
    return Choice(name, label=label)


def label_of(choice: Choice) -> str:
    """What tables call a choice: its label, else its name."""
    return choice.label or choice.name


def unique_labels(entries: Iterable[Choice], where: str) -> tuple[Choice, ...]:
    """The entries, unless two have one label; then UsageError says how to tell them apart."""
    found: dict[str, Choice] = {}
    for entry in entries:
        label = label_of(entry)
        if label in found:
            raise UsageError(f"{where}: {label!r} stands there twice; give one of them another label (`as`)")
        found[label] = entry
    return tuple(found.values())


def choices(values: Iterable[Any], where: str, *, profiles: bool) -> tuple[Choice, ...]:
    """Choices from names, tables as in recipes, or Choices; raises UsageError for anything else and for equal labels."""
    found: list[Choice] = []
    for number, value in enumerate(values, start=1):
        if isinstance(value, Choice):
            found.append(value)
        else:
            table = Table(f"{where} {number}", {"name": value} if isinstance(value, str) else value)
            found.extend(_entry(table, profiles))
    return unique_labels(found, where)


def _entries(table: Table, key: str, *, required: bool, profiles: bool) -> tuple[Choice, ...]:
    values = table.need(key, list) if required else table.take(key, list, [])
    assert values is not None
    if required and not values:
        raise table.fail(f"{key} is empty")
    return choices(values, f"{table.where} {key}", profiles=profiles)


def _entry(table: Table, profiles: bool) -> list[Choice]:
    """One entry, or one for each combination of ``sweep = {key = [values]}``."""
    name = table.need("name", str)
    label = table.take("as", str, name)
    config = table.take("config", dict, {})
    sweep = table.take("sweep", dict, {})
    profile = table.take("profile", str) if profiles else None
    table.done()
    assert label is not None and config is not None and sweep is not None
    if not name or not _LABEL.fullmatch(label):
        raise table.fail(f"{label!r} cannot be a label (1 to 80 characters without ':' and '=')")
    for key, values in sweep.items():
        if not isinstance(values, list) or not values:
            raise table.fail(f"sweep.{key} must be a non-empty array of values")
        if key in config:
            raise table.fail(f"{key!r} stands in config and in sweep")
    if not sweep:
        return [Choice(name, config, profile, label)]
    return [
        Choice(
            name,
            {**config, **dict(zip(sweep, values, strict=True))},
            profile,
            f"{label} ({', '.join(f'{key} {_short(value)}' for key, value in zip(sweep, values, strict=True))})",
        )
        for values in itertools.product(*sweep.values())
    ]


def _short(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
