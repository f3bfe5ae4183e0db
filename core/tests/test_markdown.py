"""Results as Markdown: what a README shows must be what was measured."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from arena_environment import ARENA, Arena
from icml26.digits import bounded, plus_minus
from icml26.statistics import Estimate


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (Estimate(11.4234, 11.11, 11.73, 3), "11.42 ± 0.31"),
        (Estimate(0.0896, 0.0583, 0.1209, 3), "0.090 ± 0.031"),
        (Estimate(21.59, -26.5, 69.7, 3), "22 ± 48"),
        (Estimate(8765.4, 7531.0, 9999.8, 3), "8765 ± 1.2e+03"),
        (Estimate(3.2e-9, 3.0e-9, 3.4e-9, 3), "3.2e-09 ± 2e-10"),
        (Estimate(0.123456, None, None, 1), "0.1235"),
        ("needs a truth", "–"),
    ],
)
def test_digits_go_by_the_interval(estimate: Estimate | str, expected: str) -> None:
    assert plus_minus(estimate) == expected


def test_an_interval_has_the_digits_of_its_value() -> None:
    assert bounded(Estimate(2.3078, 1.9, 2.8, 3)) == "2.31 [1.90, 2.80]"
    assert bounded(Estimate(0.5, None, None, 1)) == "0.5"


def tables(text: str) -> list[list[dict[str, str]]]:
    """The tables of a Markdown text, as a parser of pipes reads them."""
    found = []
    for block in text.split("\n\n"):
        lines = block.strip().splitlines()
        if len(lines) < 2 or set(lines[1]) - set("|- "):
            continue
        rows = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines]
        assert {len(row) for row in rows} == {len(rows[0])}, block
        found.append([dict(zip(rows[0], row, strict=True)) for row in rows[2:]])
    return found


def test_a_recipe_is_printed_as_tables(arena: Arena) -> None:
    document = arena.json("reproduce", "arena", "-q")
    text = arena.run("reproduce", "arena", "-q", "--markdown").stdout
    assert text.startswith("**The mean beats one draw** (`arena/arena`)")
    rows, preconditions, claims = tables(text)
    assert list(rows[0]) == ["method", "dataset", "error ↓", "cost ↓", "seconds ↓"]
    assert {(row["method"], row["dataset"]) for row in rows} >= {("`cheat` (oracle)", "`easy`"), ("`lazy`", "`noisy`")}
    for line in rows:
        float(line["seconds ↓"])
    assert preconditions[0]["precondition"] == "`solvable`: the oracle makes no error"
    assert preconditions[0]["verdict"].startswith("holds")
    beats = next(claim for claim in document["claims"] if claim["id"] == "beats-plain")
    line = claims[0]
    assert line["claim"] == "`beats-plain`: the error is at most 0.7 of one draw's (must hold)"
    assert (line["paper"], line["bar"], line["verdict"]) == ("half (invented)", "≤ 0.7", "holds")
    assert line["measured"] == bounded(Estimate(beats["measured"], *beats["interval"], beats["n"]))
    assert claims[1]["verdict"] == "**does not hold**"
    assert claims[1]["paper"] == "–"
    assert "1 of 2 claims hold." in text


def test_a_bench_is_printed_as_a_table_with_what_has_no_scores(arena: Arena) -> None:
    arguments = (
        "bench",
        "ours",
        "bad=rival",
        "--set",
        "bad:fault=raise",
        "--metrics",
        "error",
        "--seeds",
        "1,3",
        "-q",
    )
    done = arena.run(*arguments, "--markdown", code=1)
    (rows,) = tables(done.stdout)
    table: Mapping[str, Mapping] = {row["method"]: row for row in arena.json(*arguments, code=1)["table"]}
    ours = table["ours"]["metrics"]["error"]
    assert list(rows[0]) == ["method", "error ↓", "seconds ↓"], "one dataset needs no column"
    assert rows[0]["error ↓"] == plus_minus(Estimate(ours["mean"], ours["low"], ours["high"], 2))
    assert [rows[1][key] for key in ("method", "error ↓", "seconds ↓")] == ["`bad`", "–", "–"]
    assert "- `bad` on `easy`: 2 of 2 runs have no scores (2 failed)." in done.stdout
    assert "seeds (1, 3)" in done.stdout
    assert "bad on easy, seed 1" in done.stderr


def test_seconds_of_two_machines_are_not_put_beside_each_other(arena: Arena) -> None:
    arguments = ("bench", "ours", "rival", "--metrics", "error", "-q")
    arena.run(*arguments)
    one = next(path for path in arena.home.glob("runs/*/record.json") if "arena/rival" in path.read_text())
    document = json.loads(one.read_text())
    document["provenance"]["host"] = "elsewhere"
    one.write_text(json.dumps(document))
    for path in arena.home.glob("store.sqlite3*"):
        path.unlink()
    arena.run("results", "reindex")
    text = arena.run(*arguments, "--markdown").stdout
    assert {row["seconds ↓"] for row in tables(text)[0]} == {"–"}
    assert "- No seconds: the runs come from different machines" in text


@pytest.mark.parametrize("other", ["--json", "--dry-run"])
def test_markdown_goes_with_no_other_form(arena: Arena, other: str) -> None:
    for command in (("bench", "ours"), ("reproduce", "arena")):
        assert "--markdown" in arena.run(*command, "--markdown", other, code=2).stderr


def test_bars_in_texts_do_not_break_a_row(arena: Arena, tmp_path: Path) -> None:
    recipe = (ARENA / "recipes" / "arena.toml").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(recipe.replace('"half (invented)"', '"a | b\\nc"'))
    done: subprocess.CompletedProcess[str] = arena.run("reproduce", str(tmp_path / "mine.toml"), "-q", "--markdown")
    assert r"| a \| b c |" in done.stdout


def test_python_has_the_same_tables(arena: Arena) -> None:
    code = (
        "import icml26; done = icml26.reproduce('arena', jobs=1); print(done.to_markdown());"
        " assert done.bench.to_markdown() in done.to_markdown()"
    )
    environment = {**os.environ, "ICML26_HOME": str(arena.home), "PYTHONUTF8": "1"}
    printed = subprocess.run([arena.python, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert printed.stdout == arena.run("reproduce", "arena", "-q", "--markdown").stdout
