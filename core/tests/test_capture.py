"""Output of plugins stays away from ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys, toy
from icml26.api import run
from icml26.runner import run_request, ProblemCache
from icml26.plan import Planner, Choice, applicable
from pathlib import Path

import pytest
planner = Planner(toy.catalog())
request = applicable(planner.plan(Choice("shift", {"fault": "print"})))
record = run_request(request, Path(sys.argv[1]), catalog=planner.catalog, capture=True).record
print(record.log, end="")
"""


def test_prints_from_python_and_c_go_to_the_log(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "log.txt"
    assert done.stderr == ""
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert "from C" in lines
    assert json.loads(next(line for line in lines if line.startswith("{"))) == {"schema": "icml26.run/1"}


def test_idle_threads_of_our_processes_sleep_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    from icml26.threads import thread_variables, wait_passively

    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert thread_variables(3)["OMP_WAIT_POLICY"] == "PASSIVE"
    assert thread_variables(3)["OMP_NUM_THREADS"] == "3"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
