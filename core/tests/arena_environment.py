"""An environment with the arena plugin installed, in which the command line runs in processes of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ARENA = Path(__file__).parent / "arena" / "icml26_plugin_arena"
_BUILD = """
from pathlib import Path
from icml26.index_build import build_index, write_index
write_index(build_index("arena", "icml26-plugin-arena", "icml26_plugin_arena.plugin"), Path(r"{package}"))
"""


@dataclass(frozen=True)
class Arena:
    """The interpreter, and the home folder of one test."""

    python: Path
    home: Path

    def popen(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """``icml26 ARGUMENTS`` in a process of its own."""
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith("ICML26_") and key != "PYTHONPATH"
        }
        environment = {**kept, "ICML26_HOME": str(self.home), "PYTHONUTF8": "1"}
        return subprocess.Popen(
            [self.python, "-m", "icml26", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=environment,
            cwd=options.pop("cwd", self.home.parent),
            **options,
        )

    def run(self, *arguments: str, code: int | None = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run to the end and check the exit code."""
        process = self.popen(*arguments, **({} if cwd is None else {"cwd": cwd}))
        out, err = process.communicate(timeout=120)
        assert code is None or process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """The one JSON document of a command."""
        document: dict[str, Any] = json.loads(self.run(*arguments, "--json", code=code).stdout)
        return document


def make_environment(folder: Path) -> Path:
    """Make the environment in ``folder``; returns its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    package = site / ARENA.name
    shutil.copytree(ARENA, package, ignore=shutil.ignore_patterns("__pycache__"))
    info = site / "icml26_plugin_arena-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: icml26-plugin-arena\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[icml26]\narena = icml26_plugin_arena.plugin\n", encoding="utf-8")
    (info / "RECORD").write_text("", encoding="utf-8")
    ours = sysconfig.get_path("purelib")
    (site / "base.pth").write_text(f"import site; site.addsitedir({ours!r})\n", encoding="utf-8")
    subprocess.run([python, "-I", "-c", _BUILD.format(package=package)], check=True, timeout=60)
    return python
