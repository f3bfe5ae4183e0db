from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from builders import commit_all, git, make_index, make_project, make_wheel, sha256
from icml26.errors import EnvironmentError_, UsageError
from icml26.registry import target as target_module
from icml26.registry.federation import Federation
from icml26.registry.install import Options, install, outcome_rows, to_uninstall, uninstall
from icml26.registry.reader import parse_registry
from icml26.registry.target import IndexOptions, Target, this_environment


def entry(name: str, source: str = '{ kind = "index" }', more: str = "", distribution: str | None = None) -> str:
    distribution = distribution or f"icml26-plugin-{name}"
    return f'[[plugin]]\nname = "{name}"\ndistribution = "{distribution}"\nsource = {source}\n{more}'


def federation(*entries: str, folder: Path | None = None) -> Federation:
    document = "schema = 1\n" + "".join(entries)
    registry = parse_registry(document.encode(), "lab", "lab.toml", folder)
    assert not registry.rejected, registry.rejected
    return Federation((registry,))


def wheels(*items: tuple[str, str]) -> str:
    return "wheels = [" + ", ".join(f'{{ file = "{file}", sha256 = "{digest}" }}' for file, digest in items) + "]\n"


def inside(target: Target, code: str) -> str:
    return subprocess.run([target.python, "-I", "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def has(target: Target, distribution: str) -> bool:
    code = f"import importlib.metadata as m; print([d.metadata['Name'] for d in m.distributions()].count({distribution!r}))"
    return inside(target, code) == "1"


def index_options(url: str, **more: Any) -> Options:
    return Options(IndexOptions(f"{url}/simple"), **more)


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every process that is started, refused."""
    started: list[Any] = []

    def start(*arguments: Any, **_: Any) -> None:
        started.append(arguments)
        raise AssertionError(f"a process was started: {arguments}")

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(subprocess, "run", start)
    return started


def fake_target() -> Target:
    return Target("/nowhere/python", "pip")


def test_a_released_wheel_is_installed_from_an_index_over_http(
    served: tuple[Path, str], target: Target, tmp_path: Path
) -> None:
    folder, url = served
    old = make_wheel(tmp_path / "dist", "icml26-plugin-demo", "0.9")
    wheel = make_wheel(tmp_path / "dist", "icml26-plugin-demo", "1.0")
    make_index(folder, old, wheel)
    lab = federation(entry("demo", more=wheels((wheel.name, sha256(wheel)))))
    (outcome,) = install(["demo"], lab, lambda: target, index_options(url))
    assert (outcome.status, outcome.version, outcome.sha256) == ("installed", "1.0", sha256(wheel))
    assert has(target, "icml26-plugin-demo")
    assert outcome_rows([outcome])[0]["distribution"] == "icml26-plugin-demo"


def test_dependencies_are_resolved_from_the_named_index_and_without_builds(
    served: tuple[Path, str], target: Target, tmp_path: Path
) -> None:
    folder, url = served
    make_index(
        folder,
        make_wheel(tmp_path, "icml26-plugin-demo", requires=("tiny>=2",)),
        make_wheel(tmp_path, "tiny", "2.1", plugin=None),
    )
    install(["demo"], federation(entry("demo")), lambda: target, index_options(url))
    assert has(target, "tiny")


@pytest.mark.parametrize("target", ["pip"], indirect=True)
def test_without_a_named_index_the_installers_own_configuration_decides(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path / "links", "icml26-plugin-demo")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    lab = federation(entry("demo", more=wheels((wheel.name, sha256(wheel)))))
    (outcome,) = install(["demo"], lab, lambda: target)
    assert outcome.sha256 == sha256(wheel) and has(target, "icml26-plugin-demo")


@pytest.mark.parametrize("target", ["uv"], indirect=True)
def test_uv_is_asked_for_the_wheel_in_an_environment_without_pip(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path / "links", "icml26-plugin-demo")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "links"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    lab = federation(entry("demo", more=wheels((wheel.name, sha256(wheel)))))
    (outcome,) = install(["demo"], lab, lambda: target)
    assert outcome.sha256 == sha256(wheel) and has(target, "icml26-plugin-demo")


def test_a_git_source_is_built_at_its_commit_only_with_allow_build(
    git_server: tuple[Path, str], target: Target
) -> None:
    root, url = git_server
    make_project(root / "lab" / "plugins" / "demo", "icml26-plugin-demo", "1.0")
    revision = commit_all(root / "lab")
    make_project(root / "lab" / "plugins" / "demo", "icml26-plugin-demo", "2.0")
    commit_all(root / "lab")
    source = f'{{ kind = "git", url = "{url}/lab/.git", revision = "{revision}", subdirectory = "plugins/demo" }}'
    lab = federation(entry("demo", source))
    with pytest.raises(UsageError, match="--allow-build"):
        install(["demo"], lab, lambda: target)
    assert not has(target, "icml26-plugin-demo")
    install(["demo"], lab, lambda: target, Options(allow_build=True))
    direct = inside(
        target,
        "import importlib.metadata as m; d = m.distribution('icml26-plugin-demo');"
        "print(d.version, d.read_text('direct_url.json'))",
    )
    assert direct.startswith("1.0 ") and revision in direct


@pytest.mark.parametrize("target", ["uv"], indirect=True)
def test_a_path_source_is_a_wheel_or_a_folder_beside_the_registry(target: Target, tmp_path: Path) -> None:
    lab_folder = tmp_path / "lab"
    make_wheel(lab_folder, "icml26-plugin-demo")
    make_project(lab_folder / "own", "icml26-plugin-own")
    lab = federation(
        entry("demo", '{ kind = "path", path = "icml26_plugin_demo-1.0-py3-none-any.whl" }'),
        entry("own", '{ kind = "path", path = "own" }'),
        folder=lab_folder,
    )
    install(["demo"], lab, lambda: target, Options(IndexOptions()))
    assert has(target, "icml26-plugin-demo")
    with pytest.raises(UsageError, match="--allow-build"):
        install(["own"], lab, lambda: target)
    assert not (lab_folder / "own" / "BUILT").exists()
    install(["own"], lab, lambda: target, Options(allow_build=True))
    assert has(target, "icml26-plugin-own")


def test_a_wrong_hash_stops_everything_before_an_installer_starts(
    served: tuple[Path, str], tmp_path: Path, no_process: list[Any]
) -> None:
    folder, url = served
    wheel = make_wheel(tmp_path, "icml26-plugin-demo")
    other = make_wheel(tmp_path, "icml26-plugin-other")
    make_index(folder, wheel, other)
    lab = federation(entry("demo", more=wheels((wheel.name, "0" * 64))), entry("other"))
    with pytest.raises(EnvironmentError_, match="wrong sha256, nothing was installed"):
        install(["other", "demo"], lab, fake_target, index_options(url))
    assert no_process == []


def test_the_indexs_own_hash_counts_where_the_registry_has_none(
    served: tuple[Path, str], tmp_path: Path, no_process: list[Any]
) -> None:
    folder, url = served
    wheel = make_wheel(tmp_path, "icml26-plugin-demo")
    make_index(folder, wheel)
    with zipfile.ZipFile(folder / "simple/icml26-plugin-demo" / wheel.name, "a") as archive:
        archive.writestr("evil.py", "")
    with pytest.raises(EnvironmentError_, match="wrong sha256"):
        install(["demo"], federation(entry("demo")), fake_target, index_options(url))


BAD_WHEELS = {
    "an HTML page": (b"<!doctype html><html>sign in</html>", "HTML or XML page"),
    "half a wheel": (None, "not a readable wheel"),
    "a text": (b"hello", "not a readable wheel"),
}


@pytest.mark.parametrize("case", BAD_WHEELS)
def test_what_is_no_wheel_reaches_no_installer(
    case: str, served: tuple[Path, str], tmp_path: Path, no_process: list[Any]
) -> None:
    content, reason = BAD_WHEELS[case]
    folder, url = served
    wheel = make_wheel(tmp_path, "icml26-plugin-demo")
    wheel.write_bytes(content if content is not None else wheel.read_bytes()[:-40])
    make_index(folder, wheel)
    with pytest.raises(EnvironmentError_, match=reason):
        install(["demo"], federation(entry("demo")), fake_target, index_options(url))


def test_a_wheel_of_something_else_is_refused(served: tuple[Path, str], tmp_path: Path, no_process: list[Any]) -> None:
    folder, url = served
    wheel = make_wheel(tmp_path, "icml26-plugin-demo", plugin="another")
    inner = make_wheel(tmp_path / "x", "numpy")
    masked = tmp_path / "icml26_plugin_masked-1.0-py3-none-any.whl"
    shutil.copy(inner, masked)
    climbing = make_wheel(tmp_path, "icml26-plugin-climbing")
    with zipfile.ZipFile(climbing, "a") as archive:
        archive.writestr("../../evil.py", "")
    make_index(folder, wheel, masked, climbing)
    lab = federation(entry("demo"), entry("masked"), entry("climbing"))
    for name, reason in (
        ("demo", "not that plugin"),
        ("masked", "inside it is 'numpy'"),
        ("climbing", "points outside"),
    ):
        with pytest.raises(EnvironmentError_, match=reason):
            install([name], lab, fake_target, index_options(url))


def test_only_listed_released_files_are_taken(served: tuple[Path, str], tmp_path: Path, no_process: list[Any]) -> None:
    folder, url = served
    make_index(folder, make_wheel(tmp_path, "icml26-plugin-demo", "6.6"))
    lab = federation(entry("demo", more=wheels(("icml26_plugin_demo-1.0-py3-none-any.whl", "0" * 64))))
    with pytest.raises(EnvironmentError_, match="not among the released files"):
        install(["demo"], lab, fake_target, index_options(url))


def test_yanked_foreign_and_too_new_wheels_are_passed_over(
    served: tuple[Path, str], tmp_path: Path, no_process: list[Any]
) -> None:
    folder, url = served
    page = folder / "simple" / "icml26-plugin-demo"
    page.mkdir(parents=True)
    (page / "index.html").write_text(
        '<a href="icml26_plugin_demo-1-py3-none-any.whl" data-yanked="">a</a>'
        '<a href="icml26_plugin_demo-2-cp99-cp99-beos_x86.whl">b</a>'
        '<a href="icml26_plugin_demo-3-py3-none-any.whl" data-requires-python="&gt;=99">c</a>'
        '<a href="icml26_plugin_demo-4-py3-none-any.whl">d</a>'
    )
    lab = federation(entry("demo", '{ kind = "index", version = "<4" }'))
    with pytest.raises(EnvironmentError_) as caught:
        install(["demo"], lab, fake_target, index_options(url))
    for reason in ("yanked", "another Python or platform", "needs Python >=99", "asks for <4"):
        assert reason in str(caught.value)


def test_a_project_that_the_index_does_not_have(served: tuple[Path, str], no_process: list[Any]) -> None:
    with pytest.raises(EnvironmentError_, match="the index does not have it"):
        install(["demo"], federation(entry("demo")), fake_target, index_options(served[1]))


def test_a_commit_that_a_force_push_removed(git_server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    root, url = git_server
    make_project(root / "lab", "icml26-plugin-demo")
    commit_all(root / "lab")
    make_project(root / "lab", "icml26-plugin-demo", "1.1")
    gone = commit_all(root / "lab")
    git(root / "lab", "reset", "-q", "--hard", "HEAD~1")
    git(root / "lab", "reflog", "expire", "--expire=now", "--all")
    git(root / "lab", "gc", "-q", "--prune=now")
    lab = federation(entry("demo", f'{{ kind = "git", url = "{url}/lab/.git", revision = "{gone}" }}'))
    with pytest.raises(EnvironmentError_, match="force-pushed"):
        install(["demo"], lab, fake_target, Options(allow_build=True))


def test_a_repository_of_another_project_or_a_climbing_link_is_refused(git_server: tuple[Path, str]) -> None:
    root, url = git_server
    make_project(root / "lab", "icml26-plugin-evil")
    (root / "lab" / "out").symlink_to("..")
    revision = commit_all(root / "lab")
    source = f'kind = "git", url = "{url}/lab/.git", revision = "{revision}"'
    lab = federation(
        entry("demo", f"{{ {source} }}"),
        entry("link", f'{{ {source}, subdirectory = "out" }}'),
        entry("lost", f'{{ {source}, subdirectory = "lost" }}'),
    )
    for name, reason in (("demo", "not icml26-plugin-demo"), ("link", "leads out"), ("lost", "no folder 'lost'")):
        with pytest.raises(EnvironmentError_, match=reason):
            install([name], lab, fake_target, Options(allow_build=True))


def test_a_path_that_a_link_leads_out_of_the_registrys_folder(tmp_path: Path, no_process: list[Any]) -> None:
    make_project(tmp_path / "elsewhere", "icml26-plugin-demo")
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "link").symlink_to(tmp_path / "elsewhere")
    lab = federation(entry("demo", '{ kind = "path", path = "link" }'), folder=tmp_path / "lab")
    with pytest.raises(EnvironmentError_, match="leads out"):
        install(["demo"], lab, fake_target, Options(allow_build=True))


def test_another_core_api_is_refused_before_the_environment_is_asked(no_process: list[Any]) -> None:
    with pytest.raises(EnvironmentError_, match="core_api 99"):
        install(["demo"], federation(entry("demo", more="core_api = 99\n")), lambda: pytest.fail("asked"))


def test_an_index_over_plain_http_is_refused(no_process: list[Any]) -> None:
    with pytest.raises(UsageError, match="not encrypted"):
        install(["demo"], federation(entry("demo")), fake_target, Options(IndexOptions("http://example.org/simple")))


def test_a_dry_run_checks_and_installs_nothing(served: tuple[Path, str], tmp_path: Path, no_process: list[Any]) -> None:
    folder, url = served
    make_index(folder, make_wheel(tmp_path, "icml26-plugin-demo"))
    words: list[str] = []
    (outcome,) = install(
        ["demo"], federation(entry("demo")), fake_target, index_options(url, dry_run=True), say=words.append
    )
    assert outcome.status == "would-install"
    assert re.search(r"would run: .*-m pip .*install .*icml26_plugin_demo-1\.0", words[-1])


def test_the_installers_failure_is_our_error(served: tuple[Path, str], target: Target, tmp_path: Path) -> None:
    folder, url = served
    make_index(folder, make_wheel(tmp_path, "icml26-plugin-demo", requires=("does-not-exist>=9",)))
    with pytest.raises(EnvironmentError_, match="installer failed"):
        install(["demo"], federation(entry("demo")), lambda: target, index_options(url))
    assert not has(target, "icml26-plugin-demo")


def test_a_python_of_the_operating_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "EXTERNALLY-MANAGED").write_text("[externally-managed]\nError=use apt\n")
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setattr(target_module.sysconfig, "get_path", lambda *_: str(tmp_path))
    with pytest.raises(EnvironmentError_, match=r"PEP 668.*-m venv ~/icml26 && ~/icml26/bin/pip install icml26"):
        this_environment()


def test_an_environment_without_any_installer_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module, "find_uv", lambda: None)
    monkeypatch.setattr(target_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentError_, match="-m ensurepip"):
        this_environment()


def test_uv_tool_forgets_what_was_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert target_module.forgetful_tool(["icml26-plugin-demo"]) is None
    (tmp_path / "uv-receipt.toml").write_text("")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    hint = target_module.forgetful_tool(["icml26-plugin-demo"])
    assert hint is not None and "uv tool install icml26 --with icml26-plugin-demo" in hint


def test_uninstall_takes_plugin_or_distribution_names_and_refuses_others() -> None:
    with pytest.raises(UsageError, match="no plugin 'pydantic' is installed"):
        to_uninstall(["pydantic"])
    for name in ("icml26", "core"):
        with pytest.raises(UsageError, match="the core, not a plugin"):
            to_uninstall([name])


def test_a_plugin_that_exits_at_import_is_uninstalled(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(
        tmp_path, "icml26-plugin-demo", init="raise SystemExit(3)", plugin_code="import time; time.sleep(3600)"
    )
    subprocess.run(target.install([str(wheel)], IndexOptions(), allow_build=False, upgrade=False), check=True)
    site = inside(target, "import sysconfig; print(sysconfig.get_path('purelib'))")
    monkeypatch.syspath_prepend(site)
    assert to_uninstall(["icml26_plugin.demo"]) == ["icml26-plugin-demo"]
    assert uninstall(["icml26-plugin-demo"], target) == ["icml26-plugin-demo"]
    assert not has(target, "icml26-plugin-demo")
