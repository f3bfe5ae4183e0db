"""The README's snippet runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parent.parent / "README.md"


def test_the_snippet_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snippets = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)
    assert len(snippets) == 1
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    with torch.random.fork_rng():
        exec(compile(snippets[0], str(README), "exec"), scope)
    assert scope["found"].scores.shape == (24,)  # type: ignore[attr-defined]
    assert (tmp_path / "map.html").stat().st_size > 1000
