"""What reaches the streams: right text, right exit code and no traceback, wherever they lead."""

from __future__ import annotations

import errno
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from icml26.cli import fast
from icml26.cli.output import GlobalOptions, Output, display_width, plain, split_global_options, wrapped
from icml26.errors import StoreError, UsageError
from installed import Site, index_of

LONG = "a-name-as-long-as-names-may-be-0123456789"[:40]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A plugin with one method of a long name and prose with signs beyond ASCII, in a folder with an awkward name."""
    folder = tmp_path / 'it\'s a "site" – ü'
    folder.mkdir()
    site = Site(folder, tmp_path / "home ü 'q'")
    document = index_of("alpha", "icml26-plugin-alpha", "icml26_plugin_alpha")
    document["methods"][0]["summary"] = "Fast – naïve × 2 " + "and a good many more words " * 4
    document["methods"].append({**document["methods"][0], "name": LONG, "summary": "A\x1b[31m red\n\ttrap \u202e"})
    site.add("alpha", index=document)
    return site


def terminal(site: Site, *arguments: str, **more: str) -> tuple[int, str]:
    """Exit code and text of a command whose streams are a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "icml26", *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=site.variables(**{"TERM": "xterm", "COLUMNS": "100", **more}),
    )
    os.close(follower)
    chunks = []
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:
            break
        if not data:
            break
        chunks.append(data)
    os.close(leader)
    return process.wait(), b"".join(chunks).decode("utf-8", "replace").replace("\r\n", "\n")


def shell(site: Site, script: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which ``$ICML26`` is the program."""
    environment = site.variables(ICML26=f"{sys.executable} -m icml26", **more)
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, encoding="utf-8", env=environment)


def test_a_terminal_gets_a_table_with_a_header_and_short_names(site: Site) -> None:
    code, text = terminal(site, "list-methods", NO_COLOR="1")
    lines = text.splitlines()
    assert code == 0
    assert lines[0].split() == ["METHOD", "TASK", "ROLE", "SUMMARY"]
    assert [line.split()[0] for line in lines if not line.startswith(" ")][1:] == ["alpha", "plain", LONG, "mean"]
    assert all(len(line) <= 100 for line in lines)


def test_a_pipe_gets_tab_separated_qualified_names_without_a_header(site: Site) -> None:
    done = site.run("list-methods", "--plugin", "alpha")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["alpha/alpha", "alpha/plain", f"alpha/{LONG}"]
    assert all(len(row) == 4 for row in rows)
    assert rows[1][1:] == ["toys.alpha", "reference", "The plain way"]


@pytest.mark.parametrize("columns", ["1", "20", "60", "79", "200"])
def test_names_are_never_cut_and_prose_is_all_there(site: Site, columns: str) -> None:
    _, text = terminal(site, "list-methods", COLUMNS=columns, NO_COLOR="1")
    assert LONG in text
    assert "toys.alpha" in text
    assert text.count("many") == 4
    prose = [line for line in text.splitlines() if "many" in line]
    assert all(len(line) <= max(int(columns), 24) for line in prose), "prose moves below names that leave no room"


def test_control_characters_of_a_plugin_reach_neither_tables_nor_terminals(site: Site) -> None:
    _, text = terminal(site, "list-methods", "--color", "never")
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "A [31m red trap" in text
    assert site.run("list-methods").stdout.count("\n") == 4
    assert "\x1b" not in site.run("show", LONG).stdout


@pytest.mark.parametrize(
    ("variables", "arguments", "colored"),
    [
        ({}, (), True),
        ({"NO_COLOR": "1"}, (), False),
        ({"NO_COLOR": ""}, (), True),
        ({"TERM": "dumb"}, (), False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, (), True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, (), False),
        ({"NO_COLOR": "1"}, ("--color", "always"), True),
        ({}, ("--color=never",), False),
        ({"ICML26_COLOR": "never"}, (), False),
        ({"ICML26_COLOR": "never"}, ("--color", "auto"), True),
    ],
)
def test_colours_on_a_terminal(
    site: Site, variables: dict[str, str], arguments: tuple[str, ...], colored: bool
) -> None:
    code, text = terminal(site, "list-methods", *arguments, **variables)
    assert code == 0
    assert ("\x1b[" in text) == colored


def test_colours_in_a_pipe_only_when_forced(site: Site) -> None:
    assert "\x1b" not in site.run("list-methods", "--task", "x.y").stderr
    assert "\x1b[31;1merror:" in site.run("list-methods", "--task", "x.y", FORCE_COLOR="1").stderr
    assert "\x1b[" in site.run("list-methods", "--task", "x.y", "--color", "always").stderr
    assert "\x1b" not in site.run("list-methods", FORCE_COLOR="1").stdout


@pytest.mark.parametrize("value", ["sometimes", ""])
def test_a_wrong_colour_choice_is_wrong_usage(site: Site, value: str) -> None:
    done = site.run("list-methods", "--color", value)
    assert done.returncode == 2
    assert "auto, always, never" in done.stderr


@pytest.mark.parametrize(
    "command", ["list-methods", "show alpha", "--help", "list-methods --help", "list-methods --json"]
)
def test_a_reader_that_goes_away_is_no_error(site: Site, command: str) -> None:
    # The reader is gone before anything is written, whatever the size of the pipe.
    done = shell(site, f"{{ sleep 0.3; $ICML26 {command}; echo code $? >&2; }} | true")
    assert done.stderr == "code 0\n"
    done = shell(site, f"set -o pipefail; $ICML26 {command} | head -1; echo ${{PIPESTATUS[0]}}")
    assert len(done.stdout.splitlines()) == 2
    assert (done.stdout.splitlines()[1], done.stderr) == ("0", "")


@pytest.mark.parametrize("command", ["list-methods", "list-plugins --json", "--version", "doctor", "list-metrics -h"])
def test_closed_streams_are_no_error(site: Site, command: str) -> None:
    for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
        done = shell(site, f"$ICML26 {command} {closed}")
        assert (done.returncode, done.stderr) == (0, "")


def test_an_error_with_all_streams_closed_still_has_its_exit_code(site: Site) -> None:
    assert shell(site, "$ICML26 show nothing <&- >&- 2>&-").returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("command", ["list-methods", "list-methods --json", "show alpha", "doctor"])
def test_a_full_disk_is_said_and_ends_with_4(site: Site, command: str) -> None:
    done = shell(site, f"$ICML26 {command} >/dev/full")
    assert done.returncode == 4
    assert done.stderr.startswith("error: standard output cannot be written (No space left")


def test_a_working_folder_that_was_removed_is_no_error(site: Site, tmp_path: Path) -> None:
    site.add("unindexed")
    (tmp_path / "gone").mkdir()
    done = shell(site, f"cd '{tmp_path}/gone' && rmdir ../gone && $ICML26 list-methods")
    assert (done.returncode, done.stderr) == (0, "")
    assert "unindexed/plain" in done.stdout


def test_a_path_that_is_not_text_is_no_error(site: Site, tmp_path: Path) -> None:
    other = Site(tmp_path / os.fsdecode(b"byte \xff"), site.home)
    other.folder.mkdir()
    other.add("odd", index=True)
    other.add("unindexed")
    document = other.json("list-plugins")
    assert {plugin["name"] for plugin in document["plugins"]} >= {"odd", "unindexed"}
    assert document["warnings"] == []
    assert other.run("list-plugins").returncode == 0
    assert other.run("list-methods", **ASCII).returncode == 0


ASCII = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}


def test_an_ascii_locale_gets_text_in_ascii_and_the_same_json(site: Site) -> None:
    done = site.run("list-methods", **ASCII)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Fast - na?ve x 2" in done.stdout
    assert done.stdout.isascii()
    plain_json = site.run("list-methods", "--json", **ASCII)
    assert plain_json.stdout.isascii()
    assert json.loads(plain_json.stdout) == site.json("list-methods")


def test_a_latin_1_locale_gets_what_it_can_show(site: Site) -> None:
    environment = site.variables(PYTHONUTF8="0", PYTHONIOENCODING="latin-1")
    done = subprocess.run([sys.executable, "-m", "icml26", "list-methods"], capture_output=True, env=environment)
    assert "Fast - naïve x 2" in done.stdout.decode("latin-1")
    assert done.stderr == b""


def test_json_on_standard_output_is_one_strict_document_with_its_schema(site: Site) -> None:
    site.add("prints", "print('x')\nraise ValueError")
    for command, key in (
        ("list-methods", "methods"),
        ("list-datasets", "datasets"),
        ("list-metrics", "metrics"),
        ("list-tasks", "tasks"),
        ("list-plugins", "plugins"),
    ):
        document = site.json(command)
        assert document["schema"] == f"icml26.{command}/1"
        assert document[key]
        [warning] = document["warnings"]
        assert set(warning) == {"plugin", "distribution", "reason"}
    [method] = [entry for entry in site.json("list-methods")["methods"] if entry["name"] == "plain"]
    assert method == {
        "name": "plain",
        "plugin": "alpha",
        "qualified": "alpha/plain",
        "task": "toys.alpha",
        "role": "reference",
        "summary": "The plain way",
        "paper": None,
        "default_dataset": None,
    }


def test_an_infinite_default_is_tagged_in_json(site: Site) -> None:
    document = index_of("inf", "icml26-plugin-inf", "icml26_plugin_inf")
    document["methods"][0]["smoke"] = {"limit": {"nonfinite": "-inf"}}
    document["methods"][0]["config_schema"]["properties"] = {
        "limit": {"default": {"nonfinite": "inf"}, "type": "number"}
    }
    site.add("inf", index=document)
    [entry] = site.json("show", "inf")["entries"]
    assert entry["smoke"] == {"limit": {"nonfinite": "-inf"}}
    assert entry["config_schema"]["properties"]["limit"]["default"] == {"nonfinite": "inf"}
    assert "limit  number, default inf" in site.run("show", "inf").stdout


def test_filters_choose_and_an_empty_choice_is_no_error(site: Site) -> None:
    def chosen(*arguments: str) -> list[str]:
        return [entry["name"] for entry in site.json("list-methods", *arguments)["methods"]]

    assert chosen("--task", "toys.alpha", "--role", "reference") == ["plain"]
    assert chosen("--plugin", "icml26-plugin-alpha", "--role=paper") == ["alpha", LONG]
    assert chosen("--role", "oracle") == []
    done = site.run("list-methods", "--role", "oracle")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no methods to list with this choice\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list-methods", "--task", "toys.alpah"], ["no task 'toys.alpah'", "did you mean 'toys.alpha'"]),
        (["list-methods", "--plugin", "alfa"], ["no plugin 'alfa'", "did you mean 'alpha'"]),
        (["list-methods", "--role", "hero"], ["paper, baseline, reference, oracle"]),
        (["show", "alpa"], ["'alpa'", "did you mean 'alpha'"]),
        (["show", "alpha", "--kind", "thing"], ["method, dataset, metric, task"]),
        (["show", "alpha", "--kind", "dataset"], ["no dataset 'alpha'"]),
        (["show"], ["NAME"]),
        (["show", "a", "b"], ["argument"]),
        (["list-methods", "--tusk"], ["--tusk"]),
        (["list-methods", "--task"], ["--task"]),
        (["lst-methods"], ["list-methods"]),
        (["run"], ["METHOD"]),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_right(site: Site, arguments: list[str], words: list[str]) -> None:
    done = site.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["list-methods"],
        ["list-methods", "--json", "--task", "toys.alpha"],
        ["list-datasets", "--plugin", "alpha"],
        ["list-metrics"],
        ["list-tasks"],
        ["list-plugins"],
        ["show", "alpha", "--kind=method"],
        ["show", "toys.alpha", "--json"],
        ["list-methods", "--task", "nothing.here"],
        ["show", "nothing"],
        ["--version"],
    ],
)
def test_the_fast_path_and_typer_say_the_same(site: Site, arguments: list[str]) -> None:
    ours = site.run(*arguments)
    code = (
        "import sys; import icml26.cli.fast as fast; fast.answer = lambda *a: None\n"
        "from icml26.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    slow = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, encoding="utf-8", env=site.variables()
    )
    assert (ours.returncode, ours.stdout, ours.stderr) == (slow.returncode, slow.stdout, slow.stderr)


def test_help_names_every_command_and_imports_none(site: Site) -> None:
    from icml26.cli.commands import COMMANDS

    code = (
        "import sys; from icml26.__main__ import main; main(['--help'])\n"
        "print(sorted(m for m in sys.modules if m in {'icml26.cli.run', 'icml26.cli.look', 'icml26.cli.doctor'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=site.variables())
    assert done.stdout.endswith("[]\n")
    assert all(f"  {name} " in done.stdout for name in COMMANDS)
    assert site.run().returncode == 0
    assert site.run().stdout == site.run("-h").stdout


def test_every_command_has_help(site: Site) -> None:
    from icml26.cli.app import load_command
    from icml26.cli.commands import COMMANDS

    for name, command in COMMANDS.items():
        assert load_command(name, command.target).help, name


class BoomError(Exception):
    """A bug."""


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UsageError("wrong name"), 2, "error: wrong name\n"),
        (StoreError("disk gone"), 4, "error: disk gone\n"),
        (
            BoomError("deep inside"),
            3,
            "error: BoomError: deep inside (this is a bug of icml26; --traceback shows where",
        ),
        (BoomError(), 3, "error: BoomError (this is a bug"),
        (OSError(errno.ENOSPC, "No space left on device", "x/y"), 4, "error: x/y: nothing more can be written there"),
        (OSError(errno.EBADF, "Bad file descriptor"), 3, "error: OSError: [Errno 9] Bad"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_every_end_has_its_exit_code_and_one_message(
    error: BaseException, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from icml26.__main__ import main

    def answer(*_: Any) -> int:
        raise error

    monkeypatch.setattr(fast, "answer", answer)
    assert main(["list-methods"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(words)
    assert captured.err.count("\n") == (1 if words else 0)


def test_ctrl_c_in_a_command_of_typer_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from icml26 import plugins
    from icml26.__main__ import main

    def load(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plugins, "load_catalog", load)
    assert main(["run", "mean"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_traceback_shows_where(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from icml26.__main__ import main

    def answer(*_: Any) -> int:
        raise BoomError("deep inside")

    monkeypatch.setattr(fast, "answer", answer)
    assert main(["list-methods", "--traceback"]) == 3
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_global_options_are_taken_from_anywhere_before_two_dashes() -> None:
    options, rest = split_global_options(["--color", "never", "run", "x", "--traceback", "--", "--color", "always"])
    assert options == GlobalOptions("never", True)
    assert rest == ["run", "x", "--", "--color", "always"]


def test_text_is_measured_and_wrapped_by_what_it_shows() -> None:
    assert display_width("né") == 2
    assert display_width("ne\u0301") == 2
    assert display_width("漢字") == 4
    assert wrapped("aa bb cc", 5) == ["aa bb", "cc"]
    assert wrapped("漢字 漢字", 8) == ["漢字", "漢字"]
    assert wrapped("unbreakable", 3) == ["unbreakable"]
    assert wrapped("", 3) == [""]
    assert plain("a\tb\nc\x07") == "a b c"


def test_a_table_aligns_wide_characters(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(GlobalOptions(color="never"))
    output.terminal = True
    output.table(("NAME", "TEXT"), [("漢字", "x"), ("abcdef", "y")])
    assert capsys.readouterr().out.splitlines() == ["NAME    TEXT", "漢字    x", "abcdef  y"]
