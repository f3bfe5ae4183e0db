"""Benches that are interrupted, locked out, doubled, or run out of disk: no run is lost, none is done twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from icml26.coordinator import Interrupted, Recorded, Summary, Waiting, amend, run_all
from icml26.errors import EnvironmentError_, StoreError
from icml26.executors import Event, Finished, Job, Unwritten
from icml26.executors.local import LocalExecutor
from icml26.leases import Lease, Leases, active_leases, recover
from icml26.processes import process_started, token_of, with_token
from icml26.records import RunRecord, RunRequest
from icml26.store import Store
from lab_environment import mischief, request

HERE = Path(__file__).parent


class FakeExecutor:
    """Finishes each job at the next poll with a record of its own making; no processes."""

    name = "fake"

    def __init__(self, slots: int = 2) -> None:
        self.slots = slots
        self.started: list[str] = []
        self.jobs: list[Job] = []
        self.closed = False
        self.unwritten: dict[int, Unwritten] = {}
        self.on_poll: Any = None

    def submit(self, job: Job) -> None:
        assert len(self.jobs) < self.slots
        job.folder.mkdir(parents=True)
        self.jobs.append(job)
        self.started.append(job.id)

    def poll(self, timeout: float) -> list[Event]:
        if self.on_poll is not None:
            self.on_poll(self)
        if not self.jobs:
            time.sleep(min(timeout, 0.01))
            return []
        job = self.jobs.pop(0)
        if len(self.started) in self.unwritten:
            return [self.unwritten.pop(len(self.started))]
        record_of(job).write(job.folder)
        return [Finished(job.id, job.folder)]

    def cancel(self, job_id: str) -> None:
        raise AssertionError

    def close(self) -> None:
        self.closed = True


def record_of(job: Job, status: str = "succeeded") -> RunRecord:
    asked = RunRequest.from_json(job.request)
    facts: Any = {"config": asked.config}
    return RunRecord(
        asked.record_id,
        asked.key,
        status,  # type: ignore[arg-type]
        {"name": asked.method, **facts},
        {"name": asked.dataset, "config": {}},
        asked.task,
        asked.seed,
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store.sqlite3") as opened:
        yield opened


def bench(store: Store, asked: list[RunRequest], executor: Any = None, **options: Any) -> Summary:
    return run_all(asked, executor or FakeExecutor(), store, runs_folder=store.path.parent / "runs", **options)


def grid(count: int) -> list[RunRequest]:
    return [request(seed=seed) for seed in range(count)]


# -- the loop ----------------------------------------------------------------------------------------------------------------


def test_each_key_is_run_once_and_then_reused(store: Store) -> None:
    executor, notices = FakeExecutor(), list[Any]()
    first = bench(store, [*grid(20), *grid(20)], executor)
    second = bench(store, grid(25), executor, on_event=notices.append)
    assert (len(first.records), len(executor.started), store.count()) == (20, 25, 25)
    assert (len(second.reused), second.missing) == (20, set())
    assert sum(isinstance(item, Recorded) and not item.reused for item in notices) == 5
    assert active_leases(store) == []


def test_without_reuse_everything_is_measured_anew(store: Store) -> None:
    asked = grid(3)
    bench(store, asked)
    bench(store, asked, reuse=False)
    assert (store.count(), len({run.key for run in store.query()})) == (6, 3)


def test_failed_is_not_done(store: Store) -> None:
    asked = request()
    store.ingest(record_of(Job(asked.record_id, asked.to_json(), store.path.parent), "failed"))
    assert bench(store, [request()]).reused == set()


def test_runs_of_one_method_follow_one_another(store: Store) -> None:
    executor = FakeExecutor(slots=1)
    asked = [request(("noop", "other")[seed % 2], seed=seed) for seed in range(6)]
    bench(store, asked, executor)
    methods = {item.record_id: item.method for item in asked}
    assert [methods[item] for item in executor.started] == ["lab/noop"] * 3 + ["lab/other"] * 3


def test_keys_that_another_bench_computes_are_waited_for_and_taken_over_when_it_dies(store: Store) -> None:
    mine, theirs = grid(4)[:2], grid(4)[2:]
    other = Leases(store)
    other.claim([Lease(item.key, item.record_id, Path("/nowhere") / item.record_id) for item in theirs])
    executor, notices = FakeExecutor(), list[Any]()

    def meanwhile(fake: FakeExecutor) -> None:
        if theirs and any(isinstance(notice, Waiting) for notice in notices):
            assert len(fake.started) == 2
            finished, _ = theirs.pop(), theirs.clear()
            record = record_of(Job(finished.record_id, finished.to_json(), Path()))
            store.ingest_all([(record, None)], release=[record.id])
            other.forget()  # the other lease is now that of an owner that is gone

    executor.on_poll = meanwhile
    summary = bench(store, [*grid(4)], executor, on_event=notices.append)
    (said,) = [notice.reason for notice in notices if isinstance(notice, Waiting)]
    assert f"2 runs are being computed by another bench (process {os.getpid()}" in said
    assert (len(summary.records), len(summary.reused), len(executor.started)) == (4, 1, 3)
    assert [item.key for item in mine] == [RunRequest.from_json({**item.to_json()}).key for item in grid(2)]


def test_amending_changes_file_and_row(store: Store) -> None:
    (record,) = bench(store, grid(1)).records.values()
    folder = store.path.parent / "runs" / record.id
    record.info["note"] = "rescored"
    amend(store, record, folder)
    assert RunRecord.read(folder / "record.json") == store.find([record.key])[record.key] == record


# -- nothing can be recorded --------------------------------------------------------------------------------------------------


def test_a_read_only_store_refuses_before_any_run(store: Store) -> None:
    executor = FakeExecutor()
    with Store.open(store.path, readonly=True) as reader, pytest.raises(StoreError, match="reading only"):
        bench(reader, grid(2), executor)
    assert executor.started == []


def test_a_runs_folder_that_cannot_be_written_refuses_before_any_run(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    executor = FakeExecutor()
    with pytest.raises(EnvironmentError_, match="--output"):
        run_all(grid(2), executor, store, runs_folder=tmp_path / "file" / "runs")
    assert executor.started == []


def test_a_record_that_cannot_be_written_stops_the_scheduling_but_is_kept_in_the_store(store: Store) -> None:
    executor = FakeExecutor(slots=1)
    asked = grid(10)

    def third(fake: FakeExecutor) -> None:
        if len(fake.started) == 3 and fake.jobs:
            job = fake.jobs[0]
            fake.unwritten[3] = Unwritten(job.id, "no space left on device", record_of(job).to_json())

    executor.on_poll = third
    with pytest.raises(StoreError, match="no space left"):
        bench(store, asked, executor)
    assert (len(executor.started), store.count()) == (3, 3)
    assert len(bench(store, asked).reused) == 3


def test_a_lock_of_another_process_delays_but_loses_nothing(store: Store) -> None:
    other = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    executor, locked_at = FakeExecutor(), list[int]()

    def lock(fake: FakeExecutor) -> None:
        if len(fake.started) == 5 and not locked_at:
            other.execute("BEGIN IMMEDIATE")
            locked_at.append(len(fake.started))
            threading.Timer(1.5, lambda: other.execute("COMMIT")).start()

    executor.on_poll = lock
    notices: list[Any] = []
    summary = bench(store, grid(40), executor, on_event=notices.append)
    assert [notice.reason.endswith("wait as files") for notice in notices if isinstance(notice, Waiting)] == [True]
    assert (len(summary.records), store.count(), len(executor.started)) == (40, 40, 40)
    other.close()


def test_a_lock_without_end_ends_the_bench_and_the_next_one_takes_the_finished_runs_in(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icml26.coordinator.LOCK_PATIENCE_SECONDS", 0.5)
    other = sqlite3.connect(store.path, isolation_level=None)
    executor = FakeExecutor()
    executor.on_poll = lambda fake: other.execute("BEGIN IMMEDIATE") if not other.in_transaction else None
    with pytest.raises(StoreError, match="kept as files"):
        bench(store, grid(40), executor)
    other.execute("ROLLBACK")
    other.close()
    done = len(executor.started)
    assert 0 < done < 40
    again = FakeExecutor()
    summary = bench(store, grid(40), again)
    assert (len(summary.reused), len(again.started), store.count()) == (done, 40 - done, 40)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("what", ["store", "runs"])
def test_a_disk_that_fills_up_stops_the_scheduling_and_loses_no_finished_run(
    what: str, tmp_path: Path, lab_python: str
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount")
    places = {"store": tmp_path, "runs": tmp_path, what: disk}
    executor = LocalExecutor(2)

    def run(count: int) -> Summary:
        with Store.open(places["store"] / "store.sqlite3") as store:
            asked = [request(seed=seed) for seed in range(count)]
            return run_all(asked, executor, store, runs_folder=places["runs"] / "runs", python=lambda item: lab_python)

    try:
        run(5)
        with (disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match="space"):
            while True:
                file.write(b"x" * 4096)
        with (disk / "filler").open("r+b") as file:
            file.truncate((disk / "filler").stat().st_size - 40_960)
        with pytest.raises(StoreError) as caught:
            run(400)
        assert "No further runs were started" in str(caught.value)
        (disk / "filler").unlink()
        finished = [RunRecord.read(path) for path in (places["runs"] / "runs").glob("*/record.json")]
        assert 5 <= len(finished) < 300
        summary = run(40)
        assert summary.missing == set()
        with Store.open(places["store"] / "store.sqlite3", readonly=True) as store:
            ids = {run.id for run in store.query()}
            assert {record.id for record in finished if record.succeeded} <= ids
            assert store.check() == []
            keys = [run.key for run in store.query(status="succeeded")]
            assert len(keys) == len(set(keys))
    finally:
        executor.close()
        subprocess.run(["umount", disk], check=True)


# -- leases ------------------------------------------------------------------------------------------------------------------


def test_a_claim_is_exclusive_among_the_living(store: Store) -> None:
    first, second = Leases(store), Leases(store)
    leases = [Lease(key, f"id-{key}", Path("/nowhere")) for key in "ab"]
    assert first.claim(leases) == {"a", "b"}
    assert second.claim([Lease("b", "other", Path("/nowhere")), Lease("c", "id-c", Path("/nowhere"))]) == {"c"}
    first.release(["id-b"])
    assert second.claim([Lease("b", "other", Path("/nowhere"))]) == {"b"}
    assert {(item.lease.key, item.alive) for item in active_leases(store)} == {("a", True), ("b", True), ("c", True)}


def test_the_claims_of_the_dead_are_free_and_their_finished_runs_taken_in(store: Store, tmp_path: Path) -> None:
    done, cut = grid(2)
    owner = Leases(store)
    owner.claim([Lease(item.key, item.record_id, tmp_path / item.record_id) for item in (done, cut)])
    for item in (done, cut):
        (tmp_path / item.record_id).mkdir()
        (tmp_path / item.record_id / "request.json").write_text("{}", encoding="ascii")
    record_of(Job(done.record_id, done.to_json(), tmp_path)).write(tmp_path / done.record_id)
    assert recover(store) == 0
    owner.forget()
    assert (recover(store), recover(store), list(store.find([done.key]))) == (1, 0, [done.key])
    assert not (tmp_path / cut.record_id).exists()
    assert (tmp_path / done.record_id).exists()


def test_an_owner_of_another_machine_is_dead_when_it_has_long_been_silent(store: Store) -> None:
    owner = Leases(store)
    owner.claim([Lease("a", "id-a", Path("/nowhere"))])
    for silent, alive in ((10.0, True), (10_000.0, False)):
        with store.database.writing() as connection:
            connection.execute("UPDATE owners SET machine = 'elsewhere', renewed = ?", (time.time() - silent,))
        assert [item.alive for item in active_leases(store)] == [alive]


def test_recovery_never_deletes_a_folder_that_is_not_a_run(store: Store, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("x", encoding="ascii")
    owner = Leases(store)
    owner.claim([Lease("a", "precious", precious)])
    owner.forget()
    recover(store)
    assert (precious / "thesis.txt").exists()


# -- real processes ------------------------------------------------------------------------------------------------------------


class Bench:
    """A bench in a process of its own."""

    def __init__(self, folder: Path, python: str, *arguments: object) -> None:
        self.store = folder / "store.sqlite3"
        command = [sys.executable, HERE / "lab_bench.py", self.store, folder / "runs", python, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(HERE)}
        self.process = subprocess.Popen(
            [str(item) for item in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.token = token_of(self.process.pid, process_started(self.process.pid))

    def wait_for(self, word: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if word in line:
                return
        raise AssertionError(self.process.stderr.read() if self.process.stderr else "")

    def end(self, seconds: float = 60.0) -> tuple[int, str]:
        output, errors = self.process.communicate(timeout=seconds)
        return self.process.returncode, output + errors


def wait_for_file(path: Path) -> int:
    deadline = time.monotonic() + 30
    while not path.exists() or not path.read_text(encoding="ascii"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(path.read_text(encoding="ascii"))


@pytest.mark.parametrize("deed", ["stuck-in-c", "double-fork"])
def test_ctrl_c_ends_within_ten_seconds_and_says_how_to_resume(deed: str, tmp_path: Path, lab_python: str) -> None:
    running = Bench(tmp_path, lab_python, 1, 3, 60, deed, tmp_path / "pid")
    grandchild = wait_for_file(tmp_path / "pid")
    started = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    code, output = running.end(12)
    assert (code, time.monotonic() - started < 10) == (130, True)
    assert "the same command again runs only what is missing" in output
    assert process_started(grandchild) < 0
    assert with_token(running.token) == []
    with Store.open(running.store) as store:
        assert (store.check(), active_leases(store), store.count()) == ([], [], 0)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_second_ctrl_c_ends_at_once_and_leaves_no_process(tmp_path: Path, lab_python: str) -> None:
    running = Bench(tmp_path, lab_python, 1, 3, 60, "stuck-in-c", tmp_path / "pid")
    victim = wait_for_file(tmp_path / "pid")
    running.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    started = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    code, _ = running.end(12)
    assert (code in (130, 131), time.monotonic() - started < 1.5) == (True, True)
    deadline = time.monotonic() + 10
    while (process_started(victim) >= 0 or with_token(running.token)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (process_started(victim) < 0, with_token(running.token)) == (True, [])


def test_after_a_kill_the_same_bench_runs_exactly_what_is_missing(tmp_path: Path, lab_python: str) -> None:
    first = Bench(tmp_path, lab_python, 2, 12, 0.1)
    for _ in range(4):
        first.wait_for("recorded")
    first.process.kill()
    first.end()
    finished = len(list((tmp_path / "runs").glob("*/record.json")))
    again = Bench(tmp_path, lab_python, 2, 12, 0.1)
    code, output = again.end()
    assert (code, with_token(first.token)) == (0, [])
    reused = int(output.split("reused ")[1].split()[0])
    assert reused >= finished >= 4
    with Store.open(again.store, readonly=True) as store:
        keys = [run.key for run in store.query()]
        assert (len(keys), len(set(keys)), store.check()) == (12, 12, [])


def test_two_benches_on_one_store_share_the_work(tmp_path: Path, lab_python: str) -> None:
    benches = [Bench(tmp_path, lab_python, 1, 40, 0.05) for _ in range(2)]
    ends = [item.end() for item in benches]
    assert [code for code, _ in ends] == [0, 0]
    assert all("done 40" in output for _, output in ends)
    with Store.open(benches[0].store, readonly=True) as store:
        keys = [run.key for run in store.query()]
        assert (len(keys), len(set(keys))) == (40, 40)


def test_a_dask_worker_that_is_killed_costs_no_run(tmp_path: Path, lab_python: str) -> None:
    distributed = pytest.importorskip("distributed")
    from icml26.executors.dask import DaskExecutor

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path / "dask")
        ) as cluster,
        Store.open(tmp_path / "store.sqlite3") as store,
    ):
        executor = DaskExecutor(cluster.scheduler_address, tmp_path)
        victims = [worker.pid for worker in cluster.workers.values()]
        killed: list[int] = []

        def kill_one(notice: object) -> None:
            if isinstance(notice, Recorded) and not killed:
                killed.append(victims[0])
                os.kill(victims[0], signal.SIGKILL)

        asked = [request(seed=seed, config={"seconds": 0.3}) for seed in range(12)]
        summary = run_all(
            asked, executor, store, runs_folder=tmp_path / "runs", python=lambda item: lab_python, on_event=kill_one
        )
        executor.close()
        assert killed
        assert {record.status for record in summary.records.values()} == {"succeeded"}
        keys = [run.key for run in store.query()]
        assert (len(keys), len(set(keys))) == (12, 12)


def test_interrupting_jobs_elsewhere_ends_them_and_records_only_what_was_finished(
    tmp_path: Path, lab_python: str
) -> None:
    pytest.importorskip("submitit")
    from icml26.executors.slurm import SlurmExecutor

    executor = SlurmExecutor(tmp_path / "jobs", slots=2, cluster="local")
    asked = [request(), mischief("stuck-in-c", 60, tmp_path / "pid")]

    def interrupt(notice: object) -> None:
        if isinstance(notice, Recorded):
            wait_for_file(tmp_path / "pid")
            raise KeyboardInterrupt

    with Store.open(tmp_path / "store.sqlite3") as store:
        with pytest.raises(Interrupted) as caught:
            run_all(
                asked,
                executor,
                store,
                runs_folder=tmp_path / "runs",
                python=lambda item: lab_python,
                on_event=interrupt,
            )
        assert [record.status for record in caught.value.summary.records.values()] == ["succeeded"]
        assert (store.count(), active_leases(store)) == (1, [])
    assert process_started(int((tmp_path / "pid").read_text(encoding="ascii"))) < 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [asked[0].record_id]


@pytest.mark.slow
def test_a_store_that_is_locked_for_forty_seconds(tmp_path: Path, lab_python: str) -> None:
    running = Bench(tmp_path, lab_python, 2, 60, 0.02)
    running.wait_for("recorded")
    other = sqlite3.connect(running.store, isolation_level=None, timeout=30)
    other.execute("BEGIN IMMEDIATE")
    time.sleep(40)
    assert running.process.poll() is None
    other.execute("COMMIT")
    other.close()
    code, output = running.end()
    assert (code, "done 60" in output) == (0, True)
    with Store.open(running.store, readonly=True) as store:
        assert (store.count(), store.check()) == (60, [])


def test_mischief_is_recorded_and_the_bench_goes_on(tmp_path: Path, lab_python: str) -> None:
    executor = LocalExecutor(2)
    asked = [*(mischief(deed) for deed in ("segfault", "os-exit", "raise")), *grid(3)]
    with Store.open(tmp_path / "store.sqlite3") as store:
        summary = run_all(asked, executor, store, runs_folder=tmp_path / "runs", python=lambda item: lab_python)
    executor.close()
    assert sorted(record.status for record in summary.records.values()) == [
        *("failed", "failed", "killed"),
        *("succeeded",) * 3,
    ]
