"""Kill a bench at random moments, again and again, and look for lost, damaged or doubled runs and for orphans.

    python core/benchmarks/kill_bench.py [--kills 50] [--seed 0]

Each bench is a grid of runs that sleep, are stuck in C (ignoring SIGTERM), or leave a double-forked grandchild. Every kill is
a SIGKILL to the coordinator, a guardian, a worker or the whole tree, after a random time, on a fresh store or while an
earlier bench is being resumed, half of them while the store is locked so that finished runs wait as files. After each: every
``record.json`` is whole; within 10 s of the coordinator's death no process of the bench lives; and in the end the rerun starts
exactly the runs that have no succeeded record, and each key has one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from icml26.processes import children, descendants, process_started, token_of, with_token  # noqa: E402
from icml26.records import RunRecord  # noqa: E402
from icml26.store import Store  # noqa: E402
from lab_environment import make_environment  # noqa: E402

COUNT = 24
TOTAL = COUNT + 2 * (COUNT // 8)
VICTIMS = ("coordinator", "guardian", "worker", "tree")


@dataclass
class Tally:
    """What was seen."""

    kills: dict[str, int] = field(default_factory=dict)
    missed: int = 0
    resumed_kills: int = 0
    kills_with_backlog: int = 0
    slowest_orphan_seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


class Lab:
    """One store and its benches."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder, self.python = folder, python
        folder.mkdir()

    def start(self) -> subprocess.Popen[str]:
        arguments = [self.folder / "store.sqlite3", self.folder / "runs", self.python, 2, COUNT, 0.05, "mixed"]
        command = [sys.executable, TESTS / "lab_bench.py", *arguments, self.folder / "pid"]
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "ICML26_HOME": str(self.folder / "home")}
        return subprocess.Popen(
            [str(item) for item in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )

    def records(self) -> list[RunRecord]:
        """All record files; raises StoreError for a damaged one."""
        return [RunRecord.read(path) for path in (self.folder / "runs").glob("*/record.json")]

    def lock(self) -> sqlite3.Connection | None:
        """Lock the store for a while, so that finished runs pile up as files; None when that is not possible now."""
        path = self.folder / "store.sqlite3"
        if not path.exists():
            return None
        connection = sqlite3.connect(path, isolation_level=None, timeout=1.0)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            connection.close()
            return None
        time.sleep(0.5)
        return connection

    def backlog(self) -> int:
        """How many record files are not in the store."""
        with Store.open(self.folder / "store.sqlite3", readonly=True) as store:
            return len(list((self.folder / "runs").glob("*/record.json"))) - store.count()

    def grandchildren(self) -> list[int]:
        return [int(path.read_text() or 0) for path in self.folder.glob("pid-*")]


def kill(victim: str, coordinator: int, chance: random.Random) -> bool:
    """Send the SIGKILL; False when there is no such process at the moment."""
    guardians = children(coordinator)
    if victim == "coordinator":
        targets = [coordinator]
    elif victim == "tree":
        targets = [coordinator, *descendants(coordinator)]
    elif victim == "guardian":
        targets = [chance.choice(guardians)] if guardians else []
    else:
        workers = [worker for guardian in guardians for worker in children(guardian)]
        targets = [chance.choice(workers)] if workers else []
    for pid in targets:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return bool(targets)


def wait_for_quiet(token: str, pids: list[int], tally: Tally) -> None:
    """No process of the bench may live 10 s after its coordinator."""
    started = time.monotonic()
    while left := [*with_token(token), *(pid for pid in pids if pid and process_started(pid) >= 0)]:
        if time.monotonic() - started > 10:
            tally.faults.append(f"orphans after 10 s: {left}")
            return
        time.sleep(0.05)
    tally.slowest_orphan_seconds = max(tally.slowest_orphan_seconds, time.monotonic() - started)


def finished_keys(lab: Lab, tally: Tally) -> set[str]:
    try:
        return {record.key for record in lab.records() if record.succeeded}
    except Exception as error:  # noqa: BLE001 - any damage is what we look for
        tally.faults.append(f"damaged record: {error}")
        return set()


def complete(lab: Lab, tally: Tally) -> None:
    """Run the bench to its end and check that it did exactly what was missing."""
    known = finished_keys(lab, tally)
    process = lab.start()
    output, _ = process.communicate(timeout=120)
    if f"done {TOTAL} reused {len(known)}" not in output:
        tally.faults.append(f"{len(known)} of {TOTAL} were finished, but the rerun said: {output[-300:]}")
    with Store.open(lab.folder / "store.sqlite3", readonly=True) as store:
        keys = [run.key for run in store.query(status="succeeded")]
        if sorted(keys) != sorted(set(keys)) or len(keys) != TOTAL:
            tally.faults.append(f"{len(keys)} succeeded records of {len(set(keys))} keys, {TOTAL} expected")
        tally.faults.extend(store.check())
        stored = {run.id for run in store.query()}
    lost = {record.id for record in lab.records()} - stored
    if lost:
        tally.faults.append(f"{len(lost)} record files are not in the store")


def main() -> int:
    """Kill and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance, tally = random.Random(options.seed), Tally()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        python = make_environment(Path(name) / "environment")
        number = 0
        while sum(tally.kills.values()) < options.kills:
            lab = Lab(Path(name) / f"lab-{number}", python)
            number += 1
            for attempt in range(chance.randint(1, 3)):
                process = lab.start()
                token = token_of(process.pid, process_started(process.pid))
                time.sleep(chance.uniform(0.2, 3.5))
                victim = chance.choice(VICTIMS)
                lock = lab.lock() if chance.random() < 0.5 else None
                hit = process.poll() is None and kill(victim, process.pid, chance)
                if lock is not None:
                    tally.kills_with_backlog += hit and lab.backlog() > 0
                    lock.close()
                if not hit:
                    tally.missed += 1
                else:
                    tally.kills[victim] = tally.kills.get(victim, 0) + 1
                    tally.resumed_kills += attempt > 0
                process.communicate(timeout=120)
                wait_for_quiet(token, lab.grandchildren(), tally)
                finished_keys(lab, tally)
            complete(lab, tally)
            shutil.rmtree(lab.folder)
    report = {**tally.__dict__, "benches": number, "seconds": round(time.monotonic() - started, 1)}
    print(json.dumps(report))
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
