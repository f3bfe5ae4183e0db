"""The README's Python snippet runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch


def test_the_snippet_runs_and_its_features_live() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(snippet, "README.md", "exec"), names)
    assert float((names["codes"] > 0).any(0).float().mean()) > 0.95 and float(names["error"]) < 0.2
    assert names["trained"].report.active.q == 8 and torch.is_tensor(names["codes"])
