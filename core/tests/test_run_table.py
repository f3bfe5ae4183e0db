"""The table of a run."""

from __future__ import annotations

from pathlib import Path

import toy
from icml26.api import run
from icml26.cli.run_table import run_table


def test_scores_stand_beside_the_references_and_what_does_not_apply_says_why(tmp_path: Path) -> None:
    text = run_table(run("shift", metrics=["error", "attack-error", "gain"], output=tmp_path, catalog=toy.catalog()))
    error = next(line.split() for line in text.splitlines() if line.startswith("error"))
    assert error[:4] == ["error", "2", "0", "units"]
    assert "attack-error: – needs 'attack' (planted)" in text


def test_a_refused_run_says_only_why_and_where(tmp_path: Path) -> None:
    text = run_table(run("shift", config={"fault": "refuse"}, output=tmp_path, catalog=toy.catalog()))
    assert "refused: column 'x' holds NaN in row 3" in text
    assert "–" not in text
    assert "record.json" in text
