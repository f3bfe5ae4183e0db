"""SIGTERM ends a command like Ctrl-C: in good order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from installed import Site

SLOW = """
import sys, time
from icml26.tasks import mean
from icml26.__main__ import main
def run(self, inputs, ctx):
    open(sys.argv[1], "w").close()
    time.sleep(60)
mean.Mean.run = run
sys.exit(main(["run", "mean", "--dataset", "friedman", "--quiet"]))
"""


def test_sigterm_of_a_run_leaves_a_record_that_says_so(tmp_path: Path) -> None:
    site = Site(tmp_path / "site", tmp_path / "home")
    begun = tmp_path / "begun"
    child = subprocess.Popen([sys.executable, "-c", SLOW, str(begun)], env=site.variables(), stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    _, stderr = child.communicate(timeout=30)
    assert child.returncode == 130
    assert b"interrupted" in stderr
    (record,) = (tmp_path / "home" / "runs").glob("*/record.json")
    assert json.loads(record.read_text())["status"] == "killed"
