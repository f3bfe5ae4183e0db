"""A bench of the lab in a process of its own, for tests that interrupt or kill it.

``python lab_bench.py STORE RUNS PYTHON JOBS COUNT SECONDS [DEED [PATH]]``
"""

from __future__ import annotations

import sys
from pathlib import Path

from icml26.coordinator import Interrupted, Recorded, run_all
from icml26.errors import Icml26Error
from icml26.executors.local import LocalExecutor
from icml26.records import RunRequest
from icml26.store import Store
from lab_environment import mischief, request


def requests(count: int, seconds: float, deed: str = "", path: str = "") -> list[RunRequest]:
    """The grid: ``count`` seeds over two methods, over one deed, or a mixture with runs stuck in C and with grandchildren."""
    if deed == "mixed":
        quick = [request(("noop", "other")[seed % 2], seed=seed, config={"seconds": seconds}) for seed in range(count)]
        stuck = [mischief("sleep-in-c", 0.4, seed=seed) for seed in range(count // 8)]
        forking = [mischief("double-fork", 1, f"{path}-{seed}", seed=seed) for seed in range(count // 8)]
        return [*forking, *quick[: count // 2], *stuck, *quick[count // 2 :]]
    if deed:
        return [mischief(deed, seconds, path, seed=seed) for seed in range(count)]
    return [request(("noop", "other")[seed % 2], seed=seed, config={"seconds": seconds}) for seed in range(count)]


def main(store: str, runs: str, python: str, jobs: str, count: str, seconds: str, *deed: str) -> int:
    """Run the grid; the exit code is that of the command line."""
    executor = LocalExecutor(int(jobs))

    def tell(notice: object) -> None:
        if isinstance(notice, Recorded) and not notice.reused:
            print(f"recorded {notice.record.id}", flush=True)

    try:
        with Store.open(Path(store)) as opened:
            asked = requests(int(count), float(seconds), *deed)
            summary = run_all(
                asked, executor, opened, runs_folder=Path(runs), python=lambda item: python, on_event=tell
            )
        print(f"done {len(summary.records)} reused {len(summary.reused)}", flush=True)
        return 0
    except Interrupted as error:
        print(error, file=sys.stderr, flush=True)
        return error.exit_code
    except KeyboardInterrupt:
        return 131
    except Icml26Error as error:
        print(error, file=sys.stderr, flush=True)
        return error.exit_code
    finally:
        executor.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
