"""The README's snippet runs as it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from icml26_plugin_flashtrace.file_datasets import marked_row

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


def test_the_row_of_the_jsonl_example_marks_what_it_says() -> None:
    (line,) = re.findall(r"```json\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)
    row = marked_row(json.loads(line), "row 1")
    assert row.output_chars is not None and row.gold_chars is not None
    assert row.target[slice(*row.output_chars)] == "3"
    assert [row.prompt[a:b] for a, b in row.gold_chars] == ["Ada has 3 cats."]
