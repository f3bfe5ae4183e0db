"""The README's Python runs."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_snippet_runs() -> None:
    import torch

    (snippet,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, object] = {}
    with torch.random.fork_rng(devices=[]):
        exec(compile(snippet, str(README), "exec"), scope)
    assert scope["answer"].shape[0] == 1  # type: ignore[attr-defined]
