"""The user's config file gives defaults; variables and flags win."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from installed import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    folder = tmp_path / "site"
    folder.mkdir()
    (tmp_path / "home" / "config").mkdir(parents=True)
    return Site(folder, tmp_path / "home")


def threads(site: Site, *arguments: str, **variables: str) -> int:
    done = site.run("run", "mean", "--dataset", "friedman", "--dry-run", "--json", *arguments, **variables)
    assert done.returncode == 0, done.stderr
    (request,) = json.loads(done.stdout)["requests"]
    return int(request["threads"])


def test_flag_wins_over_variable_over_file(site: Site) -> None:
    (site.home / "config" / "config.toml").write_text("threads = 3\n")
    assert threads(site) == 3
    assert threads(site, ICML26_THREADS="5") == 5
    assert threads(site, "--threads", "7", ICML26_THREADS="5") == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("thread = 3\n", "unknown option 'thread'"),
        ("threads = [1]\n", "must be a text or a number"),
        ("threads", "config.toml"),
    ],
)
def test_a_faulty_file_is_refused_by_name_but_listing_still_works(site: Site, text: str, message: str) -> None:
    (site.home / "config" / "config.toml").write_text(text)
    done = site.run("run", "mean", "--dataset", "friedman", "--dry-run")
    assert done.returncode == 2
    assert message in done.stderr
    assert site.run("list-methods").returncode == 0


@pytest.mark.parametrize(
    ("name", "id_"),
    [("config.toml", "bad-config-file"), ("registries.toml", "bad-registry-list"), ("../store.sqlite3", "bad-store")],
)
def test_doctor_names_files_of_the_user_that_cannot_be_read(site: Site, name: str, id_: str) -> None:
    (site.home / "config" / name).write_text("\x01 this is no such file")
    done = site.run("doctor", "--json")
    assert [fault["id"] for fault in json.loads(done.stdout)["faults"] if fault["severity"] == "error"] == [id_]
    assert done.returncode == 1
