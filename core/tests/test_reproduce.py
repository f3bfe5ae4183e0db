"""Recipes from the command line: claims measured, exit codes, what is kept for reports; results queried and moved."""

from __future__ import annotations

import csv
import json
import sqlite3
import time
from pathlib import Path

import pytest
from arena_environment import ARENA, Arena

RECIPE = (ARENA / "recipes" / "arena.toml").read_text(encoding="utf-8")


def test_claims_are_measured_and_kept(arena: Arena) -> None:
    document = arena.json("reproduce", "arena", "-q", "-j", "2")
    assert document["schema"] == "icml26.reproduce/1"
    assert document["recipe"] == "arena/arena"
    claims = {claim["id"]: claim for claim in document["claims"]}
    beats = claims["beats-plain"]
    assert (beats["holds"], beats["must"], beats["n"], beats["paper"]) == (True, True, 4, "half (invented)")
    errors: dict[str, list[float]] = {"ours": [], "plain": []}
    by_id = {record["id"]: record for record in document["records"]}
    for cell in document["cells"]:
        if cell["dataset"] == "easy" and cell["method"] in errors:
            errors[cell["method"]].append(by_id[cell["record"]]["metrics"]["error"]["value"])
    assert beats["measured"] == pytest.approx(sum(errors["ours"]) / sum(errors["plain"]))
    assert beats["interval"][0] <= beats["measured"] <= beats["interval"][1]
    assert claims["impossible"]["holds"] is False
    assert claims["impossible"]["over"] in ("plain", "rival")
    assert document["preconditions"][0]["holds"] is True
    kept = json.loads((arena.home / "reproductions" / "arena--arena.json").read_text())
    assert kept["claims"] == document["claims"]
    assert kept["records"] == []
    assert {record["id"] for record in arena.json("reproduce", "arena/arena", "-q")["records"]} == set(by_id)


def test_a_must_that_does_not_hold_is_exit_1(arena: Arena, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(RECIPE.replace("at-most = 0.7", "at-most = 0.0001"))
    done = arena.run("reproduce", str(tmp_path / "mine.toml"), "-q", code=1)
    assert "beats-plain\tdoes not hold" in done.stdout


def test_a_broken_precondition_is_void_and_a_must_then_fails(arena: Arena, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        RECIPE.replace('of = "cheat", on = "easy"}\nat-most', 'of = "cheat", on = "easy"}\nat-least')
    )
    document = arena.json("reproduce", str(tmp_path / "mine.toml"), "-q", code=1)
    assert {claim["state"] for claim in document["claims"]} == {"void"}
    assert {claim["holds"] for claim in document["claims"]} == {None}


def test_other_seeds_are_another_experiment_and_not_kept(arena: Arena) -> None:
    document = arena.json("reproduce", "arena", "--seeds", "0..1", "-q")
    assert document["claims"][0]["n"] == 2
    assert not (arena.home / "reproductions").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("arean", "did you mean 'arena'"),
        ("arena/aren", "did you mean 'arena/arena'"),
        ("nowhere.toml", "nowhere.toml: no such file"),
    ],
)
def test_an_unknown_recipe_is_named_with_what_is_near(arena: Arena, name: str, message: str) -> None:
    assert message in arena.run("reproduce", name, code=2).stderr


def test_results_are_queried_exported_and_merged(arena: Arena, tmp_path: Path) -> None:
    arena.run("bench", "rival", "cheat", "--metrics", "error,cost", "--seeds", "0..2", "-q")
    assert len(arena.json("results")["records"]) == 6
    assert len(arena.json("results", "--method", "rival", "--seeds", "0,1")["records"]) == 2
    assert len(arena.json("results", "--role", "oracle", "--limit", "1")["records"]) == 1
    assert arena.json("results", "--status", "failed")["records"] == []
    assert "did you mean 'rival'" in arena.run("results", "--method", "rivl", code=2).stderr
    text = arena.run("results", "export", "--method", "rival").stdout
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["metric.cost"] for row in rows] == ["5.0"] * 3
    for form in ("csv", "json", "parquet"):
        arena.run("results", "export", "-o", str(tmp_path / f"all.{form}"))
    assert len(json.loads((tmp_path / "all.json").read_text())["records"]) == 6
    import pandas

    frame = pandas.read_parquet(tmp_path / "all.parquet")
    assert frame["metric.error"].dtype == float
    assert len(frame) == 6
    other = tmp_path / "other.sqlite3"
    arena.run("bench", "rival", "--metrics", "error,cost", "--seeds", "7", "--store", str(other), "-q")
    assert arena.json("results", "merge", str(other)) == {
        "schema": "icml26.results-merge/1",
        "added": {str(other): 1},
        "total": 7,
        "folders_not_here": {str(other): 0},
    }
    assert arena.json("results", "merge", str(other))["added"] == {str(other): 0}
    assert "no such store" in arena.run("results", "merge", str(tmp_path / "gone"), code=2).stderr


def test_merging_says_which_folders_are_not_here_and_reindexing_links_them(arena: Arena, tmp_path: Path) -> None:
    other, theirs, copied = tmp_path / "other.sqlite3", tmp_path / "theirs", tmp_path / "copied"
    where = ("--store", str(other), "--output", str(theirs))
    arena.run("bench", "rival", "--metrics", "error", "--save", "--seeds", "0..1", "-q", *where)
    theirs.rename(copied)
    done = arena.run("results", "merge", str(other))
    assert "2 new records" in done.stdout
    assert "the folders of 2 of its runs are not on this machine" in done.stderr
    assert "icml26 results reindex DIR" in done.stderr
    assert arena.run("results", "rescore", code=1).stderr.count("2 left alone") == 1
    assert arena.json("results", "reindex", str(copied)) == {
        "schema": "icml26.results-reindex/1",
        "added": 0,
        "known": 2,
        "linked": 2,
        "unreadable": {},
    }
    assert len(arena.json("results", "rescore")["rescored"]) == 2
    assert "linked" not in arena.run("results", "reindex", str(copied)).stdout, "they are where they should be"


def test_the_store_is_rebuilt_from_the_runs(arena: Arena) -> None:
    before = arena.json("bench", "ours", "--seeds", "0..1", "-q")["records"]
    for path in arena.home.glob("store.sqlite3*"):
        path.unlink()
    assert arena.json("results")["records"] == []
    assert arena.json("results", "reindex")["added"] == 4
    assert sorted(record["id"] for record in arena.json("results")["records"]) == sorted(r["id"] for r in before)
    assert arena.json("bench", "ours", "--seeds", "0..1", "-q")["records"] == before


def test_saved_outputs_are_scored_again(arena: Arena) -> None:
    arena.run("bench", "rival", "--metrics", "error", "--save", "--seeds", "0..1", "-q")
    arena.run("bench", "cheat", "--metrics", "error", "-q")
    done = arena.json("results", "rescore", "--metrics", "square")
    assert (len(done["rescored"]), len(done["refused"])) == (2, 1)
    for record in arena.json("results", "--method", "rival")["records"]:
        assert record["metrics"]["square"]["value"] == pytest.approx(record["metrics"]["error"]["value"] ** 2)
        kept = json.loads((arena.home / "runs" / record["id"] / "record.json").read_text())
        assert kept["metrics"] == record["metrics"]


def test_rescoring_refuses_data_that_changed(arena: Arena) -> None:
    arena.run("bench", "rival", "--metrics", "error", "--save", "-q")
    for path in arena.home.glob("runs/*/record.json"):
        document = json.loads(path.read_text())
        document["dataset"]["fingerprint"] = "sha256:other"
        path.write_text(json.dumps(document))
    for path in arena.home.glob("store.sqlite3*"):
        path.unlink()
    arena.run("results", "reindex")
    done = arena.run("results", "rescore", code=1)
    assert "another fingerprint" in done.stderr


def test_a_text_that_looks_like_a_formula_is_defused_in_csv(arena: Arena) -> None:
    arena.run("bench", "rival", "--metrics", "error", "--set", "fault==1+1", "-q")
    rows = list(csv.DictReader(arena.run("results", "export").stdout.splitlines()))
    assert rows[0]["config.fault"] == "'=1+1"


def test_stale_runs_are_told_and_measured_anew_on_request(arena: Arena) -> None:
    first = arena.json("bench", "rival", "--metrics", "error", "-q")["records"][0]
    with sqlite3.connect(arena.home / "store.sqlite3") as connection:
        connection.execute(
            """UPDATE records SET document = replace(document, '"version": "1.0"', '"version": "0.9"')"""
        )
    connection.close()
    kept = arena.run("bench", "rival", "--metrics", "error", "--json", "-q")
    assert "measured by other versions" in kept.stderr
    assert json.loads(kept.stdout)["records"][0]["id"] == first["id"]
    anew = arena.json("bench", "rival", "--metrics", "error", "--stale", "rerun", "-q")
    assert anew["records"][0]["id"] != first["id"]


def copied(arena: Arena, folder: Path) -> Path:
    """Another store, with a run that no recipe asked for."""
    arena.run("bench", "rival", "--seeds", "9", "--metrics", "error", "-q", "--store", str(folder / "other.sqlite3"))
    return folder / "other.sqlite3"


def test_a_report_of_it_all_is_written(arena: Arena, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arena.run("reproduce", "arena", "-q")
    document = arena.json("report", "-o", str(tmp_path / "site"))
    assert (document["tasks"], document["recipes"], document["skipped"]) == (1, 1, {})
    text = (tmp_path / "site" / "claims.html").read_text()
    assert "The mean beats one draw" in text
    assert "does not hold" in text
    other = arena.json("report", "-o", str(tmp_path / "other"), "--store", str(copied(arena, tmp_path)))
    assert other["recipes"] == 0, "claims stand beside the runs that they were measured on"
    empty = arena.run("report", "--since", "2999-01-01", "-o", str(tmp_path / "none"), code=5)
    assert "no such runs" in empty.stderr


def test_a_bench_can_be_watched_from_elsewhere(arena: Arena) -> None:
    idle = arena.run("results", "--watch")
    assert (idle.stdout, "nothing is running" in idle.stderr) == ("", True)
    bench = arena.popen("bench", "rival", "--metrics", "error", "--set", "sleep=1", "--seeds", "0..5", "-q")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not arena.json("results")["records"]:
        pass
    watched = arena.run("results", "--watch")
    bench.communicate(timeout=60)
    assert "claimed by" in watched.stderr
    lines = [line.split("\t") for line in watched.stdout.splitlines()]
    assert lines and all(line[0] == "arena/rival" and line[3] == "succeeded" for line in lines)
    assert {line[4] for line in lines} < {record["id"] for record in arena.json("results")["records"]}
    assert "goes with --store alone" in arena.run("results", "--watch", "--json", code=2).stderr
