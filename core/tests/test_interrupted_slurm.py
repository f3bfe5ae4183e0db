"""Ctrl-C on a terminal reaches every process of its group: jobs through submitit end in order, without tracebacks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from icml26.processes import children, process_started
from lab_environment import mischief

pytest.importorskip("submitit")

BENCH = """
import json, sys
from pathlib import Path
from icml26.executors import Job
from icml26.executors.slurm import SlurmExecutor
request, folder, python = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
executor = SlurmExecutor(folder / "jobs", slots=1, cluster="local")
try:
    executor.submit(Job(request["record_id"], request, folder / "run", affinity="x", python=python))
    while True:
        executor.poll(0.2)
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
finally:
    executor.close()
"""


def test_an_interruption_leaves_no_traceback_and_no_process(tmp_path: Path, lab_python: str) -> None:
    asked = mischief("sleep", 60)
    bench = subprocess.Popen(
        [sys.executable, "-c", BENCH, json.dumps(asked.to_json()), str(tmp_path), lab_python],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "log.txt").exists():
        assert time.monotonic() < deadline and bench.poll() is None
        time.sleep(0.05)
    (controller,) = children(bench.pid)
    os.killpg(bench.pid, signal.SIGINT)
    _, errors = bench.communicate(timeout=60)
    assert errors.splitlines() == ["interrupted"]
    deadline = time.monotonic() + 15
    while process_started(controller) >= 0:
        assert time.monotonic() < deadline, "submitit's process is still there"
        time.sleep(0.05)
