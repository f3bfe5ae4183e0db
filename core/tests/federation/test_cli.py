"""The commands in an environment of their own, as a user would type them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import icml26
import pytest
from builders import make_index, make_wheel, sha256


class Environment:
    """A virtual environment without pip that sees this icml26."""

    def __init__(self, folder: Path, home: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        self.site = next(folder.rglob("site-packages"))
        seen = [str(Path(icml26.__file__).parents[1]), sysconfig.get_path("purelib")]
        (self.site / "seen.pth").write_text("\n".join(seen) + "\n")
        self.variables = {key: value for key, value in os.environ.items() if not key.startswith("ICML26_")}
        self.variables |= {"ICML26_HOME": str(home), "ICML26_INSTALLER": "uv"}

    def __call__(self, *arguments: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(self.python), "-m", "icml26", *arguments],
            env=self.variables | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments: str, code: int = 0) -> dict[str, object]:
        document: dict[str, object] = json.loads(self(*arguments, "--json", code=code).stdout)
        return document


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    registry = tmp_path / "builtin.toml"
    registry.write_text("schema = 1\n")
    environment = Environment(tmp_path / "environment", tmp_path / "home")
    environment.variables["ICML26_REGISTRY"] = str(registry)
    return environment


def entry(name: str, more: str = "") -> str:
    return f'[[plugin]]\nname = "{name}"\ndistribution = "icml26-plugin-{name}"\nsource = {{ kind = "index" }}\n{more}'


def test_from_a_strangers_registry_to_an_installed_plugin_and_back(
    environment: Environment, served: tuple[Path, str], tmp_path: Path
) -> None:
    folder, url = served
    wheel = make_wheel(tmp_path, "icml26-plugin-demo")
    make_index(folder, wheel)
    released = f'wheels = [{{ file = "{wheel.name}", sha256 = "{sha256(wheel)}" }}]\n'
    evil = entry("evil").replace('"icml26-plugin-evil"', '"-r evil.txt"')
    (folder / "registry.toml").write_text("schema = 1\n" + entry("demo", 'summary = "A demo"\n' + released) + evil)

    asked = environment("registry", "add", "lab", f"{url}/registry.toml", code=2)
    assert "Trust the registry" in asked.stderr and "--yes" in asked.stderr
    added = environment("registry", "add", "lab", f"{url}/registry.toml", "--yes")
    assert "lab: 1 plugin" in added.stdout and "'evil'" in added.stderr
    assert [row["name"] for row in environment.json("registry", "list")["registries"]] == ["icml26", "lab"]  # type: ignore[attr-defined]
    assert environment.json("registry", "check", "lab", code=1)["checks"]

    searched = environment.json("search", "DEMO")
    assert [(row["name"], row["installed"]) for row in searched["plugins"]] == [("demo", None)]  # type: ignore[attr-defined]
    assert environment("search", "nothing-of-the-kind").stdout == ""

    refused = environment("install", "evil", code=2)
    assert "cannot be used" in refused.stderr and "bare distribution name" in refused.stderr
    installed = environment("install", "demo", "--index-url", f"{url}/simple")
    assert "demo\ticml26-plugin-demo 1.0\tinstalled" in installed.stdout
    assert "already-installed" in environment("install", "lab/demo").stdout
    assert environment.json("info", "demo")["plugin"]["installed"] == "1.0"  # type: ignore[index]
    assert "icml26-plugin-demo" in environment("list-plugins").stdout

    assert "say --yes" in environment("uninstall", "demo", code=2).stderr
    assert environment("uninstall", "demo", "--yes").stdout == "removed icml26-plugin-demo\n"
    assert "icml26-plugin-demo" not in environment("list-plugins").stdout
    assert environment("registry", "remove", "lab").stdout == "removed lab\n"


CRASHES = {
    "raises": "raise RuntimeError('boom')",
    "exits": "raise SystemExit(3)",
    "hangs": "import time\ntime.sleep(3600)",
    "kills itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "syntax error": "def (",
}


@pytest.mark.parametrize("case", CRASHES)
def test_a_plugin_that_cannot_be_imported_is_listed_doctored_and_uninstalled(
    case: str, environment: Environment, served: tuple[Path, str], tmp_path: Path
) -> None:
    folder, url = served
    make_index(folder, make_wheel(tmp_path, "icml26-plugin-demo", plugin_code=CRASHES[case]))
    (tmp_path / "builtin.toml").write_text("schema = 1\n" + entry("demo"))
    environment("install", "demo", "--index-url", f"{url}/simple")
    quick = {"ICML26_PROBE_TIMEOUT": "1"}
    assert "icml26-plugin-demo" in environment("list-plugins", **quick).stdout
    assert "icml26-plugin-demo" in environment("doctor", code=1, **quick).stdout
    assert environment("uninstall", "demo", "-y", **quick).stdout == "removed icml26-plugin-demo\n"
    assert "icml26-plugin-demo" not in environment("list-plugins").stdout


def test_a_wrong_option_of_install_is_a_usage_error(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "builtin.toml").write_text("schema = 1\n" + entry("demo"))
    assert "no such file" in environment("install", "demo", "-c", "nowhere.txt", code=2).stderr
    assert "scheme 'ftp' is refused" in environment("install", "demo", "-i", "ftp://example.org", code=2).stderr
    assert "the server answered 404" not in environment("install", "demo", "-i", "http://127.0.0.1:9/", code=4).stderr


def test_an_entry_is_printed_for_those_who_publish(environment: Environment, tmp_path: Path) -> None:
    package = tmp_path / "project" / "src" / "pack"
    package.mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").write_text(
        '[project]\nname = "icml26-plugin-own"\nversion = "1"\n[project.entry-points.icml26]\nown = "pack.plugin"\n'
    )
    (package / "icml26-index.json").write_text('{"schema": "icml26.index/1", "core_api": 1}')
    commit = "0" * 40
    options = ("--git", "https://example.org/own.git", "--revision", commit)
    text = environment("registry", "entry", str(tmp_path / "project"), *options).stdout
    assert f'revision = "{commit}"' in text
    (tmp_path / "own.toml").write_text("schema = 1\n" + text)
    assert environment("registry", "check", str(tmp_path / "own.toml")).stdout == "1 plugin good, 0 refused\n"
    refused = environment("registry", "entry", str(tmp_path / "project"), *options[:3], "main", code=2)
    assert "full commit id" in refused.stderr
