from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from builders import make_index, make_project, make_wheel
from icml26.environments import READY, Environments
from icml26.errors import EnvironmentError_
from icml26.needs import Need


@pytest.fixture
def tiny(served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package index with two versions of a tiny library and something that needs the older one; nothing else is reached."""
    folder, url = served
    old = make_wheel(tmp_path, "tiny", "1.0", plugin=None)
    new = make_wheel(tmp_path, "tiny", "2.0", plugin=None)
    needs_old = make_wheel(tmp_path, "old-fashioned", "1.0", plugin=None, requires=("tiny<2",))
    make_index(folder, old, new, needs_old)
    for name in (
        "UV_FIND_LINKS",
        "PIP_FIND_LINKS",
        "UV_INDEX",
        "PIP_EXTRA_INDEX_URL",
        "UV_CONSTRAINT",
        "PIP_CONSTRAINT",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{url}/simple")


def need(line: str) -> Need:
    return Need(line.split("==")[0].split(" ")[0].split("<")[0], line, line)


def version_in(python: str, name: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_what_cannot_live_together_gets_two_environments(tiny: None, tmp_path: Path) -> None:
    with Environments(tmp_path / "home") as environments:
        one = environments.ensure((need("tiny==1.0"),))
        two = environments.ensure((need("tiny==2.0"),))
        assert one.key != two.key
        assert version_in(one.python, "tiny") == "1.0" and version_in(two.python, "tiny") == "2.0"
        assert {item.key for item in environments.ready()} == {one.key, two.key}


def test_the_same_resolution_is_the_same_environment_whatever_was_asked(tiny: None, tmp_path: Path) -> None:
    said: list[str] = []
    with Environments(tmp_path / "home", say=said.append) as environments:
        first = environments.ensure((Need("tiny", "tiny<2", "same"),))
        assert environments.ensure((Need("tiny", "tiny==1.0", "same"),)).key == first.key
    assert sum(text.startswith("building") for text in said) == 1
    with Environments(tmp_path / "home", say=said.append) as environments:
        environments.ensure((Need("tiny", "tiny<2", "same"),))
    assert sum(text.startswith("resolving") for text in said) == 2


def test_needs_that_contradict_one_another_are_named(tiny: None, tmp_path: Path) -> None:
    with Environments(tmp_path / "home") as environments, pytest.raises(EnvironmentError_, match="tiny") as caught:
        environments.ensure((need("old-fashioned==1.0"), need("tiny==2.0")))
    assert "resolve these together" in str(caught.value)
    assert Environments(tmp_path / "home").ready() == []


def test_an_edited_project_gets_a_new_environment_with_the_new_code(tiny: None, tmp_path: Path) -> None:
    from icml26.needs import _sources

    project = make_project(tmp_path / "project", "own-code")

    def asked() -> tuple[Need, ...]:
        return (Need("own-code", f"own-code @ {project.as_uri()}", _sources(project), str(project)),)

    def text_in(python: str) -> str:
        code = "import own_code, pathlib; print(pathlib.Path(own_code.__file__).read_text())"
        return subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, text=True).stdout

    with Environments(tmp_path / "home") as environments:
        first = environments.ensure(asked())
        (project / "BUILT").unlink()
        assert environments.ensure(asked()).key == first.key
        assert not (project / "BUILT").exists(), "an unchanged project was built again"
        backend = project / "backend.py"
        backend.write_text(
            backend.read_text().replace("'own_code/__init__.py': ''", "'own_code/__init__.py': 'EDITED = 1'")
        )
        second = environments.ensure(asked())
        assert second.key != first.key
        assert "EDITED" in text_in(second.python) and "EDITED" not in text_in(first.python)


def test_a_constraint_file_counts_by_its_content(tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constraints = tmp_path / "constraints.txt"
    monkeypatch.setenv("PIP_CONSTRAINT", str(constraints))
    keys = []
    for version in ("1.0", "2.0"):
        constraints.write_text(f"tiny=={version}\n")
        with Environments(tmp_path / "home") as environments:
            environment = environments.ensure((Need("tiny", "tiny", "any"),))
        assert environment.packages["tiny"] == version
        keys.append(environment.key)
    assert len(set(keys)) == 2


BUILDER = """
import sys
from pathlib import Path
from icml26.environments import Environments
from icml26.needs import Need
with Environments(Path(sys.argv[1]), say=lambda text: print(text, flush=True)) as environments:
    print(environments.ensure((Need("tiny", "tiny==1.0", "x"),)).key, flush=True)
    sys.stdin.read()
"""


def builder(home: Path, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(home)],
        env=os.environ | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_two_benches_that_need_the_same_environment_build_it_once(tiny: None, tmp_path: Path) -> None:
    both = [builder(tmp_path / "home") for _ in range(2)]
    lines = [process.communicate("", timeout=60)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert lines[0][-1] == lines[1][-1]
    assert sum(line.startswith("building") for own in lines for line in own) == 1


SLOW_UV = """#!{python}
import os, sys, time
if "install" in sys.argv:
    open({marker!r}, "w").close()
    time.sleep(60)
os.execv({uv!r}, [{uv!r}, *sys.argv[1:]])
"""


def test_a_killed_build_heals(tiny: None, tmp_path: Path) -> None:
    from icml26.registry.target import find_uv

    marker = tmp_path / "installing"
    slow = tmp_path / "slow" / "uv"
    slow.parent.mkdir()
    slow.write_text(SLOW_UV.format(python=sys.executable, marker=str(marker), uv=find_uv()))
    slow.chmod(0o755)
    process = builder(tmp_path / "home", PATH=f"{slow.parent}{os.pathsep}{os.environ['PATH']}")
    deadline = time.monotonic() + 30
    while not marker.exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (folder,) = [path for path in (tmp_path / "home/environments").iterdir() if path.is_dir() and path.name != "asked"]
    assert not (folder / READY).exists()
    assert Environments(tmp_path / "home").ready() == []
    (folder / "rubbish").write_text("left by the killed build")
    with Environments(tmp_path / "home") as environments:
        environment = environments.ensure((Need("tiny", "tiny==1.0", "x"),))
        assert environment.folder == folder and not (folder / "rubbish").exists()
        assert version_in(environment.python, "tiny") == "1.0"


def test_the_lock_lasts_as_long_as_an_orphaned_installer(tiny: None, tmp_path: Path) -> None:
    from icml26.registry.target import find_uv

    marker = tmp_path / "installing"
    slow = tmp_path / "slow" / "uv"
    slow.parent.mkdir()
    slow.write_text(SLOW_UV.format(python=sys.executable, marker=str(marker), uv=find_uv()))
    slow.chmod(0o755)
    process = builder(tmp_path / "home", PATH=f"{slow.parent}{os.pathsep}{os.environ['PATH']}")
    while not marker.exists():
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)  # the coordinator alone; its installer goes on
    process.wait()
    try:
        assert Environments(tmp_path / "home").prune()[1], "a folder that an installer still fills was pruned"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    deadline = time.monotonic() + 10
    while Environments(tmp_path / "home").prune()[1]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_prune_spares_what_is_used_and_what_is_young(tiny: None, tmp_path: Path) -> None:
    with Environments(tmp_path / "home") as environments:
        old = environments.ensure((need("tiny==1.0"),))
        young = environments.ensure((need("tiny==2.0"),))
        ago = time.time() - 40 * 86400
        os.utime(old.folder / READY, (ago, ago))
        assert Environments(tmp_path / "home").prune(unused_for=timedelta(days=30)) == ([], [old.key])
    assert Environments(tmp_path / "home").prune(unused_for=timedelta(days=30), dry_run=True) == ([old.key], [])
    assert old.folder.exists()
    assert Environments(tmp_path / "home").prune(unused_for=timedelta(days=30)) == ([old.key], [])
    assert not old.folder.exists() and young.folder.exists()
    assert Environments(tmp_path / "home").prune() == ([young.key], [])
    with Environments(tmp_path / "home") as environments:
        assert environments.ensure((need("tiny==1.0"),)).key == old.key, "a pruned environment is made again"


def test_threads_of_one_process_share_what_is_built(tiny: None, tmp_path: Path) -> None:
    found: list[str] = []

    def work() -> None:
        with Environments(tmp_path / "home") as environments:
            found.append(environments.ensure((need("tiny==1.0"),)).key)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and len(set(found)) == 1


def test_a_ready_mark_of_another_schema_is_not_trusted(tiny: None, tmp_path: Path) -> None:
    with Environments(tmp_path / "home") as environments:
        environment = environments.ensure((need("tiny==1.0"),))
    (environment.folder / READY).write_text(json.dumps({"schema": "icml26.environment/99"}))
    said: list[str] = []
    with Environments(tmp_path / "home", say=said.append) as environments:
        environments.ensure((need("tiny==1.0"),))
    assert any(text.startswith("building") for text in said)


def test_without_uv_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icml26.environments.find_uv", lambda: None)
    with pytest.raises(EnvironmentError_, match=r"pip install 'icml26\[env\]'"), Environments(tmp_path) as environments:
        environments.ensure((need("tiny==1.0"),))
