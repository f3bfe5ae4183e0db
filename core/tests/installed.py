"""Tiny real distributions in a folder, and the command line run on them in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icml26.index import INDEX_FILE

HOOKS = """
from icml26.hookspecs import hookimpl
from icml26.specs import DatasetSpec, MethodSpec, MetricSpec, TaskSpec, Value

@hookimpl
def icml26_tasks():
    return [TaskSpec("toys.{name}", "A task", "{package}.types:I", "{package}.types:T", "{package}.types:O", ("score",))]

@hookimpl
def icml26_methods():
    return [
        MethodSpec("{name}", "toys.{name}", "{package}.impl:M", "The paper's way", reference="plain", default_dataset="toy"),
        MethodSpec("plain", "toys.{name}", "{package}.impl:M", "The plain way", role="reference"),
    ]

@hookimpl
def icml26_datasets():
    return [DatasetSpec("toy", "toys.{name}", "{package}.impl:D", "A toy")]

@hookimpl
def icml26_metrics():
    return [MetricSpec("score", "toys.{name}", "{package}.impl:score", (Value("", None, "higher"),), "A score")]
"""

_CLEARED = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "LC_ALL", "LANG"}
_CLEARED_PREFIXES = ("ICML26_", "PYTHON", "_ICML26", "_TYPER")


@dataclass
class Site:
    """A folder of installed distributions. ``run`` puts it on the path of ``python -m icml26``."""

    folder: Path
    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    def add(
        self,
        name: str,
        hooks: str = HOOKS,
        *,
        index: bool | Mapping[str, Any] | str = False,
        version: str = "0.1",
        entry_point: str | None = None,
        metadata: str = "",
        core_api: int = 1,
        task: str | None = None,
    ) -> Path:
        """Install ``icml26-plugin-<name>``; ``index=True`` ships the index of ``HOOKS``. Returns the package folder."""
        package = "icml26_plugin_" + name.replace("-", "_")
        folder = self.folder / package
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
        (folder / "plugin.py").write_text(hooks.replace("{name}", name).replace("{package}", package))
        self.metadata(name, version=version, entry_point=entry_point, text=metadata)
        if index is True:
            document = index_of(entry_point or name, f"icml26-plugin-{name}", package, core_api=core_api, task=task)
            (folder / INDEX_FILE).write_text(json.dumps(document))
        elif index:
            (folder / INDEX_FILE).write_text(index if isinstance(index, str) else json.dumps(index))
        return folder

    def metadata(self, name: str, *, version: str, entry_point: str | None = None, text: str = "") -> Path:
        """Write the metadata folder of a plugin; returns it."""
        package = "icml26_plugin_" + name.replace("-", "_")
        folder = self.folder / f"{package}-{version}.dist-info"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: icml26-plugin-{name}\nVersion: {version}\n{text}\n"
        )
        (folder / "entry_points.txt").write_text(f"[icml26]\n{entry_point or name} = {package}.plugin\n")
        return folder

    def variables(self, **more: str) -> dict[str, str]:
        """The environment of a child."""
        kept = {
            key: value
            for key, value in os.environ.items()
            if key not in _CLEARED and not key.startswith(_CLEARED_PREFIXES)
        }
        own = {"PYTHONPATH": str(self.folder), "ICML26_HOME": str(self.home), "PYTHONUTF8": "1"}
        return {**kept, **own, **self.environment, **more}

    def run(self, *arguments: str, python: str = sys.executable, **more: str) -> subprocess.CompletedProcess[str]:
        """``icml26 ARGUMENTS`` with pipes for its streams."""
        return subprocess.run(
            [python, "-m", "icml26", *arguments],
            capture_output=True,
            text=True,
            encoding="utf-8",
            env=self.variables(**more),
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    def json(self, *arguments: str, **more: str) -> dict[str, Any]:
        """The one JSON document of a command that ends with 0."""
        done = self.run(*arguments, "--json", **more)
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document


def index_of(
    plugin: str, distribution: str, package: str, *, core_api: int = 1, task: str | None = None
) -> dict[str, Any]:
    """The index that ``HOOKS`` give."""
    task = task or f"toys.{plugin}"
    method = {"task": task, "target": f"{package}.impl:M", "config_schema": {"type": "object", "properties": {}}}
    return {
        "schema": "icml26.index/1",
        "core_api": core_api,
        "plugin": plugin,
        "distribution": distribution,
        "tasks": [
            {
                "name": task,
                "summary": "A task",
                "inputs": f"{package}.types:I",
                "truth": f"{package}.types:T",
                "output": f"{package}.types:O",
                "metrics": [f"{plugin}/score"],
            }
        ],
        "methods": [
            {
                **method,
                "name": plugin,
                "summary": "The paper's way",
                "reference": f"{plugin}/plain",
                "default_dataset": f"{plugin}/toy",
            },
            {**method, "name": "plain", "summary": "The plain way", "role": "reference"},
        ],
        "datasets": [{"name": "toy", "task": task, "target": f"{package}.impl:D", "summary": "A toy"}],
        "metrics": [
            {
                "name": "score",
                "task": task,
                "target": f"{package}.impl:score",
                "summary": "A score",
                "values": [{"name": "", "unit": None, "direction": "higher"}],
            }
        ],
        "recipes": [],
        "smoke": {},
    }
