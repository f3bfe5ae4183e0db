"""``icml26 run``: one method on one dataset, beside its reference."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from icml26.cli.bench_setting import Device, Memory, Timeout
from icml26.cli.output import console
from icml26.config import Overrides, merge_overrides, parse_settings, read_config_file

_ARROWS = {"lower": "lower is better", "higher": "higher is better", None: ""}


def run(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="A method's name, bare or plugin/name.")],
    dataset: Annotated[
        str | None, typer.Option("--dataset", "-d", help="Dataset; the method's default without it.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="An option of the method; dataset.KEY and metric.NAME.KEY for theirs."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="TOML with [method], [dataset], [metric.NAME].")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", help="A named set of options; 'none' for the paper's defaults.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The run's seed.")] = 0,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="A,B", help="Metrics to score in place of the task's.")
    ] = None,
    device: Device = "cpu",
    threads: Annotated[
        int | None,
        typer.Option("--threads", envvar="ICML26_THREADS", min=1, help="CPU threads; all cores without it."),
    ] = None,
    timeout: Timeout = None,
    memory: Memory = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Tiny settings: does it work at all?")] = False,
    no_reference: Annotated[
        bool, typer.Option("--no-reference", help="Do not run the reference method beside it.")
    ] = False,
    no_save: Annotated[bool, typer.Option("--no-save", help="Do not store the method's output.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder that gets one folder a run.")
    ] = None,
    store: Annotated[Path | None, typer.Option("--store", metavar="FILE", help="The file of records.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show what would run, with all options.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Run a method on a dataset; print its scores beside its reference method's.

    Record, log, figures and stored output are kept in a folder of their own, which is named at the end.
    """
    from icml26.api import run_plan, writable_folder
    from icml26.capture import terminal_stream
    from icml26.cli.progress import ProgressBar
    from icml26.errors import UsageError
    from icml26.executors import cores
    from icml26.home import runs_folder
    from icml26.plan import Choice, Planner, Settings, applicable
    from icml26.plugins import load_catalog
    from icml26.threads import wait_passively
    from icml26.units import parse_duration, parse_size

    wait_passively()
    overrides = merge_overrides(read_config_file(config) if config else Overrides(), parse_settings(settings or []))
    names = None if metrics is None else [name.strip() for name in metrics.split(",") if name.strip()]
    if names == []:
        raise UsageError("--metrics names no metric")
    planner = Planner(
        load_catalog(),
        Settings(
            device=device,
            threads=threads or cores(),
            smoke=smoke,
            save=not no_save,
            timeout_seconds=None if timeout is None else parse_duration(timeout),
            memory_bytes=None if memory is None else parse_size(memory),
        ),
    )
    plan = planner.plan(
        Choice(method, overrides.method, profile),
        Choice(dataset or "", overrides.dataset),
        seed=seed,
        metrics=names,
        metric_config=overrides.metric,
    )
    request = applicable(plan)
    if dry_run:
        if as_json:
            console().json("run", {"requests": [request.to_json()]})
        else:
            console().write(_describe(request.to_json()))
        return
    runs = writable_folder(output or runs_folder())
    with terminal_stream() as terminal:
        bar = ProgressBar(terminal, title=plan.method.name)
        if not quiet:
            for note in plan.notes:
                bar.note(f"note: {note}")
        with _warnings_to(bar):
            result = run_plan(
                planner,
                plan,
                reference=not no_reference,
                output=runs,
                store=store,
                reporter=None if quiet else bar,
                capture=True,
            )
        bar.close()
    if as_json:
        records = [result.record] + ([result.reference.record] if result.reference else [])
        console().json("run", {"records": [record.to_json() for record in records]})
    else:
        from icml26.cli.run_table import run_table

        console().write(run_table(result))
    if not result.record.succeeded and (as_json or not console().terminal):  # a terminal shows it in the table
        console().error(f"{result.record.status}: {(result.record.error or {}).get('message')}")
    raise typer.Exit(_exit_code(result.record.status))


def _exit_code(status: str) -> int:
    return {"succeeded": 0, "refused": 2, "not-applicable": 2}.get(status, 1)


def _describe(request: dict[str, Any]) -> str:
    lines = [f"{request['method']} on {request['dataset']}, seed {request['seed']}"]
    for part in ("config", "dataset_config"):
        lines += [
            f"  {'dataset.' if part == 'dataset_config' else ''}{key} = {value!r}"
            for key, value in request[part].items()
        ]
    return "\n".join([*lines, f"  metrics: {', '.join(request['metrics'])}", f"  key: {request['key']}"])


class _warnings_to:  # noqa: N801 - a context manager that reads as a phrase
    """Show warnings of icml26 and plugins on the terminal while a run goes on."""

    def __init__(self, bar: Any) -> None:
        self.handler = _BarHandler(bar)

    def __enter__(self) -> None:
        logging.getLogger().addHandler(self.handler)
        logging.captureWarnings(True)
        warnings.simplefilter("once", UserWarning)

    def __exit__(self, *exception: object) -> None:
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(self.handler)


class _BarHandler(logging.Handler):
    def __init__(self, bar: Any) -> None:
        super().__init__(logging.WARNING)
        self.bar = bar

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(("icml26", "py.warnings")):
            text = record.getMessage()
            if record.name == "py.warnings":
                text = text.splitlines()[0].partition(": ")[2] or text
            self.bar.note(f"warning: {text}")
