"""Options that ``bench`` and ``reproduce`` share, and what they open: planner, store, executor, live table."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from icml26.coordinator import Notice
    from icml26.executors import Executor
    from icml26.experiment import Experiment
    from icml26.plan import Planner
    from icml26.store import Store

Jobs = Annotated[int, typer.Option("--jobs", "-j", envvar="ICML26_JOBS", min=1, max=1024, help="Runs side by side.")]
ExecutorName = Annotated[
    str, typer.Option("--executor", envvar="ICML26_EXECUTOR", metavar="NAME", help="local, env, dask:ADDRESS or slurm.")
]
Device = Annotated[str, typer.Option("--device", envvar="ICML26_DEVICE", help="cpu, cuda, mps or auto.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", envvar="ICML26_THREADS", min=1, help="CPU threads a run; cores ÷ jobs without it."),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout", envvar="ICML26_TIMEOUT", metavar="TIME", help="End each run after this long, e.g. 30s, 10m, 1h30m."
    ),
]
Memory = Annotated[
    str | None,
    typer.Option("--memory", envvar="ICML26_MEMORY", metavar="SIZE", help="End each run that holds more, e.g. 4GiB."),
]
Smoke = Annotated[bool, typer.Option("--smoke", help="Tiny settings: does it work at all?")]
Save = Annotated[bool, typer.Option("--save", help="Store every method's output (for `results rescore`).")]
FiguresOption = Annotated[
    str, typer.Option("--figures", metavar="first|all|none", help="For which seeds methods draw.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure everything anew; nothing is taken from the store.")]
StaleOption = Annotated[
    str, typer.Option("--stale", metavar="keep|rerun", help="What to do with runs that other versions measured.")
]
OutputFolder = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder that gets one folder a run.")
]
StoreFile = Annotated[Path | None, typer.Option("--store", metavar="FILE", help="The file of records.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Show what would run and what is there already.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="The tables as Markdown on standard output, as they stand in a README.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


@dataclass(frozen=True, slots=True)
class Setting:
    """How runs are made and shown, as the options say."""

    jobs: Jobs = 1
    executor: ExecutorName = "local"
    device: Device = "cpu"
    threads: Threads = None
    timeout: Timeout = None
    memory: Memory = None
    smoke: Smoke = False
    save: Save = False
    figures: FiguresOption = "first"
    fresh: Fresh = False
    stale: StaleOption = "keep"
    output: OutputFolder = None
    store: StoreFile = None
    dry_run: DryRun = False
    as_json: Json = False
    markdown: Markdown = False
    quiet: Quiet = False

    def check(self) -> None:
        """Refuse wrong words before any work."""
        from icml26.errors import UsageError

        if self.as_json and self.markdown:
            raise UsageError("--json and --markdown: standard output has one form")
        if self.dry_run and self.markdown:
            raise UsageError("--dry-run measures nothing, so there are no tables for --markdown")
        if self.stale not in ("keep", "rerun"):
            raise UsageError(f"--stale {self.stale!r}; allowed: keep, rerun")
        if self.figures not in ("first", "all", "none"):
            raise UsageError(f"--figures {self.figures!r}; allowed: first, all, none")

    def planner(self) -> Planner:
        """A planner on everything installed."""
        from icml26.api_bench import planner_of
        from icml26.units import parse_duration, parse_size

        self.check()
        timeout = None if self.timeout is None else parse_duration(self.timeout)
        memory = None if self.memory is None else parse_size(self.memory)
        return planner_of(self.jobs, self.device, self.threads, timeout, memory, self.smoke, self.save)

    @property
    def store_path(self) -> Path:
        """The file of records."""
        from icml26.home import store_file

        return self.store or store_file()

    @property
    def runs_path(self) -> Path:
        """The folder of runs."""
        from icml26.home import runs_folder

        return (self.output or runs_folder()).absolute()


def takes_setting(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter ``setting`` is replaced by the options of ``Setting``, after its own."""
    shared = [field.name for field in fields(Setting)]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        command(setting=Setting(**{name: given.pop(name) for name in shared}), **given)

    hints = {**get_type_hints(command, include_extras=True), **get_type_hints(Setting, include_extras=True)}
    own = [item for item in inspect.signature(command).parameters.values() if item.name != "setting"]
    options = [*own, *inspect.signature(Setting).parameters.values()]
    with_options.__annotations__ = {item.name: hints[item.name] for item in options} | {"return": None}
    with_options.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [item.replace(annotation=hints[item.name], kind=inspect.Parameter.KEYWORD_ONLY) for item in options]
    )
    return with_options


@contextmanager
def opened(
    setting: Setting, experiment: Experiment, title: str
) -> Iterator[tuple[Store, Executor, Callable[[Notice], None]]]:
    """The store, the executor and the listener of a bench; everything is closed again, whatever happens."""
    import sys

    from icml26.api_bench import opened as opened_runs
    from icml26.cli.live import LiveTable

    table = LiveTable(experiment, sys.stderr, title=title)
    listener: Callable[[Notice], None] = (lambda notice: None) if setting.quiet else table
    try:
        with opened_runs(setting.executor, setting.jobs, setting.output, setting.store) as (store, executor, _):
            yield store, executor, listener
    finally:
        if not setting.quiet:
            table.close()
