"""Discovery that cannot be broken: whatever a plugin does, the others are listed, and somebody is told why."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
from installed import HOOKS, Site, index_of


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """An empty folder on the path, and a home that does not exist yet."""
    (tmp_path / "site").mkdir()
    return Site(tmp_path / "site", tmp_path / "home")


def names(document: dict, section: str = "methods") -> set[str]:
    return {entry["qualified"] for entry in document[section]} - {"core/mean"}


def reasons(site: Site) -> dict[str, str]:
    return {fault["plugin"]: fault["reason"] for fault in own_faults(site.json("list-plugins"))}


def own_faults(document: dict) -> list[dict]:
    """The faults without those of core, whose optional extras may not be installed here."""
    return [fault for fault in document["faults"] if fault.get("distribution") != "icml26"]


# What a hook module may do, and the word that the reason must hold.
HOSTILE = {
    "raises": ("raise ValueError('boo')", "ValueError: boo"),
    "needs-more": ("import a_module_that_nobody_has", "a_module_that_nobody_has"),
    "exits": ("import sys; sys.exit(3)", "sys.exit(3)"),
    "exits-hard": ("import os; os._exit(4)", "exited with code 4"),
    "crashes": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    "interrupts": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "hangs": ("import time; time.sleep(1000)", "took longer than"),
    "spins": ("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass", "took longer than"),
    "forks": (
        "import subprocess, sys, time\nsubprocess.Popen(['sleep', '1000'])\ntime.sleep(1000)",
        "took longer than",
    ),
    "floods": ("while True: print('x' * 1000)", "took longer than"),
    "closes": ("import os; os.closerange(3, 256)", "exited with code 0"),
    "hook-raises": (
        "from icml26.hookspecs import hookimpl\n@hookimpl\ndef icml26_methods(): raise KeyError('x')",
        "KeyError",
    ),
    "nonsense": ("from icml26.hookspecs import hookimpl\n@hookimpl\ndef icml26_methods(): return 3", "a int"),
    "endless": (
        "from icml26.hookspecs import hookimpl\nfrom icml26.specs import MethodSpec\n@hookimpl\ndef icml26_methods():\n"
        "    while True: yield MethodSpec('m', 'a.b', 'a:B', 's')",
        "took longer than",
    ),
    "not-python": ("def", "SyntaxError"),
}


def test_whatever_plugins_without_an_index_do_the_others_are_listed(site: Site) -> None:
    site.add("good")
    site.add("indexed", index=True)
    site.add("prints", "print('hello')\n" + HOOKS)
    site.add("prints-from-c", "import ctypes\nctypes.CDLL(None).puts(b'hello from C')\n" + HOOKS)
    site.add("writes", "import os\nos.write(1, b'{}')\n" + HOOKS)
    for name, (hooks, _) in HOSTILE.items():
        site.add(name, hooks)
    healthy = ("good", "indexed", "prints", "prints-from-c", "writes")
    expected = {f"{name}/{method}" for name in healthy for method in (name, "plain")}

    done = site.run("list-methods", "--json", ICML26_PROBE_TIMEOUT="1.5")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert names(document) == expected
    lines = done.stderr.splitlines()
    assert all(line.startswith("warning: plugin ") for line in lines)
    warned = {line.split()[2] for line in lines}
    assert warned == {*HOSTILE, "prints", "prints-from-c", "writes"}
    assert len(lines) == len(warned) == len(document["warnings"])

    start = time.perf_counter()
    faults = {fault["plugin"]: fault for fault in site.json("list-plugins", ICML26_PROBE_TIMEOUT="1.5")["faults"]}
    assert time.perf_counter() - start < 1.5, "the second time everything comes from the cache"
    for name, (_, word) in HOSTILE.items():
        assert word in faults[name]["reason"]
    assert faults["prints-from-c"]["reason"] == "it prints when it is imported ('hello from C')"
    assert "plugin.py" in faults["raises"]["details"]


def test_hanging_plugins_delay_the_list_by_one_deadline_not_by_their_number(site: Site) -> None:
    site.add("good", index=True)
    for number in range(8):
        site.add(f"hangs-{number}", HOSTILE["hangs"][0])
    start = time.perf_counter()
    assert names(site.json("list-methods")) == {"good/good", "good/plain"}
    assert time.perf_counter() - start < 5.0


def test_a_plugin_with_an_index_is_listed_without_running_its_code(site: Site) -> None:
    marker = site.folder / "ran"
    site.add("quiet", f"open({str(marker)!r}, 'w')\nraise ValueError", index=True)
    (site.folder / "icml26_plugin_quiet" / "__init__.py").write_text(f"open({str(marker)!r}, 'w')")
    for command in (["list-methods"], ["list-plugins"], ["show", "quiet/quiet"], ["doctor"]):
        done = site.run(*command)
        assert (done.returncode, done.stderr) == (0, "")
    assert names(site.json("list-methods")) == {"quiet/quiet", "quiet/plain"}
    assert not marker.exists()
    assert not site.home.exists(), "reading commands create nothing"


@pytest.mark.parametrize("index", [True, False])
def test_files_that_are_gone_are_a_fault(site: Site, index: bool) -> None:
    folder = site.add("gone", index=index)
    site.add("good", index=True)
    (folder / "plugin.py").unlink()
    assert names(site.json("list-methods")) == {"good/good", "good/plain"}
    assert "its files are gone" in reasons(site)["gone"]
    shutil.rmtree(folder)
    assert "its files are gone" in reasons(site)["gone"]


def test_an_index_for_another_core_api_is_a_fault(site: Site) -> None:
    site.add("newer", index=True, core_api=2)
    assert names(site.json("list-methods")) == set()
    assert reasons(site)["newer"] == "it is made for core_api 2; this icml26 has 1"


def test_a_damaged_or_foreign_index_is_a_fault_and_the_plugin_is_not_run_instead(site: Site) -> None:
    site.add("damaged", HOOKS, index='{"schema": "icml26.index/1", "met')
    site.add("renamed", HOOKS, index=index_of("template", "icml26-plugin-template", "x"))
    found = reasons(site)
    assert "damaged" in found["damaged"]
    assert "its index is of template" in found["renamed"]
    assert not (site.home / "cache").exists()


def test_a_leftover_metadata_folder_of_an_older_version_is_named_and_the_newest_counts(site: Site) -> None:
    site.add("twice", index=True, version="0.10")
    leftover = site.metadata("twice", version="0.9")
    document = site.json("list-plugins")
    assert [plugin["version"] for plugin in document["plugins"] if plugin["name"] == "twice"] == ["0.10"]
    assert names(site.json("list-methods")) == {"twice/twice", "twice/plain"}
    [warning] = document["warnings"]
    assert "metadata of version 0.9 was left beside version 0.10" in warning["reason"]
    assert str(leftover) in warning["reason"]


def test_an_incomplete_metadata_folder_is_a_fault(site: Site) -> None:
    site.add("whole", index=True)
    (site.metadata("half", version="0.1") / "METADATA").unlink()
    (site.folder / "~cml26_plugin_removed-0.1.dist-info").mkdir()
    (site.folder / "~cml26_plugin_removed-0.1.dist-info" / "entry_points.txt").write_text("[icml26]\nremoved = x.y\n")
    found = reasons(site)
    assert "is incomplete" in found["half"]
    assert "removed" not in found


def test_one_distribution_seen_through_two_paths_is_one(site: Site, tmp_path: Path) -> None:
    site.add("linked", index=True)
    (tmp_path / "lib64").symlink_to(site.folder, target_is_directory=True)
    path = os.pathsep.join([str(site.folder), str(tmp_path / "lib64"), str(site.folder) + os.sep])
    done = site.run("list-methods", "--json", PYTHONPATH=path)
    assert names(json.loads(done.stdout)) == {"linked/linked", "linked/plain"}
    assert done.stderr == ""


def test_a_linked_metadata_folder_is_no_second_copy(site: Site, tmp_path: Path) -> None:
    site.add("linked", index=True)
    other = tmp_path / "other"
    other.mkdir()
    for folder in site.folder.iterdir():
        (other / folder.name).symlink_to(folder, target_is_directory=True)
    done = site.run("list-plugins", "--json", PYTHONPATH=os.pathsep.join([str(site.folder), str(other)]))
    assert own_faults(json.loads(done.stdout)) == []


def test_of_two_copies_the_first_on_the_path_counts_and_the_other_is_a_note(site: Site, tmp_path: Path) -> None:
    site.add("copied", index=True, version="0.1")
    other = Site(tmp_path / "other", tmp_path / "home")
    other.add("copied", index=True, version="0.2")
    done = site.run("list-plugins", "--json", PYTHONPATH=os.pathsep.join([str(site.folder), str(other.folder)]))
    document = json.loads(done.stdout)
    assert [plugin["version"] for plugin in document["plugins"] if plugin["name"] == "copied"] == ["0.1"]
    assert [(fault["id"], fault["severity"]) for fault in own_faults(document)] == [("hidden-copy", "note")]
    assert done.stderr == ""


def test_two_distributions_that_claim_one_name_are_both_reachable_and_neither_wins(site: Site) -> None:
    site.add("one", index=True, entry_point="same", task="toys.one")
    site.add("two", index=True, entry_point="same", task="toys.two")
    done = site.run("list-methods", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert names(document) == {
        f"icml26-plugin-{name}/{method}" for name in ("one", "two") for method in ("same", "plain")
    }
    assert len(done.stderr.splitlines()) == 2
    assert "claimed by icml26-plugin-two too" in done.stderr
    [own] = site.json("show", "icml26-plugin-one/same")["entries"]
    assert own["reference"] == "icml26-plugin-one/plain", "references to its own plugin follow the name"
    ambiguous = site.run("show", "same")
    assert ambiguous.returncode == 2
    assert "icml26-plugin-one/same, icml26-plugin-two/same" in ambiguous.stderr


def test_the_name_core_is_reserved(site: Site) -> None:
    site.add("usurper", index=index_of("core", "icml26-plugin-usurper", "x", task="toys.core"), entry_point="core")
    document = site.json("list-methods")
    assert "core/mean" in {entry["qualified"] for entry in document["methods"]}
    assert names(document) == {"icml26-plugin-usurper/core", "icml26-plugin-usurper/plain"}
    assert "the name core is reserved" in reasons(site)["core"]


def test_a_task_claimed_by_two_distributions_is_a_fault_of_both(site: Site) -> None:
    site.add("one", index=True, task="toys.shared")
    site.add("two", index=True, task="toys.shared")
    document = site.json("list-tasks")
    assert "toys.shared" not in {task["name"] for task in document["tasks"]}
    assert {warning["plugin"] for warning in document["warnings"]} == {"one", "two"}


def test_a_task_of_core_cannot_be_taken_away(site: Site) -> None:
    site.add("thief", index=True, task="regression.tabular")
    document = site.json("list-tasks")
    assert "regression.tabular" in {task["name"] for task in document["tasks"]}
    assert [warning["plugin"] for warning in document["warnings"]] == ["thief"]


def test_a_bad_entry_point_is_a_fault(site: Site) -> None:
    site.add("bad", index=True)
    (site.folder / "icml26_plugin_bad-0.1.dist-info" / "entry_points.txt").write_text("[icml26]\nbad = ../../x y\n")
    site.add("many", index=True)
    (site.folder / "icml26_plugin_many-0.1.dist-info" / "entry_points.txt").write_text(
        "[other]\nbad = x\n\n[icml26]\nmany = icml26_plugin_many.plugin\nmore = icml26_plugin_many.more\n"
    )
    found = reasons(site)
    assert "names no module" in found["bad"]
    assert "several entry points" in found["many"]
    assert names(site.json("list-methods")) == {"many/many", "many/plain"}


def test_disabled_plugins_are_left_out_without_a_warning_and_list_plugins_says_so(site: Site) -> None:
    for name in ("a", "b", "c"):
        site.add(name, index=True)
    done = site.run("list-methods", "--json", ICML26_DISABLE_PLUGINS="a, icml26-plugin-b")
    assert names(json.loads(done.stdout)) == {"c/c", "c/plain"}
    assert done.stderr == ""
    done = site.run("list-plugins", ICML26_DISABLE_PLUGINS="a,icml26-plugin-b")
    assert "a\t-\ticml26-plugin-a\tdisabled" in done.stdout


def test_plugin_errors_can_be_raised_to_debug(site: Site) -> None:
    site.add("raises", "raise ValueError('boo')")
    done = site.run("list-methods", ICML26_RAISE_PLUGIN_ERRORS="1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "ValueError: boo" in done.stderr
    assert "plugin.py" in done.stderr


def test_an_edited_hook_module_is_probed_again_and_nothing_else_is(site: Site) -> None:
    folder = site.add("changing")
    counter = site.folder / "count"
    source = f"open({str(counter)!r}, 'a').write('x')\n" + HOOKS.replace("{name}", "changing").replace("{package}", "p")
    (folder / "plugin.py").write_text(source)
    for _ in range(3):
        assert "changing/plain" in names(site.json("list-methods"))
    assert counter.read_text() == "x"
    (folder / "plugin.py").write_text(source.replace('"plain"', '"simple"'))
    assert "changing/simple" in names(site.json("list-methods"))
    assert counter.read_text() == "xx"


def test_a_failure_is_probed_again_when_the_environment_changes(site: Site) -> None:
    site.add("waits", "import the_dependency\n" + HOOKS)
    assert "the_dependency" in reasons(site)["waits"]
    (site.folder / "the_dependency.py").touch()
    assert "the_dependency" in reasons(site)["waits"], "a module that nobody installed is not seen"
    (site.folder / "the_dependency-1.0.dist-info").mkdir()
    assert names(site.json("list-methods")) == {"waits/waits", "waits/plain"}


def test_doctor_probes_again(site: Site) -> None:
    site.add("waits", "import the_dependency\n" + HOOKS)
    site.run("list-methods")
    (site.folder / "the_dependency.py").touch()
    done = site.run("doctor")
    assert done.returncode == 0, done.stdout
    assert names(site.json("list-methods")) == {"waits/waits", "waits/plain"}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": "icml26.probe/1"}', b"\xff\xff"])
def test_a_damaged_cache_is_as_good_as_none(site: Site, content: bytes) -> None:
    site.add("good")
    site.json("list-methods")
    [file] = (site.home / "cache" / "probes").iterdir()
    file.write_bytes(content)
    assert names(site.json("list-methods")) == {"good/good", "good/plain"}
    assert len(file.read_bytes()) > len(content)


def test_a_cache_that_cannot_be_written_is_skipped_silently(site: Site, tmp_path: Path) -> None:
    site.add("good")
    (tmp_path / "file").touch()
    for home in (str(tmp_path / "file" / "home"), "/proc/nowhere"):
        done = site.run("list-methods", "--json", ICML26_HOME=home)
        assert (done.returncode, done.stderr) == (0, "")
        assert names(json.loads(done.stdout)) == {"good/good", "good/plain"}


@pytest.mark.parametrize("timeout", ["soon", "-1", "0", "nan", "1e9"])
def test_a_nonsensical_deadline_is_wrong_usage(site: Site, timeout: str) -> None:
    site.add("good")
    done = site.run("list-methods", ICML26_PROBE_TIMEOUT=timeout)
    assert done.returncode == 2
    assert "ICML26_PROBE_TIMEOUT" in done.stderr


def test_an_interrupt_ends_a_list_that_waits_and_its_children(site: Site) -> None:
    pid_file = site.folder / "pid"
    site.add("hangs", f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)")
    process = subprocess.Popen(
        [sys.executable, "-m", "icml26", "list-methods"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=site.variables(ICML26_PROBE_TIMEOUT="60"),
    )
    deadline = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert _is_gone(int(pid_file.read_text()))


def test_a_probe_does_not_outlive_a_killed_command(site: Site) -> None:
    pid_file = site.folder / "pid"
    site.add("hangs", f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)")
    process = subprocess.Popen(
        [sys.executable, "-m", "icml26", "list-methods"], env=site.variables(ICML26_PROBE_TIMEOUT="2")
    )
    deadline = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    pid = int(pid_file.read_text())
    deadline = time.monotonic() + 10
    while not _is_gone(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _is_gone(pid)


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def environment(tmp_path: Path) -> tuple[Path, Path]:
    """A fresh virtual environment that sees icml26 and what it needs: its python and its site-packages."""
    folder = tmp_path / "env with 'quotes' é"
    venv.create(folder, with_pip=False, symlinks=True)
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    seen = [item for item in sys.path if Path(item).is_dir() and "lib/python3" in item and "site-packages" in item]
    import icml26

    (packages / "seen.pth").write_text(
        "\n".join([*seen, str(Path(icml26.__file__).parents[1])]) + "\n", encoding="utf-8"
    )
    return folder / "bin" / "python", packages


def test_an_editable_install_is_found_beside_its_package_without_an_import(
    site: Site, environment: tuple[Path, Path], tmp_path: Path
) -> None:
    python, packages = environment
    project = Site(tmp_path / "my project ü" / "src", tmp_path / "home")
    package = project.add("edited", "raise ValueError('imported')", index=True)
    (package / "__init__.py").write_text("raise ValueError('imported')")
    metadata = packages / "icml26_plugin_edited-0.1.dist-info"
    shutil.move(project.folder / metadata.name, metadata)
    (metadata / "direct_url.json").write_text('{"url": "file:///x", "dir_info": {"editable": true}}')
    (packages / "_edited.pth").write_text(f"{project.folder}\n", encoding="utf-8")
    done = site.run("list-plugins", "--json", python=str(python))
    document = json.loads(done.stdout)
    [plugin] = [plugin for plugin in document["plugins"] if plugin["name"] == "edited"]
    assert plugin["editable"] is True
    assert plugin["location"] == str(package)
    assert done.stderr == ""


def test_an_editable_install_through_an_import_hook_is_found(
    site: Site, environment: tuple[Path, Path], tmp_path: Path
) -> None:
    python, packages = environment
    project = Site(tmp_path / "elsewhere", tmp_path / "home")
    package = project.add("hooked", index=True)
    metadata = packages / "icml26_plugin_hooked-0.1.dist-info"
    shutil.move(project.folder / metadata.name, metadata)
    (metadata / "direct_url.json").write_text('{"url": "file:///x", "dir_info": {"editable": true}}')
    (packages / "_hooked_finder.py").write_text(
        "import sys\nfrom importlib.machinery import PathFinder\n"
        "class Broken:\n    @staticmethod\n    def find_spec(name, path=None, target=None):\n"
        "        if name.startswith('icml26_plugin_'): raise RuntimeError\n"
        "class Finder:\n    @staticmethod\n    def find_spec(name, path=None, target=None):\n"
        f"        return PathFinder.find_spec(name, [{str(project.folder)!r}]) if name == {package.name!r} else None\n"
        "sys.meta_path[:] = [Broken, *sys.meta_path, Finder]\n"
    )
    (packages / "_hooked.pth").write_text("import _hooked_finder\n")
    done = site.run("list-plugins", "--json", python=str(python))
    document = json.loads(done.stdout)
    assert {"hooked"} <= {plugin["name"] for plugin in document["plugins"]}, done.stderr


def test_a_plugin_beside_an_egg_info_is_found(site: Site) -> None:
    site.add("old", index=True)
    metadata = site.folder / "icml26_plugin_old-0.1.dist-info"
    (metadata / "METADATA").rename(metadata / "PKG-INFO")
    metadata.rename(site.folder / "icml26_plugin_old.egg-info")
    [plugin] = [plugin for plugin in site.json("list-plugins")["plugins"] if plugin["name"] == "old"]
    assert (plugin["version"], plugin["editable"]) == ("0.1", True)


def test_recipes_are_listed_with_their_absolute_path(site: Site) -> None:
    document = index_of("cook", "icml26-plugin-cook", "icml26_plugin_cook")
    document["recipes"] = [{"name": "main", "title": "It holds", "path": "recipes/main.toml"}]
    folder = site.add("cook", index=document)
    code = "from icml26.plugins import load_catalog\n"
    code += "print([recipe.path for recipe in load_catalog().recipes if recipe.qualified == 'cook/main'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=site.variables())
    assert done.stdout.strip() == str([str(folder / "recipes" / "main.toml")])


def test_a_missing_extra_is_a_note_of_list_plugins_and_doctor(site: Site) -> None:
    document = index_of("trees", "icml26-plugin-trees", "x")
    document["methods"][0]["extra"] = "linear-tree"
    metadata = 'Requires-Dist: a-package-nobody-has>=1; extra == "linear-tree"\nProvides-Extra: linear-tree\n'
    site.add("trees", index=document, metadata=metadata)
    assert site.run("list-methods").stderr == ""
    expected = "trees: needs a-package-nobody-has>=1: pip install 'icml26-plugin-trees[linear-tree]'"
    assert reasons(site)["trees"] == expected
    done = site.run("doctor")
    assert done.returncode == 0
    assert "a-package-nobody-has" in done.stdout


def test_doctor_names_each_fault_with_its_mending_and_ends_with_1(site: Site) -> None:
    site.add("needy", index=True, metadata="Requires-Dist: a-package-nobody-has>=1\n")
    site.add("newer", index=True, core_api=2)
    done = site.run("doctor", "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["schema"] == "icml26.doctor/1"
    found = {fault["id"]: fault for fault in document["faults"] if fault["severity"] != "note"}
    assert set(found) == {"missing-requirement", "bad-index"}
    assert all({"id", "severity", "message", "fix"} <= set(fault) and fault["fix"] for fault in found.values())
    assert "a-package-nobody-has>=1" in found["missing-requirement"]["message"]


def test_doctor_says_that_the_home_cannot_be_written(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = site.run("doctor", ICML26_HOME=str(tmp_path / "file" / "home"))
    assert done.returncode == 1
    assert "cannot be written" in done.stdout
    assert site.run("doctor").returncode == 0
    assert not site.home.exists()
