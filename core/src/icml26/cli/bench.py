"""``icml26 bench``: methods × datasets × seeds, resumed, tabulated, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icml26.cli import bench_setting as options

if TYPE_CHECKING:
    from icml26.experiment import Experiment
    from icml26.grid import Grid
    from icml26.measurement import BenchResult


@options.takes_setting
def bench(
    methods: Annotated[
        list[str] | None,
        typer.Argument(metavar="[METHOD|LABEL=METHOD]... | FILE.toml", help="Methods, or a file with a whole bench."),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="All methods and datasets of a task.")
    ] = None,
    datasets: Annotated[
        list[str] | None,
        typer.Option("--dataset", "-d", metavar="[LABEL=]NAME", help="A dataset; the methods' defaults without any."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="0..4", help="Seeds: 0,1,2 or 0..4 (both ends).")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="A,B", help="Metrics to score in place of the default union.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="LABEL:KEY=VALUE", help="An option of a method or dataset; metric.NAME.KEY=VALUE."
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", help="For every method that has it; 'none' for the papers' defaults.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="LABEL", help="Whom the others are compared with.")
    ] = None,
    *,
    setting: options.Setting,
) -> None:
    """Run every method on every dataset for every seed; print means with intervals and paired differences.

    What the store has already is not run again: the same command resumes after an interruption. A run that fails is a row
    of its own end; pairs that do not fit are shown as – with the reason.
    """
    from icml26.cli.bench_tables import show_bench, show_failures
    from icml26.cli.output import console
    from icml26.errors import UsageError
    from icml26.experiment import plan_experiment
    from icml26.measurement import run_experiment
    from icml26.strict_toml import nearest

    planner = setting.planner()
    grid, metric_config = grid_of(planner, methods or [], datasets or [], task, seeds, metrics, settings or [], profile)
    experiment = plan_experiment(planner, grid, metric_config=metric_config, figures=setting.figures)  # type: ignore[arg-type]
    labels = list(dict.fromkeys(cell.method for cell in experiment.cells))
    if baseline is not None and baseline not in labels:
        raise UsageError(f"--baseline {baseline!r} is no method of this bench{nearest(baseline, labels)}")
    if setting.dry_run:
        show_plan(experiment, setting)
        return
    if not experiment.requests:
        for method, dataset, reason in experiment.not_applicable:
            console().note(f"– {method} on {dataset}: {reason}")
        console().error("no method fits any of these datasets")
        raise typer.Exit(5)
    if not setting.quiet:
        for note in experiment.notes:
            console().note(f"note: {note}")
    with options.opened(setting, experiment, "bench") as (records, runner, listener):
        result = run_experiment(
            experiment,
            planner,
            runner,
            records,
            runs_folder=setting.runs_path,
            fresh=setting.fresh,
            stale=setting.stale,  # type: ignore[arg-type]
            on_event=listener,
        )
    tell_stale(result)
    if setting.as_json:
        console().json("bench", result.to_json(baseline))
    elif setting.markdown:
        console().write(result.to_markdown())
        show_failures(result.failures, console())
    else:
        show_bench(result, console(), baseline)
    raise typer.Exit(exit_code(result))


def grid_of(
    planner: Any,
    methods: Sequence[str],
    datasets: Sequence[str],
    task: str | None,
    seeds: str | None,
    metrics: str | None,
    settings: Sequence[str],
    profile: str | None,
) -> tuple[Grid, Mapping[str, Mapping[str, Any]]]:
    """The grid that a command line describes, with options of metrics."""
    from dataclasses import replace

    from icml26.errors import UsageError
    from icml26.grid import Grid, choice_from_argument, parse_seeds, read_bench

    names = None if metrics is None else tuple(name.strip() for name in metrics.split(",") if name.strip())
    if names == ():
        raise UsageError("--metrics names no metric")
    files = [name for name in methods if name.endswith(".toml")]
    if files and (len(methods) > 1 or datasets or task):
        raise UsageError(f"{files[0]} describes a whole bench; methods, --dataset and --task do not go with it")
    if files:
        grid = read_bench(Path(files[0]))
    else:
        chosen = [tuple(choice_from_argument(name) for name in group) for group in (methods, datasets)]
        grid = Grid(chosen[0], chosen[1], (0,), None, task)
    if seeds is not None:
        grid = replace(grid, seeds=parse_seeds(seeds))
    if names is not None:
        grid = replace(grid, metrics=names)
    grid = expanded(planner, grid)
    grid, metric_config = apply_settings(grid, settings)
    return with_profile(planner, grid, profile), metric_config


def expanded(planner: Any, grid: Grid) -> Grid:
    """The grid with the methods of its task named, so that options can be set for them."""
    from dataclasses import replace

    from icml26.experiment import all_choices

    if grid.task is None or grid.methods:
        return grid
    planner.catalog.task(grid.task)
    return replace(grid, methods=all_choices(planner.catalog.of_kind("method", task=grid.task)))


def apply_settings(grid: Grid, settings: Sequence[str]) -> tuple[Grid, Mapping[str, Mapping[str, Any]]]:
    """``LABEL:KEY=VALUE`` for a method or dataset, ``metric.NAME.KEY=VALUE``; bare keys where there is only one method."""
    from dataclasses import replace

    from icml26.config import merge, parse_settings
    from icml26.errors import UsageError
    from icml26.grid import label_of
    from icml26.strict_toml import nearest

    parts: dict[str, list[Any]] = {"methods": list(grid.methods), "datasets": list(grid.datasets)}
    metric: dict[str, Any] = {}
    for setting in settings:
        address = setting.partition("=")[0]
        label, colon, _ = address.partition(":")
        overrides = parse_settings([setting[len(label) + 1 :] if colon else setting])
        metric = merge(metric, overrides.metric)
        for kind, given in (("methods", overrides.method), ("datasets", overrides.dataset)):
            if not given:
                continue
            if colon:
                kinds = [name for name, choices in parts.items() if any(label_of(c) == label for c in choices)]
                if len(kinds) != 1:
                    labels = [label_of(choice) for choices in parts.values() for choice in choices]
                    reason = (
                        "is a method's and a dataset's label"
                        if kinds
                        else f"is no label of this bench{nearest(label, labels)}"
                    )
                    raise UsageError(f"--set {setting!r}: {label!r} {reason}")
                kind = kinds[0]
            elif len(parts[kind]) != 1:
                labels = [label_of(choice) for choice in parts[kind]] or [f"{kind[:-1].upper()}"]
                bare = setting.removeprefix("dataset.").removeprefix("method.")
                raise UsageError(f"--set {setting!r}: say whose option it is, e.g. --set {labels[-1]}:{bare}")
            parts[kind] = [
                replace(choice, config=merge(choice.config, given))
                if not colon or label_of(choice) == label
                else choice
                for choice in parts[kind]
            ]
    return replace(grid, methods=tuple(parts["methods"]), datasets=tuple(parts["datasets"])), metric


def with_profile(planner: Any, grid: Grid, profile: str | None) -> Grid:
    """The profile for every method that has it and named none itself; raises UsageError when nobody has it."""
    from dataclasses import replace

    from icml26.errors import UsageError

    if profile is None:
        return grid
    methods = []
    for choice in grid.methods:
        entry = planner.catalog.find("method", choice.name)
        fits = profile == "none" or profile in entry.spec.profiles
        methods.append(replace(choice, profile=profile) if fits and choice.profile is None else choice)
    if not any(choice.profile == profile for choice in methods):
        raise UsageError(f"none of these methods has a profile {profile!r}")
    return replace(grid, methods=tuple(methods))


def show_plan(experiment: Experiment, setting: options.Setting) -> None:
    """What a bench would run, what is there already, what does not apply."""
    from collections import Counter

    from icml26.cli.output import console
    from icml26.store import Store

    known: set[str] = set()
    if not setting.fresh:
        with Store.open(setting.store_path, readonly=True) as store:
            known = set(store.find_runs(experiment.requests))
    if setting.as_json:
        body = {
            "runs": [{**request.to_json(), "stored": key in known} for key, request in experiment.requests.items()],
            "not_applicable": [
                {"method": method, "dataset": dataset, "reason": reason}
                for method, dataset, reason in experiment.not_applicable
            ],
        }
        console().json("bench-plan", body)
        return
    total: Counter[tuple[str, str]] = Counter()
    there: Counter[tuple[str, str]] = Counter()
    for cell in experiment.cells:
        if cell.request is not None:
            total[cell.method, cell.dataset] += 1
            there[cell.method, cell.dataset] += cell.request.key in known
    lines = [
        [method, dataset, str(count - there[method, dataset]), str(there[method, dataset]), ""]
        for (method, dataset), count in total.items()
    ]
    lines += [[method, dataset, "–", "–", reason] for method, dataset, reason in experiment.not_applicable]
    console().table(["method", "dataset", "to run", "stored", ""], lines)
    missing = len(experiment.requests) - len(known)
    console().note(f"{missing} runs to make, {len(known)} in the store")


def tell_stale(result: BenchResult) -> None:
    """Say that some runs were measured by other versions."""
    from icml26.cli.output import console

    if result.stale:
        console().warn(
            f"{len(result.stale)} runs from the store were measured by other versions ({result.stale[0].partition(': ')[2]}); "
            "--stale rerun measures them anew"
        )


def exit_code(result: BenchResult) -> int:
    """0, or 1 when a run failed or was refused after another ran, or 2 when all were refused."""
    ends = {
        outcome.record.status if outcome.record is not None else "not run"
        for outcome in result.outcomes
        if outcome.applicable
    }
    if ends == {"refused"}:
        return 2
    return 0 if ends <= {"succeeded"} else 1
