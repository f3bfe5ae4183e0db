"""The README's Python runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("code", BLOCKS)
def test_a_block_of_the_readme_runs_and_prints(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, str(README), "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_readme_has_code() -> None:
    assert BLOCKS
