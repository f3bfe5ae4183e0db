"""The Python API for many runs: ``icml26.bench`` and ``icml26.reproduce``, as the command line has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from icml26.catalog import Catalog
from icml26.coordinator import Notice
from icml26.errors import UsageError
from icml26.executors import Executor, open_executor, threads_for
from icml26.experiment import Figures, plan_experiment
from icml26.grid import Grid, check_seeds, choices
from icml26.home import runs_folder, store_file
from icml26.measurement import BenchResult, Stale, run_experiment
from icml26.plan import Choice, Planner, Settings
from icml26.plugins import load_catalog
from icml26.reproduction import Reproduction, find_recipe, run_recipe
from icml26.store import Store

Named: TypeAlias = str | Mapping[str, Any] | Choice


def _silent(notice: Notice) -> None:
    """Hear nothing."""


def bench(
    methods: Iterable[Named] = (),
    datasets: Iterable[Named] = (),
    *,
    task: str | None = None,
    seeds: Iterable[int] = (0,),
    metrics: Iterable[str] | None = None,
    metric_config: Mapping[str, Mapping[str, Any]] | None = None,
    jobs: int = 1,
    executor: str = "local",
    device: str = "cpu",
    threads: int | None = None,
    timeout: float | None = None,
    memory: int | None = None,
    smoke: bool = False,
    save: bool = False,
    figures: Figures = "first",
    fresh: bool = False,
    stale: Stale = "keep",
    output: Path | str | None = None,
    store: Path | str | None = None,
    on_event: Callable[[Notice], None] = _silent,
    catalog: Catalog | None = None,
) -> BenchResult:
    """Run every method on every dataset for every seed, in worker processes; what the store has is reused.

    Args:
        methods, datasets: names, ``{"name", "as", "config", "profile", "sweep"}`` as in recipes, or Choices. Without datasets
            the methods' defaults, with ``task`` alone everything of the task.
        seeds: distinct non-negative integers. ``metrics`` replaces the union of the methods' metrics.
        jobs: runs side by side; ``executor``: ``"local"``, ``"dask:ADDRESS"`` or ``"slurm"``.
        timeout, memory: limits of a run in seconds and bytes.
        save: store outputs; ``figures``: for which seeds methods draw (``"first"``, ``"all"``, ``"none"``).
        fresh: measure everything anew; ``stale="rerun"``: measure anew what other versions measured.
        output, store: the folder of runs and the file of records (default: ``ICML26_HOME``'s).
        on_event: hears what happens, for progress.

    Raises UsageError for wrong names and configs, NotApplicable pairs are rows with a reason. A run that fails is a record.
    """
    planner = planner_of(jobs, device, threads, timeout, memory, smoke, save, catalog)
    grid = Grid(
        choices(methods, "methods", profiles=True),
        choices(datasets, "datasets", profiles=False),
        check_seeds(seeds, "seeds"),
        None if metrics is None else tuple(metrics),
        task,
    )
    experiment = plan_experiment(planner, grid, metric_config=metric_config, figures=figures)
    with opened(executor, jobs, output, store) as (records, runner, runs):
        return run_experiment(
            experiment, planner, runner, records, runs_folder=runs, fresh=fresh, stale=stale, on_event=on_event
        )


def reproduce(
    name: str,
    *,
    seeds: Iterable[int] | None = None,
    jobs: int = 1,
    executor: str = "local",
    device: str = "cpu",
    threads: int | None = None,
    timeout: float | None = None,
    memory: int | None = None,
    smoke: bool = False,
    save: bool = False,
    figures: Figures = "first",
    fresh: bool = False,
    stale: Stale = "keep",
    output: Path | str | None = None,
    store: Path | str | None = None,
    on_event: Callable[[Notice], None] = _silent,
    catalog: Catalog | None = None,
) -> Reproduction:
    """Run a recipe (``"plugin"``, ``"plugin/recipe"`` or a file) and judge its claims; options as for ``bench``."""
    planner = planner_of(jobs, device, threads, timeout, memory, smoke, save, catalog)
    recipe = find_recipe(planner.catalog, name)
    chosen = None if seeds is None else check_seeds(seeds, "seeds")
    with opened(executor, jobs, output, store) as (records, runner, runs):
        return run_recipe(
            planner,
            recipe,
            runner,
            records,
            runs_folder=runs,
            seeds=chosen,
            fresh=fresh,
            stale=stale,
            figures=figures,
            keep=chosen is None and not smoke,
            on_event=on_event,
        )


def planner_of(
    jobs: int,
    device: str,
    threads: int | None,
    timeout: float | None,
    memory: int | None,
    smoke: bool,
    save: bool,
    catalog: Catalog | None = None,
) -> Planner:
    """A planner of runs that are made so, on everything installed; raises UsageError for less than one job."""
    if jobs < 1:
        raise UsageError(f"jobs = {jobs}: at least 1")
    settings = Settings(
        device=device,
        threads=threads or threads_for(jobs),
        workers=jobs,
        smoke=smoke,
        save=save,
        timeout_seconds=timeout,
        memory_bytes=memory,
    )
    return Planner(catalog or load_catalog(), settings)


@contextmanager
def opened(
    executor: str, jobs: int, output: Path | str | None, store: Path | str | None
) -> Iterator[tuple[Store, Executor, Path]]:
    """The store, the executor and the absolute folder of runs; closed again, whatever happens."""
    runs = (Path(output) if output is not None else runs_folder()).absolute()
    with Store.open(Path(store) if store is not None else store_file()) as records:
        runner = open_executor(executor, workers=jobs, folder=runs / ".jobs")
        try:
            yield records, runner, runs
        finally:
            runner.close()
