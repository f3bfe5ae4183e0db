"""``icml26 reproduce``: run a recipe's bench and say which claims hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from icml26.cli import bench_setting as options

if TYPE_CHECKING:
    from icml26.reproduction import Reproduction


@options.takes_setting
def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A plugin (its first recipe), plugin/recipe, or a recipe's file.")
    ],
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="0..4", help="Seeds in place of the recipe's.")
    ] = None,
    *,
    setting: options.Setting,
) -> None:
    """Measure each claim of a recipe: holds, does not hold, void, or not measured, beside the paper's own number.

    Runs that the store has are reused (--fresh measures anew). The result is kept for `icml26 report`, unless --seeds or
    --smoke made it another experiment than the recipe's.
    """
    from icml26.cli.bench import exit_code, show_plan, tell_stale
    from icml26.cli.bench_tables import show_failures
    from icml26.cli.output import console
    from icml26.grid import parse_seeds
    from icml26.reproduction import find_recipe, plan_recipe, run_recipe

    planner = setting.planner()
    recipe = find_recipe(planner.catalog, name)
    chosen = None if seeds is None else parse_seeds(seeds)
    _, experiment = plan_recipe(planner, recipe, seeds=chosen, figures=setting.figures)  # type: ignore[arg-type]
    if setting.dry_run:
        show_plan(experiment, setting)
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
            fresh=setting.fresh,
            stale=setting.stale,  # type: ignore[arg-type]
            figures=setting.figures,  # type: ignore[arg-type]
            keep=chosen is None and not setting.smoke,
            on_event=listener,
        )
    tell_stale(done.bench)
    if setting.as_json:
        console().json("reproduce", done.to_json())
    elif setting.markdown:
        console().write(done.to_markdown())
        show_failures(done.bench.failures, console())
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
