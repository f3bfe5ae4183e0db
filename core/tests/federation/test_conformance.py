"""The mutation test of the kit: a plugin with one defect fails the one check that is for it, and no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import make_wheel
from defects import DEFECTS, RUN_MEAN, Defect, finish, install
from icml26.testing.kit import CHECKS, IDS
from icml26.testing.packaging_checks import wheel_is_complete
from test_cli import Environment

INDEX = """
import json, sys
from icml26.distributions import scan
from icml26.index_build import build_index, write_index
from icml26.plugins import locate
for distribution in scan().distributions:
    if distribution.entry_point in sys.argv[1:]:
        candidate = locate(distribution)
        smoke = json.load(open(candidate.index_path))["smoke"]
        from pathlib import Path
        write_index(
            build_index(distribution.entry_point, distribution.name, distribution.module, smoke=smoke), Path(candidate.folder)
        )
"""
CHECK = """
import json, sys
from pathlib import Path
from icml26.testing.kit import check_plugin
reports = {}
for name in sys.argv[2:]:
    seconds = 3.0 if name == "run-hangs" else 60.0
    reports[name] = check_plugin(name, trial_seconds=seconds).to_json()["checks"]
Path(sys.argv[1]).write_text(json.dumps(reports))
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The report of every bad plugin, all installed in one environment, and of a good one."""
    folder = tmp_path_factory.mktemp("conformance")
    environment = Environment(folder / "environment", folder / "home")
    install(None, "good", folder, environment.site)
    for defect in DEFECTS:
        install(defect, defect.name, folder, environment.site)

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(environment.python), "-c", *arguments],
            env=environment.variables | {"PYTHONHASHSEED": "1"},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(process: subprocess.Popen[str]) -> None:
        _, words = process.communicate()
        assert process.returncode == 0, words[-3000:]

    end(start(INDEX, *(defect.name for defect in DEFECTS if defect.reindex)))
    for defect in DEFECTS:
        finish(defect, folder, environment.site)
    names = ["good", *(defect.name for defect in DEFECTS)]
    halves = [start(CHECK, str(folder / f"{half}.json"), *names[half::2]) for half in range(2)]
    for process in halves:
        end(process)
    found: dict[str, list[dict[str, Any]]] = {}
    for half in range(2):
        found |= json.loads((folder / f"{half}.json").read_text())
    return found


def test_the_plugin_without_a_defect_passes_every_check(reports: dict[str, list[dict[str, Any]]]) -> None:
    assert {check["id"]: check["outcome"] for check in reports["good"]} == dict.fromkeys(IDS, "passed")


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_fails_its_own_check_alone(defect: Defect, reports: dict[str, list[dict[str, Any]]]) -> None:
    failed = {check["id"]: check for check in reports[defect.name] if check["outcome"] == "failed"}
    assert set(failed) == {defect.check}, {name: check["message"] for name, check in failed.items()}
    check = failed[defect.check]
    assert defect.says in check["message"]
    assert check["reason"] and (check["fix"] or defect.check == "listed")


def test_every_check_has_a_plugin_that_fails_it() -> None:
    assert {defect.check for defect in DEFECTS} == set(IDS)
    assert len(DEFECTS) >= 30 and len({check.reason for check in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize(
    ("left_out", "says"),
    [
        ("LICENSE", "holds no LICENSE"),
        ("icml26-index.json", "icml26-index.json"),
        ("py.typed", "py.typed"),
        ("README", "README"),
    ],
)
def test_a_wheel_that_lacks_something_is_told_before_its_release(left_out: str, says: str, tmp_path: Path) -> None:
    import zipfile

    path = make_wheel(tmp_path, "icml26-plugin-demo")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    info = "icml26_plugin_demo-1.0.dist-info"
    members |= {
        f"{info}/licenses/LICENSE": "x",
        "icml26_plugin_demo/icml26-index.json": "{}",
        "icml26_plugin_demo/py.typed": "",
    }
    members[f"{info}/METADATA"] += "\n" + (
        "" if left_out == "README" else "What it is, in more than fifty characters, for people."
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            if not name.endswith(left_out):
                archive.writestr(name, text)
    (problem,) = wheel_is_complete(path, "icml26_plugin_demo")
    assert says in problem.message and problem.fix


PYTEST_CASES = """
from icml26.testing import conformance_tests

test_conformance = conformance_tests("{name}", expected={expected!r})
"""


@pytest.fixture
def one(tmp_path: Path) -> Environment:
    """An environment with the plugin ``wrong-way-round``."""
    environment = Environment(tmp_path / "environment", tmp_path / "home")
    (defect,) = [item for item in DEFECTS if item.name == "wrong-way-round"]
    install(defect, defect.name, tmp_path, environment.site)
    return environment


def test_authors_run_it_as_tests_as_an_option_and_as_a_command(one: Environment, tmp_path: Path) -> None:
    name = "wrong-way-round"
    assert one("check-plugin", name, "--write-index").stdout.endswith("icml26-index.json\n")
    told = one("check-plugin", name, code=1)
    assert "FAILED            metric-direction" in told.stdout and "fix: " in told.stdout
    expected = one("check-plugin", name, "--expect", "metric-direction=a known mistake")
    assert "expected failure  metric-direction  (a known mistake)" in expected.stdout
    needless = one("check-plugin", name, "--only", "no-print", "--expect", "no-print=why")
    assert "take the expectation away" in needless.stdout
    assert "did you mean 'no-print'" in one("check-plugin", name, "--only", "no-prints", code=2).stderr

    (tmp_path / "test_it.py").write_text(
        PYTEST_CASES.format(name=name, expected={"metric-direction": "a known mistake"})
    )
    command = [str(one.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rx"]
    tests = subprocess.run([*command, "test_it.py"], cwd=tmp_path, env=one.variables, capture_output=True, text=True)
    assert tests.returncode == 0 and "1 xfailed" in tests.stdout and "a known mistake" in tests.stdout, tests.stdout
    (tmp_path / "no-tests").mkdir()
    option = subprocess.run(
        [*command, "--icml26-plugin", name, str(tmp_path / "no-tests")],
        cwd=tmp_path,
        env=one.variables,
        capture_output=True,
        text=True,
    )
    assert option.returncode == 1 and "1 failed, 31 passed" in option.stdout, option.stdout


def test_a_method_that_fails_its_smoke_run_stays_in_the_index(one: Environment, tmp_path: Path) -> None:
    package = tmp_path / "wrong-way-round" / "src" / "icml26_plugin_wrong_way_round"
    index = package / "icml26-index.json"
    one("check-plugin", "wrong-way-round", "--write-index", "--smoke")
    before = json.loads(index.read_text(encoding="utf-8"))
    assert len(before["smoke"]) == len(before["methods"]) > 1
    methods = package / "methods.py"
    whole = methods.read_text(encoding="utf-8")
    methods.write_text(whole.replace(RUN_MEAN, 'raise ValueError("no mean today")'), encoding="utf-8")
    told = one("check-plugin", "wrong-way-round", "--write-index", "--smoke", code=1)
    after = json.loads(index.read_text(encoding="utf-8"))
    assert after["methods"] == before["methods"]
    (gone,) = set(before["smoke"]) - set(after["smoke"])
    assert f"{gone} is in the index without smoke scores: refused: no mean today" in told.stderr
    assert told.stdout.endswith("icml26-index.json\n")
    none = one("check-plugin", "wrong-way-round", "--write-index", "--smoke", "--timeout", "10ms", code=1)
    assert none.stderr.count("timed-out") == len(before["methods"])
    assert json.loads(index.read_text(encoding="utf-8"))["smoke"] == {}


def test_the_pytest_plugin_imports_nothing_until_it_is_asked() -> None:
    heavy = "[name for name in sys.modules if name in ('numpy', 'pydantic', 'typer')]"
    code = f"import sys; import icml26.testing.pytest_plugin; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
