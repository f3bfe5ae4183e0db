"""``icml26 reproduce``: run a recipe's bench and say which claims hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from icml26.cli import bench_setting as options

if TYPE_CHECKING:
    from icml26.reproduction import Reproduction


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A plugin (its first recipe), plugin/recipe, or a recipe's file.")
    ],
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="0..4", help="Seeds in place of the recipe's.")
    ] = None,
    jobs: options.Jobs = 1,
    executor: options.ExecutorName = "local",
    device: options.Device = "cpu",
    threads: options.Threads = None,
    timeout: options.Timeout = None,
    memory: options.Memory = None,
    smoke: options.Smoke = False,
    save: options.Save = False,
    figures: options.FiguresOption = "first",
    fresh: options.Fresh = False,
    stale: options.StaleOption = "keep",
    output: options.OutputFolder = None,
    store: options.StoreFile = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure each claim of a recipe: holds, does not hold, void, or not measured, beside the paper's own number.

    Runs that the store has are reused (--fresh measures anew). The result is kept for `icml26 report`, unless --seeds or
    --smoke made it another experiment than the recipe's.
    """
    from icml26.cli.bench import exit_code, show_plan, tell_stale
    from icml26.cli.output import console
    from icml26.grid import parse_seeds
    from icml26.reproduction import find_recipe, plan_recipe, run_recipe

    setting = options.Setting(
        jobs, executor, device, threads, timeout, memory, smoke, save, fresh, stale, figures, output, store, quiet
    )
    planner = setting.planner()
    recipe = find_recipe(planner.catalog, name)
    chosen = None if seeds is None else parse_seeds(seeds)
    _, experiment = plan_recipe(planner, recipe, seeds=chosen, figures=figures)  # type: ignore[arg-type]
    if dry_run:
        show_plan(experiment, setting, as_json)
        return
    if not experiment.requests:
        console().error(f"{recipe.qualified}: none of its methods fits any of its datasets")
        raise typer.Exit(5)
    with options.opened(setting, experiment, recipe.qualified) as (records, runner, listener):
        done = run_recipe(
            planner,
            recipe,
            runner,
            records,
            runs_folder=setting.runs_path,
            seeds=chosen,
            fresh=fresh,
            stale=stale,  # type: ignore[arg-type]
            figures=figures,  # type: ignore[arg-type]
            keep=chosen is None and not smoke,
            on_event=listener,
        )
    tell_stale(done.bench)
    if as_json:
        console().json("reproduce", done.to_json())
    else:
        _show(done)
    raise typer.Exit(exit_code(done.bench) or (0 if done.holds else 1))


def _show(done: Reproduction) -> None:
    from icml26.cli.bench_tables import show_bench, show_claims
    from icml26.cli.output import console

    output = console()
    if output.terminal:
        output.write(output.style(done.file.title, "bold"))
        output.write("")
        show_bench(done.bench, output)
    show_claims("preconditions", done.preconditions, output)
    show_claims("claims", done.claims, output)
    held = sum(verdict.state == "holds" for verdict in done.claims)
    output.note(f"{held} of {len(done.claims)} claims hold, {len(done.bench.records)} runs, {done.seconds:.0f} s")
