from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from builders import make_index, make_wheel
from icml26.environments import Environments
from icml26.executors import Finished, Job
from icml26.executors import env as module
from icml26.executors.env import EnvExecutor
from icml26.needs import Need
from icml26.records import RunRecord, RunRequest
from icml26.registry.target import find_uv

SLOW_UV = """#!{python}
import os, sys, time
with open({marker!r}, "a") as file:
    file.write(str(os.getpid()) + "\\n")
time.sleep(60)
"""


@pytest.fixture
def slow_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A uv that hangs; the returned file holds the ids of its processes."""
    marker = tmp_path / "started"
    program = tmp_path / "slow" / "uv"
    program.parent.mkdir()
    program.write_text(SLOW_UV.format(python=sys.executable, marker=str(marker)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return marker


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvExecutor:
    monkeypatch.setattr(module, "needs_of", lambda catalog, request: (Need("tiny", "tiny==1.0", "x"),))
    return EnvExecutor(1, environments=Environments(tmp_path / "home"))


def job(tmp_path: Path) -> Job:
    request = RunRequest("id-1", "key", "a.task", "a/m", {}, "a/d", {})
    return Job("id-1", request.to_json(), tmp_path / "runs" / "id-1")


def wait_for(path: Path) -> int:
    deadline = time.monotonic() + 20
    while not path.exists() or not path.read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int(path.read_text().split()[0])


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_closing_ends_a_running_build(executor: EnvExecutor, slow_uv: Path, tmp_path: Path) -> None:
    executor.submit(job(tmp_path))
    process = wait_for(slow_uv)
    begun = time.monotonic()
    executor.close()
    assert time.monotonic() - begun < 5
    assert not is_alive(process)
    executor.close()


def test_a_job_that_waits_for_its_environment_can_be_cancelled(
    executor: EnvExecutor, slow_uv: Path, tmp_path: Path
) -> None:
    executor.submit(job(tmp_path))
    wait_for(slow_uv)
    executor.cancel("id-1")
    (event,) = executor.poll(1.0)
    assert isinstance(event, Finished)
    record = RunRecord.read(event.folder / "record.json")
    assert record.status == "killed" and "before its environment" in (record.error or {})["message"]
    executor.close()


def test_a_resolver_that_fails_is_a_failed_run_with_its_words(
    executor: EnvExecutor, served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_uv() is not None
    make_index(served[0], make_wheel(tmp_path, "tiny", "2.0", plugin=None))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{served[1]}/simple")
    for name in ("UV_FIND_LINKS", "PIP_FIND_LINKS", "UV_INDEX", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    executor.submit(job(tmp_path))
    events: list[object] = []
    deadline = time.monotonic() + 30
    while not any(isinstance(event, Finished) for event in events):
        assert time.monotonic() < deadline
        events += executor.poll(0.5)
    record = RunRecord.read(tmp_path / "runs" / "id-1" / "record.json")
    assert record.status == "failed" and "tiny==1.0" in (record.error or {})["message"]
    executor.close()
