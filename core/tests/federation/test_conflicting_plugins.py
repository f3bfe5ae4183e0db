"""Methods whose dependencies cannot live together, compared in one bench."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conflicting import make_conflict
from test_cli import Environment, entry


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
    bench = ("bench", "older", "newer", "--dataset", "normal", "--seeds", "0,1", "--executor", "env", "--quiet")
    result = environment.json(*bench, "--metrics", "sum-error,ratio")
    rows = sorted((r["method"]["name"], r["seed"], r["metrics"]["sum-error"]["value"]) for r in result["records"])  # type: ignore[attr-defined]
    assert [(name, seed, round(value, 9)) for name, seed, value in rows] == [
        ("newer/newer", 0, 2.0),
        ("newer/newer", 1, 2.0),
        ("older/older", 0, 1.0),
        ("older/older", 1, 1.0),
    ]
    ratios = {r["method"]["name"]: r["metrics"]["ratio"]["value"] for r in result["records"]}  # type: ignore[attr-defined]
    assert ratios["newer/newer"] == pytest.approx(2.0), result["records"]
    assert len(result["table"]) == 2  # type: ignore[arg-type]
    listed = environment.json("env", "list")["environments"]
    assert sorted(row["packages"].get("tiny", "") for row in listed) == ["", "1.0", "2.0"]  # type: ignore[attr-defined]
    again = environment("env", "create", "older")
    assert "building" not in again.stderr
    assert len(environment("env", "prune", "--all").stdout.splitlines()) == 3


def test_needs_that_no_environment_can_meet_are_failed_runs_and_the_rest_goes_on(
    environment: Environment, served: tuple[Path, str]
) -> None:
    environment("install", "shared", "older", "newer", "--no-deps", "--index-url", f"{served[1]}/simple")
    gone = served[0] / "simple" / "tiny" / "index.html"
    gone.write_text(gone.read_text().replace("tiny-2.0", "tiny-0.5"))
    bench = ("bench", "older", "newer", "--dataset", "normal", "--executor", "env", "--quiet")
    result = environment.json(*bench, code=1)
    status = {record["method"]["name"]: record["status"] for record in result["records"]}  # type: ignore[attr-defined]
    assert status == {"older/older": "succeeded", "newer/newer": "failed"}
    (failed,) = [record for record in result["records"] if record["status"] == "failed"]  # type: ignore[attr-defined]
    assert "tiny" in failed["error"]["message"] and "uv could not resolve" in failed["error"]["message"]
