"""What the pages of docs/ show works: their files are written, commands run, Python executed, in order, in one folder a page."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[3] / "docs"
#: How many blocks of console and of Python a page has at least: a page that is not understood is not tested.
EXPECTED = {"data.md": (4, 3), "benches.md": (6, 1), "scale.md": (4, 0)}
_BLOCK = re.compile(
    r"^(?:<!-- (?P<key>file|exit): (?P<value>\S+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    file: str | None
    exit_code: int


def blocks(page: Path) -> Iterator[Block]:
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        key, value = found["key"], found["value"]
        yield Block(
            found["language"], found["text"], value if key == "file" else None, int(value) if key == "exit" else 0
        )


def check_command(block: Block, folder: Path) -> None:
    command, *expected = block.text.removeprefix("$ ").rstrip().split("\n")
    program, *arguments = shlex.split(command)
    assert program == "icml26"
    done = subprocess.run([sys.executable, "-m", "icml26", *arguments], cwd=folder, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == block.exit_code, said
    assert expected
    for line in expected:
        assert line in said, f"{line!r} is not in:\n{said}"


@pytest.mark.skipif(not PAGES.exists(), reason="docs/ is part of the repository, not of this distribution")
@pytest.mark.parametrize("name", EXPECTED)
def test_every_block_of_the_page_does_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGES / name
    monkeypatch.chdir(tmp_path)
    seen = []
    for block in blocks(page):
        seen.append(block.language)
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            check_command(block, tmp_path)
        elif block.language == "python":
            exec(compile(block.text, str(page), "exec"), {"__name__": "page"})
        else:
            assert block.language == "text", f"a block of {block.language} that nothing checks"
    consoles, pythons = EXPECTED[name]
    assert seen.count("console") >= consoles and seen.count("python") >= pythons
