"""Methods whose dependencies cannot live together, compared in one bench."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from conflicting import make_conflict
from test_cli import Environment, entry

COMPARE = """
import json, sys
from pathlib import Path
from icml26.coordinator import run_all
from icml26.environments import Environments
from icml26.executors.local import LocalExecutor
from icml26.plan import Choice, Planner, Settings, applicable
from icml26.plugins import load_catalog
from icml26.store import Store

catalog = load_catalog()
planner = Planner(catalog, Settings())
requests = [applicable(planner.plan(Choice(name), None, seed=seed)) for name in ("older", "newer") for seed in (0, 1)]
said = []
home = Path(sys.argv[1])
executor = LocalExecutor(1)
try:
    with Environments(home, say=said.append) as environments:
        interpreters = environments.interpreters(catalog, requests)
        summary = run_all(requests, executor, Store.open(home / "store.sqlite3"), runs_folder=home / "runs",
                          python=lambda request: interpreters[request.key])
finally:
    executor.close()
rows = [
    [record.method["name"], record.seed, record.status, record.value("sum-error"), record.error]
    for record in summary.records.values()
]
print(json.dumps({"rows": sorted(rows), "said": said}))
"""


@pytest.fixture
def environment(tmp_path: Path, served: tuple[Path, str]) -> Environment:
    """An environment with all three plugins and, as must be, only one of the two versions of ``tiny``."""
    folder, url = served
    (tmp_path / "wheels").mkdir()
    make_conflict(folder, tmp_path / "wheels")
    registry = tmp_path / "registry.toml"
    registry.write_text("schema = 1\n" + "".join(map(entry, ("shared", "older", "newer"))))
    environment = Environment(tmp_path / "environment", tmp_path / "home")
    environment.variables |= {"ICML26_REGISTRY": str(registry), "UV_INDEX": f"{url}/simple"}
    if "PIP_FIND_LINKS" in os.environ:
        environment.variables.setdefault("UV_FIND_LINKS", os.environ["PIP_FIND_LINKS"])
    return environment


def test_they_meet_in_one_table(environment: Environment, served: tuple[Path, str], tmp_path: Path) -> None:
    index = ("--index-url", f"{served[1]}/simple")
    together = environment("install", "older", "newer", *index, code=4)
    assert "tiny" in together.stderr
    environment("install", "shared", "older", "newer", "--no-deps", *index)
    done = subprocess.run(
        [str(environment.python), "-c", COMPARE, str(tmp_path / "home")],
        env=environment.variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert [(name, seed, status) for name, seed, status, *_ in result["rows"]] == [
        ("newer/newer", 0, "succeeded"),
        ("newer/newer", 1, "succeeded"),
        ("older/older", 0, "succeeded"),
        ("older/older", 1, "succeeded"),
    ], result
    assert [round(row[3], 9) for row in result["rows"]] == [2.0, 2.0, 1.0, 1.0]
    listed = environment.json("env", "list")["environments"]
    assert sorted(row["packages"]["tiny"] for row in listed) == ["1.0", "2.0"]  # type: ignore[attr-defined]
    assert sum(text.startswith("building") for text in result["said"]) == 2
    again = environment("env", "create", "older")
    assert "building" not in again.stderr
    assert len(environment("env", "prune", "--all").stdout.splitlines()) == 2
