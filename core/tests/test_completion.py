"""Completion of commands and names, in the protocols of bash, zsh and fish."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from installed import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Two plugins; both have a method ``plain``."""
    (tmp_path / "site").mkdir()
    site = Site(tmp_path / "site", tmp_path / "home")
    site.add("alpha", index=True)
    site.add("alpine", index=True)
    return site


def bash(site: Site, *words: str) -> list[str]:
    done = site.run(_ICML26_COMPLETE="complete_bash", COMP_WORDS="\n".join(words), COMP_CWORD=str(len(words) - 1))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_names_of_methods(site: Site) -> None:
    assert bash(site, "icml26", "run", "al") == ["alpha", "alpine"]
    assert bash(site, "icml26", "run", "alph") == ["alpha"]
    assert bash(site, "icml26", "run", "zz") == []


def test_an_ambiguous_name_is_completed_qualified(site: Site) -> None:
    offered = bash(site, "icml26", "run", "")
    assert {"alpha", "alpha/plain", "alpine/plain"} <= set(offered)
    assert "plain" not in offered
    assert bash(site, "icml26", "run", "alpha/") == ["alpha/alpha", "alpha/plain"]


def test_values_of_options(site: Site) -> None:
    assert bash(site, "icml26", "run", "alpha", "--dataset", "alpha/") == ["alpha/toy"]
    assert bash(site, "icml26", "run", "--dataset", "alpha/toy", "alph") == ["alpha"]
    assert bash(site, "icml26", "list-methods", "--task", "toys.") == ["toys.alpha", "toys.alpine"]
    assert bash(site, "icml26", "list-methods", "--json", "--plugin", "alpi") == ["alpine"]
    assert bash(site, "icml26", "--color", "n") == ["never"]


def test_commands_and_what_can_be_shown(site: Site) -> None:
    assert bash(site, "icml26", "list-m") == ["list-methods", "list-metrics"]
    assert bash(site, "icml26", "--color", "never", "docto") == ["doctor"]
    assert bash(site, "icml26", "show", "toys.alpi") == ["toys.alpine"]


def test_options_of_a_command_come_from_typer(site: Site) -> None:
    assert "--dataset" in bash(site, "icml26", "run", "--da")
    assert bash(site, "icml26", "list-methods", "--ro") == ["--role"]


def test_a_second_argument_completes_to_nothing(site: Site) -> None:
    assert bash(site, "icml26", "run", "alpha", "al") == []


def test_an_open_quote_completes(site: Site) -> None:
    assert bash(site, "icml26", "run", '"alph') == ["alpha"]


def test_a_plugin_that_hangs_does_not_hold_up_the_shell(site: Site) -> None:
    site.add("hangs", "import time; time.sleep(1000)")
    assert bash(site, "icml26", "run", "alp") == ["alpha", "alpine"]
    assert not site.home.exists()


def test_zsh_and_fish_get_the_summaries(site: Site) -> None:
    words = {"_TYPER_COMPLETE_ARGS": "icml26 run alph"}
    zsh = site.run(_ICML26_COMPLETE="complete_zsh", **words)
    assert zsh.stdout == "_arguments '*: :((\"alpha\":\"The paper''s way\"))'\n"
    fish = site.run(_ICML26_COMPLETE="complete_fish", _TYPER_COMPLETE_FISH_ACTION="get-args", **words)
    assert fish.stdout == "alpha\tThe paper's way\n"
    for text, code in (("icml26 run alph", 0), ("icml26 run zz", 1)):
        asked = {"_TYPER_COMPLETE_FISH_ACTION": "is-args", "_TYPER_COMPLETE_ARGS": text}
        assert site.run(_ICML26_COMPLETE="complete_fish", **asked).returncode == code


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_answer_is_what_typer_itself_would_print(site: Site, shell: str) -> None:
    request = {
        "_ICML26_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "icml26\nlist-m",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "icml26 list-m",
    }
    code = "from icml26.cli.app import run; from icml26.cli.output import GlobalOptions; run([], GlobalOptions())"
    slow = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=site.variables(**request))
    ours = site.run(**request).stdout
    if shell == "zsh":  # typer's short help is each command's docstring, ours the table's summary

        def values(text: str) -> list[str]:
            return [line.split(":")[-2 if line.endswith(")'") else 0] for line in text.splitlines()]

        assert len(values(ours)) == len(values(slow.stdout))
        assert ours.startswith('_arguments \'*: :(("list-methods":"')
        assert slow.stdout.startswith('_arguments \'*: :(("list-methods":"')
    else:
        assert ours == slow.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_the_script_of_show_completion_completes_in_bash(site: Site, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "icml26"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m icml26 \"$@\"\n")
    program.chmod(0o755)
    script = site.run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert script.returncode == 0, script.stderr
    (tmp_path / "complete.sh").write_text(script.stdout)
    ask = f"""
        source '{tmp_path}/complete.sh'
        COMP_WORDS=(icml26 run alph) COMP_CWORD=2
        _icml26_completion icml26
        echo "${{COMPREPLY[@]}}"
    """
    path = f"{program.parent}:{site.variables()['PATH']}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, env=site.variables(PATH=path))
    assert done.stdout.split() == ["alpha"], done.stderr
