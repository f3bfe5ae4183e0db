"""Crashes, hangs and limits: alike in all executors, always a record that says which, never a process left behind."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from icml26.executors import Event, Executor, Finished, Job, Point, Progress, Started, Unwritten, open_executor
from icml26.executors.local import LocalExecutor
from icml26.ids import new_id
from icml26.processes import children, own_token, process_started, with_token
from icml26.records import RELATE_SCHEMA, RunRecord, RunRequest
from lab_environment import mischief, request

Run = Callable[..., RunRecord]


def finish(executor: Executor, job: Job, *, seconds: float = 60.0) -> list[Event]:
    """Submit a job and wait for its end; all its events."""
    executor.submit(job)
    events: list[Event] = []
    deadline = time.monotonic() + seconds
    while not events or not isinstance(events[-1], Finished | Unwritten):
        assert time.monotonic() < deadline, f"no end after {seconds} s: {events}"
        events += executor.poll(0.1)
    return events


def job_of(asked: RunRequest, folder: Path, python: str, **changes: Any) -> Job:
    return Job(
        asked.record_id, asked.to_json(), folder / asked.record_id, affinity=asked.method, python=python, **changes
    )


@pytest.fixture
def local() -> Iterator[LocalExecutor]:
    executor = LocalExecutor(1)
    yield executor
    executor.close()
    assert with_token(own_token()) == []


@pytest.fixture
def run(local: LocalExecutor, tmp_path: Path, lab_python: str) -> Run:
    def run(asked: RunRequest, **changes: Any) -> RunRecord:
        finish(local, job_of(asked, tmp_path, lab_python, **changes))
        return RunRecord.read(tmp_path / asked.record_id / "record.json")

    return run


def wait_until_gone(pid: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while process_started(pid) >= 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    return process_started(pid) < 0


def read_pid(path: Path) -> int:
    deadline = time.monotonic() + 20
    while not path.exists() or not path.read_text(encoding="ascii"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(path.read_text(encoding="ascii"))


# -- alike everywhere ----------------------------------------------------------------------------------------------------

ENDS = {
    "segfault": ("killed", "Signal", "SIGSEGV"),
    "abort": ("killed", "Signal", "SIGABRT"),
    "kill-self": ("killed", "Signal", "SIGKILL"),
    "os-exit": ("failed", "ProcessExit", None),
    "os-exit-zero": ("failed", "ProcessExit", None),
    "raise": ("failed", "ZeroDivisionError", None),
    "memory-error": ("out-of-memory", "MemoryError", None),
    "stuck-in-c": ("timed-out", "TimeLimit", None),
    "touch": ("out-of-memory", "MemoryLimit", None),
}


@pytest.fixture(scope="module", params=["local", "dask", "slurm"])
def executor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    folder = tmp_path_factory.mktemp("executor")
    if request.param == "local":
        opened: Executor = LocalExecutor(2)
    elif request.param == "slurm":
        pytest.importorskip("submitit")
        from icml26.executors.slurm import SlurmExecutor

        opened = SlurmExecutor(folder, slots=2, cluster="local")
    else:
        distributed = pytest.importorskip("distributed")
        from icml26.executors.dask import DaskExecutor

        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(folder)
        ) as cluster:
            opened = DaskExecutor(cluster.scheduler_address, folder)
            yield opened
            opened.close()
        return
    yield opened
    opened.close()


def test_every_end_is_a_record_that_says_which(executor: Executor, tmp_path: Path, lab_python: str) -> None:
    asked = {do: mischief(do) for do in ENDS} | {
        "stuck-in-c": mischief("stuck-in-c", limits={"timeout_seconds": 0.5}),
        "touch": mischief("touch", 2048, limits={"memory_bytes": 256 << 20}),
    }
    waiting = [job_of(item, tmp_path, lab_python) for item in asked.values()]
    running: set[str] = set()
    deadline = time.monotonic() + 120
    while waiting or running:
        while waiting and len(running) < executor.slots:
            job = waiting.pop()
            running.add(job.id)
            executor.submit(job)
        for event in executor.poll(0.2):
            assert not isinstance(event, Unwritten)
            if isinstance(event, Finished):
                running.remove(event.id)
        assert time.monotonic() < deadline, running
    for do, item in asked.items():
        record = RunRecord.read(tmp_path / item.record_id / "record.json")
        error = record.error or {}
        assert (record.status, error["type"], error["signal"]) == ENDS[do], f"{do}: {error}"
        assert (record.id, record.key, record.method["name"]) == (item.record_id, item.key, "lab/mischief")
        assert RunRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_a_cancelled_run_is_recorded_as_killed(executor: Executor, tmp_path: Path, lab_python: str) -> None:
    asked = mischief("sleep", 60)
    executor.submit(job_of(asked, tmp_path, lab_python))
    deadline = time.monotonic() + 60
    events: list[Event] = []
    while not any(isinstance(event, Finished) for event in events):
        events += executor.poll(0.1)
        if (tmp_path / asked.record_id / "log.txt").exists():
            executor.cancel(asked.record_id)
        assert time.monotonic() < deadline
    record = RunRecord.read(tmp_path / asked.record_id / "record.json")
    assert (record.status, (record.error or {})["type"]) == ("killed", "Cancelled")


# -- limits ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        request("import-hang"),
        request("noop", "load-hang"),
        request("noop", config={"seconds": 60.0}),
    ],
    ids=["import", "load", "run"],
)
def test_a_time_limit_of_half_a_second_works_in_every_part(asked: RunRequest, run: Run) -> None:
    limited = RunRequest.from_json({**asked.to_json(), "limits": {"timeout_seconds": 0.5}, "record_id": new_id()})
    record = run(limited)
    assert (record.status, (record.error or {})["type"]) == ("timed-out", "TimeLimit")
    assert 0.5 <= record.seconds["total"] < 4.0


def test_a_run_within_its_limits_succeeds(run: Run) -> None:
    record = run(mischief("touch", 50, limits={"timeout_seconds": 60.0, "memory_bytes": 1 << 30}))
    assert (record.status, record.error) == ("succeeded", None)


def test_a_reservation_is_not_memory(run: Run) -> None:
    record = run(mischief("reserve", limits={"memory_bytes": 1 << 30}))
    assert record.succeeded, record.error
    assert 50_000_000 < (record.peak_memory_bytes or 0) < 1 << 30


@pytest.mark.parametrize("do", ["touch", "touch-in-child"])
def test_touching_two_gib_under_a_limit_of_one_is_out_of_memory(do: str, run: Run) -> None:
    record = run(mischief(do, 2048, limits={"memory_bytes": 1 << 30}))
    assert (record.status, (record.error or {})["type"]) == ("out-of-memory", "MemoryLimit")
    assert 1 << 30 < (record.peak_memory_bytes or 0) < 2300 << 20


def test_a_peak_between_two_samples_is_over_the_limit_too(run: Run) -> None:
    asked = [mischief("spike", 60, seed=seed, limits={"memory_bytes": 64 << 20}) for seed in range(4)]
    assert {run(item).status for item in asked} == {"out-of-memory"}


def test_memory_of_children_counts_in_the_peak(run: Run) -> None:
    assert (run(mischief("touch-in-child", 300)).peak_memory_bytes or 0) > 300 << 20


def test_the_peak_of_a_small_run_after_a_large_one_is_its_own(run: Run) -> None:
    alone = run(mischief("pid", size=1)).peak_memory_bytes or 0
    large = run(mischief("touch", 400))
    small = run(mischief("pid", size=2))
    assert (large.peak_memory_bytes or 0) > 400 << 20
    assert abs((small.peak_memory_bytes or 0) - alone) < 32 << 20


def test_a_process_that_kept_memory_is_not_used_again(run: Run) -> None:
    first = run(mischief("pid", size=1))
    run(mischief("leak", 300))
    second = run(mischief("pid", size=2))
    assert first.value("score") != second.value("score")
    assert (second.peak_memory_bytes or 0) < 200 << 20


def test_threads_are_set_before_the_process_starts(run: Run) -> None:
    assert run(mischief("threads", threads=3)).value("score") == 3


# -- reuse -----------------------------------------------------------------------------------------------------------------


def test_a_process_is_used_again_for_the_same_method_only(run: Run) -> None:
    pids = [run(mischief("pid", size)).value("score") for size in (1, 2)]
    run(request("noop"))
    pids += [run(mischief("pid", 3)).value("score"), run(mischief("pid", 4), fresh=True).value("score")]
    pids.append(run(mischief("pid", 5)).value("score"))
    pids.append(run(mischief("pid", 6, limits={"memory_bytes": 1 << 30})).value("score"))
    assert (pids[0] == pids[1], len(set(pids))) == (True, 5)


def test_a_run_leaves_no_trace_for_the_next_in_its_process(run: Run) -> None:
    first = run(mischief("pid", 1)).value("score")
    run(mischief("tamper"))
    assert run(mischief("trace")).value("score") == 0
    assert run(mischief("pid", 2)).value("score") == first


def test_what_a_method_writes_to_its_working_folder_goes_away(
    run: Run, local: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    scratch.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert run(mischief("litter")).value("score") == 1
    local.close()
    assert list(here.iterdir()) == list(scratch.iterdir()) == []


def test_after_a_crash_the_next_run_gets_a_new_process(run: Run) -> None:
    assert run(mischief("segfault")).status == "killed"
    assert run(request()).succeeded


# -- what plugins say --------------------------------------------------------------------------------------------------------


def test_lines_that_look_like_the_protocol_are_only_log(run: Run, tmp_path: Path) -> None:
    record = run(mischief("speak-protocol"))
    assert record.succeeded
    assert '"event": "done"' in (tmp_path / record.id / "log.txt").read_text(encoding="utf-8")


def test_closing_all_descriptors_costs_at_most_the_run(run: Run) -> None:
    assert run(mischief("close-descriptors")).status in ("succeeded", "failed")
    assert run(request()).succeeded


@pytest.mark.parametrize(
    ("do", "value"),
    [("nan", math.nan), ("inf", math.inf), ("minus-inf", -math.inf), ("integer", 7.0), ("zero-dim", 2.5)],
)
def test_odd_numbers_survive_as_they_are(do: str, value: float, run: Run) -> None:
    found = run(mischief(do)).value("score")
    assert found == value or (math.isnan(value) and math.isnan(found or 0.0))


@pytest.mark.parametrize("do", ["text", "list"])
def test_what_is_no_number_is_a_failure_that_names_the_metric(do: str, run: Run) -> None:
    record = run(mischief(do))
    assert record.status == "failed"
    assert "metric score returned" in (record.error or {})["message"]


def test_a_crash_leaves_the_python_trace_in_the_record(run: Run) -> None:
    assert "_segfault" in ((run(mischief("segfault")).error or {})["traceback"] or "")


def test_progress_and_curves_arrive_while_it_runs(local: LocalExecutor, tmp_path: Path, lab_python: str) -> None:
    events = finish(local, job_of(mischief("sleep", 0.5), tmp_path, lab_python))
    assert isinstance(events[0], Started)
    assert sum(isinstance(event, Progress) for event in events) >= 3
    points = finish(local, job_of(mischief("log"), tmp_path, lab_python))
    assert [(event.name, event.step) for event in points if isinstance(event, Point)][:2] == [("loss", 0), ("loss", 1)]


def test_an_interpreter_that_is_not_there_is_a_record(run: Run, local: LocalExecutor, tmp_path: Path) -> None:
    asked = request()
    finish(local, job_of(asked, tmp_path, "/nowhere/python"))
    record = RunRecord.read(tmp_path / asked.record_id / "record.json")
    assert (record.status, (record.error or {})["type"]) == ("failed", "WorkerStart")


def test_a_folder_that_cannot_be_written_is_told_not_recorded(
    local: LocalExecutor, tmp_path: Path, lab_python: str
) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    events = finish(local, job_of(request(), tmp_path / "file", lab_python))
    assert isinstance(events[-1], Unwritten)
    assert isinstance(finish(local, job_of(request(), tmp_path, lab_python))[-1], Finished)


# -- nothing is left behind ---------------------------------------------------------------------------------------------------


def test_a_double_forked_grandchild_ends_with_a_timed_out_run(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    assert run(mischief("double-fork", 60, path, limits={"timeout_seconds": 2.0})).status == "timed-out"
    assert wait_until_gone(read_pid(path), 1.0)


def test_what_a_finished_run_left_behind_is_ended(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    assert run(mischief("double-fork", 0, path)).succeeded
    run(request())
    assert wait_until_gone(read_pid(path), 5.0)


@pytest.mark.parametrize("do", ["stuck-in-c", "double-fork"])
def test_killing_the_guardian_ends_all_and_is_recorded(
    do: str, local: LocalExecutor, tmp_path: Path, lab_python: str
) -> None:
    path = tmp_path / "pid"
    asked = mischief(do, 60, path)
    local.submit(job_of(asked, tmp_path, lab_python))
    victim = read_pid(path)
    (guardian,) = children(os.getpid())[-1:]
    os.kill(guardian, signal.SIGKILL)
    events: list[Event] = []
    while not any(isinstance(event, Finished) for event in events):
        events += local.poll(1.0)
    record = RunRecord.read(tmp_path / asked.record_id / "record.json")
    assert (record.status, (record.error or {})["type"]) == ("killed", "GuardianDied")
    assert wait_until_gone(victim)
    assert isinstance(finish(local, job_of(request(), tmp_path, lab_python))[-1], Finished)


@pytest.mark.parametrize("do", ["stuck-in-c", "double-fork", "child"])
def test_closing_ends_everything_within_seconds(do: str, tmp_path: Path, lab_python: str) -> None:
    path, executor = tmp_path / "pid", LocalExecutor(1)
    asked = mischief(do, 60, path)
    executor.submit(job_of(asked, tmp_path, lab_python))
    victim = read_pid(path)
    started = time.monotonic()
    executor.close()
    executor.close()
    assert time.monotonic() - started < 8
    assert wait_until_gone(victim, 1.0)
    assert not (tmp_path / asked.record_id / "record.json").exists()


# -- relative metrics ----------------------------------------------------------------------------------------------------------


def relation(metric: str) -> dict[str, Any]:
    return {
        "schema": RELATE_SCHEMA,
        "record_id": new_id(),
        "metric": f"lab/{metric}",
        "scores": {"score": 3.0},
        "reference_scores": {"score": 1.0},
        "reference_id": "reference",
    }


def test_relative_metrics_are_scored_in_a_worker(local: LocalExecutor, tmp_path: Path, lab_python: str) -> None:
    for metric in ("gain", "gain-crash"):
        asked = relation(metric)
        job = Job(asked["record_id"], asked, tmp_path / metric, affinity="lab", python=lab_python)
        assert isinstance(finish(local, job)[-1], Finished)
    answers = [
        json.loads((tmp_path / metric / "related.json").read_text(encoding="utf-8"))
        for metric in ("gain", "gain-crash")
    ]
    assert answers[0]["metrics"]["gain"] == {
        "value": 2.0,
        "unit": None,
        "direction": "higher",
        "relative_to": "reference",
    }
    assert (answers[1]["metrics"], answers[1]["error"]["type"]) == (None, "ProcessExit")


def test_executors_are_opened_by_name(tmp_path: Path) -> None:
    from icml26.errors import EnvironmentError_, UsageError

    assert open_executor("local", workers=3, folder=tmp_path).slots == 3
    for wrong in ("locale", "dask", "local:1"):
        with pytest.raises(UsageError, match="--executor"):
            open_executor(wrong, workers=1, folder=tmp_path)
    pytest.importorskip("distributed")
    with pytest.raises(EnvironmentError_, match="Dask"):
        open_executor("dask:nonsense://x", workers=1, folder=tmp_path)
