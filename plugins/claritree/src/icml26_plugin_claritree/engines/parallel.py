"""Independent compiled tasks on threads: the kernels release the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from icml26_plugin_claritree.search import Budget


def run_tasks(tasks: Iterable[Callable[[], None]], n_threads: int, budget: Budget) -> None:
    """Run all tasks; an error or an interrupt stops the kernels that watch the budget's flag, then is raised."""
    if n_threads <= 1:
        for task in tasks:
            task()
        return
    with ThreadPoolExecutor(n_threads) as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            for future in futures:
                future.result()
        except BaseException:
            budget.stop()
            for future in futures:
                future.cancel()
            raise
