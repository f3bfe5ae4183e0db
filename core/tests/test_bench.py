"""Benches from the command line, in an environment of their own: grids, resuming, references, ends and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from arena_environment import Arena
from icml26.store import Store


def cells(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["dataset"], row["method"]): row for row in document["table"]}


def test_a_task_is_benched_with_its_references_and_what_does_not_fit(arena: Arena) -> None:
    document = arena.json("bench", "--task", "contest.guess", "--seeds", "0..2", "-j", "2", "-q")
    table = cells(document)
    assert set(table) == {
        (dataset, method) for dataset in ("easy", "labelled") for method in ("ours", "plain", "rival", "cheat")
    } | {("labelled", "picky")}
    ours = table["easy", "ours"]
    assert ours["statuses"] == {"succeeded": 3}
    assert ours["metrics"]["error"]["n"] == 3
    assert ours["metrics"]["error"]["unit"] == "units"
    assert table["easy", "cheat"]["metrics"]["error"]["mean"] == 0
    assert table["easy", "cheat"]["role"] == "oracle"
    assert ours["versus"]["error"]["to"] == "plain"
    assert ours["versus"]["error"]["n"] == 6
    assert ours["versus"]["error"]["p"] is not None
    reasons = {(row["method"], row["dataset"]): row["reason"] for row in document["not_applicable"]}
    assert "labels" in reasons["picky", "easy"]
    assert "path" in reasons["ours", "file"]
    assert len(document["records"]) == 27


def test_relative_metrics_bring_the_reference_and_agree_with_its_scores(arena: Arena) -> None:
    document = arena.json("bench", "ours", "--seeds", "0..1", "-q")
    table = cells(document)
    assert set(table) == {("easy", "ours"), ("easy", "plain")}
    by_id = {record["id"]: record for record in document["records"]}
    for record in document["records"]:
        if record["method"]["name"] == "arena/ours":
            gain = record["metrics"]["gain"]
            reference = by_id[gain["relative_to"]]
            assert reference["seed"] == record["seed"]
            expected = reference["metrics"]["error"]["value"] - record["metrics"]["error"]["value"]
            assert gain["value"] == pytest.approx(expected)
            stored = json.loads((arena.home / "runs" / record["id"] / "record.json").read_text())
            assert stored["metrics"]["gain"] == gain
    again = arena.json("bench", "ours", "--seeds", "0..1", "-q")
    assert again["records"] == document["records"]
    assert not list((arena.home / "runs").glob(".relate-*"))


def test_what_is_stored_is_reused_and_fresh_measures_anew(arena: Arena) -> None:
    def ids(*more: str) -> set[str]:
        return {record["id"] for record in arena.json("bench", "rival", "--seeds", "0..1", "-q", *more)["records"]}

    first = ids()
    assert ids() == first
    assert not ids("--fresh") & first


def test_a_new_metric_runs_again_what_lacks_it(arena: Arena) -> None:
    first = arena.json("bench", "rival", "--metrics", "error", "-q")
    wider = arena.json("bench", "rival", "--metrics", "error,square", "-q")
    record = wider["records"][0]
    assert record["id"] != first["records"][0]["id"]
    assert record["metrics"]["square"]["value"] == pytest.approx(record["metrics"]["error"]["value"] ** 2)
    narrow = arena.json("bench", "rival", "--metrics", "error", "-q")
    assert narrow["records"][0]["id"] == record["id"]


def test_several_configs_of_one_method_have_labels(arena: Arena) -> None:
    document = arena.json(
        "bench", "a=rival", "b=rival", "-d", "easy", "-d", "loud=easy",
        "--set", "a:steps=2", "--set", "b:steps=7", "--set", "loud:noise=9.5", "-q",
    )  # fmt: skip
    table = cells(document)
    assert table["easy", "a"]["metrics"]["cost"]["mean"] == 2
    assert table["loud", "b"]["metrics"]["cost"]["mean"] == 7
    loud = [record for record in document["records"] if record["dataset"]["config"]["noise"] == 9.5]
    assert [record["method"]["config"]["steps"] for record in loud] == [2, 7]


def test_a_bench_file_describes_everything(arena: Arena, tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1 2 6")
    (tmp_path / "bench.toml").write_text(
        'schema = "icml26.bench-file/1"\nseeds = [0]\n[bench]\nmetrics = ["error", "cost"]\n'
        'methods = [{name = "rival", as = "r", sweep = {steps = [1, 2]}}]\n'
        'datasets = [{name = "file", as = "mine", config = {path = "numbers.txt"}}]\n'
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = arena.run("bench", str(tmp_path / "bench.toml"), "--json", "-q", cwd=elsewhere)
    table = cells(json.loads(done.stdout))
    assert {method: row["metrics"]["cost"]["mean"] for (_, method), row in table.items()} == {
        "r (steps 1)": 1,
        "r (steps 2)": 2,
    }
    assert table["mine", "r (steps 1)"]["metrics"]["error"]["mean"] == pytest.approx(1.0)


def test_failures_are_rows_counted_named_and_tried_again(arena: Arena) -> None:
    arguments = ("bench", "bad=rival", "cheat", "--metrics", "error", "--set", "bad:fault=raise", "--seeds", "0..3")
    done = arena.run(*arguments, code=1)
    assert "2 runs have no scores: 2 failed" in done.stderr
    assert "bad on easy, seed 1: failed: odd seed" in done.stderr
    assert "easy\tbad\t" in done.stdout
    table = cells(arena.json(*arguments, "-q", code=1))
    assert table["easy", "bad"]["statuses"] == {"succeeded": 2, "failed": 2}
    with Store.open(arena.home / "store.sqlite3", readonly=True) as store:
        assert len(list(store.query(status="failed"))) == 4


def test_a_process_that_vanishes_is_a_record(arena: Arena) -> None:
    table = cells(
        arena.json("bench", "rival", "--metrics", "error", "--set", "fault=exit", "--seeds", "0,1", "-q", code=1)
    )
    assert table["easy", "rival"]["statuses"] == {"succeeded": 1, "failed": 1}


@pytest.mark.parametrize(("seeds", "code"), [("1,3", 2), ("0,1", 1)])
def test_refused_runs_alone_are_exit_2_and_beside_others_1(arena: Arena, seeds: str, code: int) -> None:
    done = arena.run("bench", "rival", "--metrics", "error", "--set", "fault=refuse", "--seeds", seeds, "-q", code=code)
    assert "column 3 is empty" in done.stderr


WRONG = [
    (("bench", "picky", "-d", "easy"), 5, "no method fits"),
    (("bench",), 2, "no methods"),
    (("bench", "rivals"), 2, "did you mean 'rival'"),
    (("bench", "rival", "-d", "esy"), 2, "did you mean 'easy'"),
    (("bench", "rival", "rival"), 2, "stands there twice"),
    (("bench", "rival", "--set", "stepps=3"), 2, "did you mean 'steps'"),
    (("bench", "rival", "plain", "--set", "steps=3"), 2, "e.g. --set plain:steps=3"),
    (("bench", "rival", "--set", "rivl:steps=3"), 2, "did you mean 'rival'"),
    (("bench", "rival", "--set", "steps=0"), 2, ">= 1"),
    (("bench", "rival", "--seeds", "3..1"), 2, "seeds"),
    (("bench", "rival", "--metrics", "eror"), 2, "did you mean 'error'"),
    (("bench", "rival", "--profile", "tiny"), 2, "none of these methods has a profile 'tiny'"),
    (("bench", "rival", "--baseline", "rivl"), 2, "did you mean 'rival'"),
    (("bench", "rival", "--stale", "perhaps"), 2, "keep, rerun"),
    (("bench", "rival", "--executor", "cloud"), 2, "allowed: local"),
    (("bench", "--task", "contest.gues"), 2, "did you mean 'contest.guess'"),
    (("bench", "rival", "-d", "file"), 2, "path"),
    (("bench", "nowhere.toml"), 2, "no such file"),
    (("bench", "rival", "--timeout", "soon"), 2, "soon"),
]
_MANY = """
import contextlib, io, json, sys
from icml26.__main__ import main
ends = []
for arguments in json.loads(sys.argv[1]):
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        code = main(arguments)
    ends.append([code, error.getvalue()])
print(json.dumps(ends))
"""


def test_wrong_benches_are_refused_before_anything_runs(arena: Arena) -> None:
    lines = json.dumps([[*arguments, "-q"] for arguments, _, _ in WRONG])
    environment = {**os.environ, "ICML26_HOME": str(arena.home)}
    done = subprocess.run(
        [arena.python, "-c", _MANY, lines], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout)
    for (arguments, code, message), (found, text) in zip(WRONG, ends, strict=True):
        assert (found, message in text) == (code, True), (arguments, found, text)
    assert not (arena.home / "runs").exists()


def test_a_profile_goes_to_those_that_have_it(arena: Arena) -> None:
    table = cells(arena.json("bench", "ours", "rival", "--metrics", "cost", "--profile", "tiny", "-q"))
    assert table["easy", "ours"]["metrics"]["cost"]["mean"] == 2
    assert table["easy", "rival"]["metrics"]["cost"]["mean"] == 5


def test_a_dry_run_runs_nothing(arena: Arena) -> None:
    done = arena.run("bench", "rival", "picky", "-d", "easy", "--seeds", "0..4", "--dry-run")
    assert "rival\teasy\t5\t0" in done.stdout
    assert "picky\teasy\t–\t–\tarena/picky needs" in done.stdout
    assert not (arena.home / "runs").exists()
    arena.run("bench", "rival", "--seeds", "0..1", "-q")
    plan = arena.json("bench", "rival", "--seeds", "0..4", "-n")
    assert [run["stored"] for run in plan["runs"] if run["method"] == "arena/rival"] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_figures_are_drawn_for_the_first_seed_unless_asked(arena: Arena) -> None:
    def drawn(*more: str) -> list[int]:
        document = arena.json("bench", "rival", "--metrics", "error", "--seeds", "0..2", "-q", "--fresh", *more)
        return [record["seed"] for record in document["records"] if record["artifacts"]]

    assert drawn() == [0]
    assert drawn("--figures", "all") == [0, 1, 2]
    assert drawn("--figures", "none") == []


def test_standard_output_holds_the_document_alone(arena: Arena) -> None:
    done = arena.run("bench", "rival", "--json")
    assert json.loads(done.stdout)["schema"] == "icml26.bench/1"
    assert "bench: 1 of 1 runs" in done.stderr


def test_ctrl_c_ends_at_130_says_how_to_resume_and_resuming_completes(arena: Arena) -> None:
    arguments = ("bench", "rival", "--metrics", "error", "--set", "sleep=0.5", "--seeds", "0..9", "-j", "2")
    process = arena.popen(*arguments, start_new_session=True)
    store = arena.home / "store.sqlite3"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if store.exists():
            with Store.open(store, readonly=True) as records:
                if records.count() >= 2:
                    break
        time.sleep(0.1)
    started = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert time.monotonic() - started < 10
    assert "the same command again runs only what is missing" in err
    with Store.open(store, readonly=True) as records:
        before = {run.id for run in records.query()}
    assert 2 <= len(before) < 10
    after = {record["id"] for record in arena.json(*arguments, "-q")["records"]}
    assert len(after) == 10
    assert before <= after
    own = [item for item in psutil.process_iter(["cmdline"]) if str(arena.home) in " ".join(item.info["cmdline"] or [])]
    assert own == []


def test_a_store_that_cannot_be_written_is_refused_before_any_run(arena: Arena, tmp_path: Path) -> None:
    (tmp_path / "store.sqlite3").write_text("not a store")
    done = arena.run("bench", "rival", "--store", str(tmp_path / "store.sqlite3"), code=4)
    assert "store.sqlite3" in done.stderr
    assert not list((arena.home / "runs").glob("*/record.json"))


def test_python_has_the_same(arena: Arena, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import icml26, json\n"
        "methods = ['rival', {'name': 'rival', 'as': 'quick', 'config': {'steps': 1}}]\n"
        "done = icml26.bench(methods, seeds=range(2), metrics=['cost'])\n"
        "frame = done.to_pandas()\n"
        "found = icml26.results(method='rival', latest=True)\n"
        "again = icml26.reproduce('arena', seeds=[0, 1])\n"
        "print(json.dumps([list(frame.columns), len(frame), frame['cost'].tolist(), len(found), found[0].task,\n"
        "  len(found.to_pandas()), [verdict.state for verdict in again.claims], callable(icml26.bench)]))\n"
    )
    environment = {**os.environ, "ICML26_HOME": str(arena.home)}
    done = subprocess.run(
        [arena.python, script], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    columns, rows, cost, found, task, frame, states, callable_ = json.loads(done.stdout)
    assert columns == ["method", "dataset", "seed", "role", "status", "cost"]
    assert (rows, cost, found, task, frame) == (4, [5, 5, 1, 1], 4, "contest.guess", 4)
    assert states == ["holds", "fails"]
    assert callable_
