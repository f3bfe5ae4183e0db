"""An interpreter that has this environment's packages and the lab plugin: workers run isolated, so a path is not enough."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import asdict
from pathlib import Path
from typing import Any

from icml26.ids import new_id
from icml26.keys import digest
from icml26.records import RunRequest

LAB = Path(__file__).parent / "lab"
_BUILD = """
from pathlib import Path
from icml26.index_build import build_index, write_index
write_index(build_index("lab", "icml26-plugin-lab", "icml26_plugin_lab.plugin"), Path(r"{package}"))
"""


def make_environment(folder: Path) -> Path:
    """Make the environment in ``folder``; returns its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    package = site / "icml26_plugin_lab"
    package.mkdir()
    for source in (LAB / "icml26_plugin_lab").glob("*.py"):
        (package / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    info = site / "icml26_plugin_lab-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: icml26-plugin-lab\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[icml26]\nlab = icml26_plugin_lab.plugin\n", encoding="utf-8")
    (info / "RECORD").write_text("", encoding="utf-8")
    ours = sysconfig.get_path("purelib")
    (site / "base.pth").write_text(f"import site; site.addsitedir({ours!r})\n", encoding="utf-8")
    environment = {**os.environ, "ICML26_LAB_BUILD": "1"}
    subprocess.run([python, "-I", "-c", _BUILD.format(package=package)], check=True, env=environment, timeout=60)
    return python


def request(method: str = "noop", dataset: str = "nothing", *, seed: int = 0, **changes: Any) -> RunRequest:
    """A request to the lab; ``config`` and the other fields of RunRequest can be given."""
    fields: dict[str, Any] = {
        "task": "testing.lab",
        "method": f"lab/{method}",
        "config": {},
        "dataset": f"lab/{dataset}",
        "dataset_config": {},
        "seed": seed,
        "metrics": ("lab/score",),
        **changes,
    }
    defaults = {"noop": {"seconds": 0.0, "variant": 0}, "other": {"seconds": 0.0, "variant": 0}}
    fields["config"] = {**defaults.get(method, {}), **fields["config"]}
    made = RunRequest(record_id=new_id(), key="", **fields)
    facts = {name: value for name, value in asdict(made).items() if name not in ("record_id", "key", "limits")}
    return RunRequest(**{**asdict(made), "key": digest(facts)})


def mischief(do: str, size: float = 0.0, path: Path | str = "", **changes: Any) -> RunRequest:
    """A request that does harm."""
    return request("mischief", config={"do": do, "size": size, "path": str(path)}, **changes)


if __name__ == "__main__":
    print(make_environment(Path(sys.argv[1])))
