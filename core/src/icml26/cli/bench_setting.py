"""Options that ``bench`` and ``reproduce`` share, and what they open: planner, store, executor, live table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


@dataclass(frozen=True, slots=True)
class Setting:
    """How runs are made, as the options say."""

    jobs: int = 1
    executor: str = "local"
    device: str = "cpu"
    threads: int | None = None
    timeout: str | None = None
    memory: str | None = None
    smoke: bool = False
    save: bool = False
    fresh: bool = False
    stale: str = "keep"
    figures: str = "first"
    output: Path | None = None
    store: Path | None = None
    quiet: bool = False

    def check(self) -> None:
        """Refuse wrong words before any work."""
        from icml26.errors import UsageError

        if self.stale not in ("keep", "rerun"):
            raise UsageError(f"--stale {self.stale!r}; allowed: keep, rerun")
        if self.figures not in ("first", "all", "none"):
            raise UsageError(f"--figures {self.figures!r}; allowed: first, all, none")

    def planner(self) -> Planner:
        """A planner on everything installed."""
        from icml26.executors import threads_for
        from icml26.plan import Planner, Settings
        from icml26.plugins import load_catalog
        from icml26.units import parse_duration, parse_size

        self.check()
        settings = Settings(
            device=self.device,
            threads=self.threads or threads_for(self.jobs),
            workers=self.jobs,
            smoke=self.smoke,
            save=self.save,
            timeout_seconds=None if self.timeout is None else parse_duration(self.timeout),
            memory_bytes=None if self.memory is None else parse_size(self.memory),
        )
        return Planner(load_catalog(), settings)

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


@contextmanager
def opened(
    setting: Setting, experiment: Experiment, title: str
) -> Iterator[tuple[Store, Executor, Callable[[Notice], None]]]:
    """The store, the executor and the listener of a bench; everything is closed again, whatever happens."""
    import sys

    from icml26.cli.live import LiveTable
    from icml26.executors import open_executor
    from icml26.store import Store

    table = LiveTable(experiment, sys.stderr, title=title)
    listener: Callable[[Notice], None] = (lambda notice: None) if setting.quiet else table
    with Store.open(setting.store_path) as store:
        executor = open_executor(setting.executor, workers=setting.jobs, folder=setting.runs_path / ".jobs")
        try:
            yield store, executor, listener
        finally:
            executor.close()
            if not setting.quiet:
                table.close()
