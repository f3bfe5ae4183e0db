"""Two plugins for one task that need incompatible versions of one library, as wheels made by the test."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from builders import make_index, make_wheel, wheel_members
from icml26.index import INDEX_SCHEMA, SECTIONS, spec_to_json

NO_OPTIONS = {"type": "object", "properties": {}, "additionalProperties": False}

SHARED_TYPES = """
from dataclasses import dataclass
import numpy as np

@dataclass(frozen=True)
class Inputs:
    x: np.ndarray

@dataclass(frozen=True)
class Truth:
    total: float

@dataclass(frozen=True)
class Output:
    total: float
"""
SHARED_PLUGIN = """
from icml26 import DatasetSpec, MetricSpec, TaskSpec, Value, hookimpl

P = "icml26_plugin_shared"

@hookimpl
def icml26_tasks():
    yield TaskSpec("sums.estimation", "Estimate a sum.", inputs=f"{P}.types:Inputs", truth=f"{P}.types:Truth",
                   output=f"{P}.types:Output", metrics=("sum-error",))

@hookimpl
def icml26_datasets():
    yield DatasetSpec("normal", "sums.estimation", f"{P}.work:Normal", "Standard normal draws.")

@hookimpl
def icml26_metrics():
    yield MetricSpec("sum-error", "sums.estimation", f"{P}.work:error", (Value("", None, "lower"),), "Absolute error.")
    yield MetricSpec("ratio", "sums.estimation", f"{P}.work:ratio", (Value("", None, "lower"),), "Error over the older's.",
                     needs=("sum-error",), relative_to="older/older")
"""
SHARED_WORK = """
from icml26 import Dataset, Problem
from icml26_plugin_shared.types import Inputs, Truth

class Normal(Dataset):
    def load(self, ctx):
        x = ctx.rng.standard_normal(100)
        return Problem(Inputs(x), Truth(float(x.sum())))

def error(output, truth):
    return abs(output.total - truth.total)

def ratio(scores, reference_scores):
    return scores["sum-error"] / reference_scores["sum-error"]
"""
METHOD_PLUGIN = """
from icml26 import MethodSpec, hookimpl

@hookimpl
def icml26_methods():
    yield MethodSpec("{name}", "sums.estimation", "icml26_plugin_{name}.work:Shifted", "A shifted sum.",
                     default_dataset="shared/normal", reference={reference})
"""
METHOD_WORK = """
import tiny
from icml26 import Method
from icml26_plugin_shared.types import Output

class Shifted(Method):
    def run(self, inputs, ctx):
        return Output(float(inputs.x.sum()) + tiny.SHIFT)
"""


def index_of(name: str, hooks: str) -> str:
    """The static index that goes with a hook module, made without importing what its targets name."""
    module: dict[str, Any] = {}
    exec(hooks, module)
    document: dict[str, Any] = {
        "schema": INDEX_SCHEMA,
        "core_api": 1,
        "plugin": name,
        "distribution": f"icml26-plugin-{name}",
    }
    for kind, section in SECTIONS.items():
        specs = module.get(f"icml26_{section}", tuple)()
        schema = {"config_schema": NO_OPTIONS} if kind in ("method", "dataset") else {}
        document[section] = [spec_to_json(spec) | schema for spec in specs]
    return json.dumps(document)


def make_plugin(folder: Path, name: str, requires: tuple[str, ...], files: dict[str, str]) -> Path:
    members = wheel_members(f"icml26-plugin-{name}", "1.0", name, requires)
    files = {**files, "icml26-index.json": index_of(name, files["plugin.py"])}
    members |= {f"icml26_plugin_{name}/{file}": text for file, text in files.items()}
    info = next(member.split("/")[0] for member in members if ".dist-info/" in member)
    members[f"{info}/RECORD"] = "".join(f"{member},,\n" for member in members)
    path = folder / f"icml26_plugin_{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in members.items():
            archive.writestr(member, text)
    return path


def make_conflict(served: Path, folder: Path) -> None:
    """An index with ``shared``, with ``older`` (tiny 1, shifts by 1) and ``newer`` (tiny 2, shifts by 2)."""
    shared = "icml26-plugin-shared"
    wheels = [
        make_wheel(folder, "tiny", "1.0", plugin=None, init="SHIFT = 1.0"),
        make_wheel(folder, "tiny", "2.0", plugin=None, init="SHIFT = 2.0"),
        make_plugin(
            folder, "shared", (), {"types.py": SHARED_TYPES, "plugin.py": SHARED_PLUGIN, "work.py": SHARED_WORK}
        ),
    ]
    for name, library, reference in (("older", "tiny<2", None), ("newer", "tiny>=2", "'older/older'")):
        files = {"plugin.py": METHOD_PLUGIN.format(name=name, reference=reference), "work.py": METHOD_WORK}
        wheels.append(make_plugin(folder, name, (library, shared), files))
    make_index(served, *wheels)
