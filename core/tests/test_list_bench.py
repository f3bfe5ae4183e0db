"""The bars of the list commands, measured by the benchmark itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "list_bench.py"


@pytest.mark.slow
def test_the_bars_of_the_list_commands_hold() -> None:
    done = subprocess.run([sys.executable, str(BENCHMARK), "--rounds", "7"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
