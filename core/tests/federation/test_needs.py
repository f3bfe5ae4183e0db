from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import make_project, make_wheel, sha256
from icml26.catalog import Catalog, Entry, Plugin
from icml26.errors import EnvironmentError_
from icml26.needs import needs_of, needs_of_metric
from icml26.records import RunRequest
from icml26.specs import DatasetSpec, MethodSpec, MetricSpec, TaskSpec


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    installed(folder, "icml26", "9.9")
    return folder


def installed(site: Path, name: str, version: str = "1.0", requires: tuple[str, ...] = (), origin: Any = None) -> None:
    """The metadata folder of an installed distribution."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(head + "".join(f"Requires-Dist: {item}\n" for item in requires))
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))


def catalog(*distributions: str, extra: str | None = None, task_of: str = "plug-a") -> Catalog:
    """Plugins of these distributions; the first has a method, the last a metric, ``task_of`` task and dataset."""
    entries = (
        Entry("method", "a", distributions[0], MethodSpec("m", "t.t", "a:M", "", extra=extra)),
        Entry("dataset", "t", task_of, DatasetSpec("d", "t.t", "t:D", "")),
        Entry("task", "t", task_of, TaskSpec("t.t", "", "t:I", "t:T", "t:O")),
        Entry("metric", "z", distributions[-1], MetricSpec("s", "t.t", "z:s")),
    )
    plugins = tuple(Plugin(name, name, "1.0", "x") for name in (*distributions, "icml26"))
    return Catalog(plugins, entries)


REQUEST = RunRequest("id", "key", "t.t", "a/m", {}, "t/d", {}, metrics=("z/s",))


def lines(found: tuple[Any, ...]) -> list[str]:
    return [need.line for need in found]


def test_everything_that_a_run_touches_is_needed_once(site: Path) -> None:
    for name in ("plug-a", "plug-t", "plug-z"):
        installed(site, name)
    found = needs_of(catalog("plug-a", "plug-t", "plug-z", task_of="plug-t"), REQUEST)
    assert lines(found) == ["icml26==9.9", "plug-a==1.0", "plug-t==1.0", "plug-z==1.0"]
    assert lines(needs_of_metric(catalog("plug-a", "plug-z"), "z/s")) == ["icml26==9.9", "plug-z==1.0"]


def test_plugins_that_a_plugin_requires_come_as_they_are_installed_here(site: Path, tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", "plug-b")
    installed(site, "plug-a", requires=("plug-b>=1", "numpy", "plug-c ; extra == 'more'"))
    installed(site, "plug-b", origin={"url": project.as_uri(), "dir_info": {"editable": True}})
    installed(site, "plug-c")
    found = needs_of(catalog("plug-a", "plug-b", "plug-c", "plug-a"), REQUEST)
    assert lines(found) == ["icml26==9.9", "plug-a==1.0", f"plug-b @ {project.as_uri()}"]


def test_an_edited_editable_plugin_is_another_need(site: Path, tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", "plug-a")
    (project / "src").mkdir()
    (project / "src" / "code.py").write_text("A = 1\n")
    installed(site, "plug-a", origin={"url": project.as_uri(), "dir_info": {"editable": True}})

    def content() -> str:
        return needs_of(catalog("plug-a"), REQUEST)[1].content

    before = content()
    assert content() == before
    (project / "src" / "__pycache__").mkdir()
    (project / "src" / "__pycache__" / "code.pyc").write_bytes(b"x")
    assert content() == before
    (project / "src" / "code.py").write_text("A = 2\n")
    edited = content()
    (project / "pyproject.toml").write_text((project / "pyproject.toml").read_text() + "\n")
    assert len({before, edited, content()}) == 3


def test_a_commit_is_needed_as_that_commit(site: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    vcs = {"vcs": "git", "requested_revision": "main", "commit_id": commit}
    installed(site, "plug-a", origin={"url": "https://example.org/a.git", "subdirectory": "p/a", "vcs_info": vcs})
    (need,) = [item for item in needs_of(catalog("plug-a"), REQUEST) if item.name == "plug-a"]
    assert need.line == f"plug-a @ git+https://example.org/a.git@{commit}#subdirectory=p/a"


def test_a_wheel_is_needed_as_that_file_while_it_is_there_unchanged(site: Path, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "plug-a")
    installed(site, "plug-a", origin={"url": wheel.as_uri(), "archive_info": {"hashes": {"sha256": sha256(wheel)}}})

    def need() -> Any:
        return next(item for item in needs_of(catalog("plug-a"), REQUEST) if item.name == "plug-a")

    assert need().line == f"plug-a @ {wheel.as_uri()}" and sha256(wheel) in need().content
    wheel.write_bytes(b"another")
    assert need().line == "plug-a==1.0"
    wheel.unlink()
    assert need().line == "plug-a==1.0"


def test_an_extra_that_a_method_needs_comes_along(site: Path) -> None:
    installed(site, "plug-a", requires=("tiny ; extra == 'trees'",))
    assert "plug-a[trees]==1.0" in lines(needs_of(catalog("plug-a", extra="trees"), REQUEST))


def test_a_project_folder_that_is_gone_is_told(site: Path, tmp_path: Path) -> None:
    installed(site, "plug-a", origin={"url": (tmp_path / "gone").as_uri(), "dir_info": {}})
    with pytest.raises(EnvironmentError_, match=r"plug-a was installed from .*gone.*reinstall"):
        needs_of(catalog("plug-a"), REQUEST)
