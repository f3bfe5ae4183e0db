"""The store: idempotent ingestion, lookups, merging, rebuilding, migrations, locks, full and read-only disks."""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from icml26 import database
from icml26.database import Database, StoreBusyError
from icml26.errors import StoreError
from icml26.ids import new_id
from icml26.records import RunRecord, metric_entry
from icml26.store import Store


def record(key: str = "k", status: str = "succeeded", **changes: Any) -> RunRecord:
    fields: dict[str, Any] = {
        "id": new_id(),
        "key": key,
        "status": status,
        "method": {"name": "p/m", "role": "paper", "config": {"a": 1}},
        "dataset": {"name": "p/d", "config": {}, "files": {}},
        "task": "t.x",
        "seed": 0,
        "metrics": {"score": metric_entry(1.5, unit=None)},
        "provenance": {"started": "2026-01-01T00:00:00.000Z"},
    }
    return RunRecord(**{**fields, **changes})


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.open(tmp_path / "store.sqlite3") as opened:
        yield opened


def test_a_record_comes_back_identical_whatever_its_numbers(store: Store, tmp_path: Path) -> None:
    values = {"nan": math.nan, "inf": math.inf, "minus": -math.inf, "tiny": 5e-324, "third": 1 / 3}
    given = record(
        metrics={name: metric_entry(value) for name, value in values.items()}, info={"text": "\ud7ff “ü” \x00"}
    )
    store.ingest(given, tmp_path)
    with Store.open(store.path, readonly=True) as reader:
        found = reader.find(["k"])["k"]
    assert found == given
    assert math.isnan(found.value("nan") or 0.0)
    assert [found.value(name) for name in ("inf", "minus", "tiny", "third")] == [math.inf, -math.inf, 5e-324, 1 / 3]


def test_ingestion_is_idempotent_by_id(store: Store) -> None:
    given = record()
    assert [store.ingest(given), store.ingest(given), store.count()] == [True, False, 1]


def test_find_gives_the_newest_success_of_each_key(store: Store) -> None:
    first, second = record("a", seed=1), record("a", seed=2)
    for item in (second, first, record("a", "failed"), record("b", "failed")):
        store.ingest(item)
    assert {key: found.id for key, found in store.find(["a", "b", "c"]).items()} == {"a": max(first.id, second.id)}


def test_find_handles_more_keys_than_a_statement_takes(store: Store) -> None:
    store.ingest_all((record(f"k{i}"), None) for i in range(1200))
    assert len(store.find(f"k{i}" for i in range(-50, 1200))) == 1200


def test_latest_shows_each_key_once_and_prefers_success(store: Store) -> None:
    kept = record("a")
    for item in (kept, record("a", "failed"), record("b", "failed"), record("b", "timed-out")):
        store.ingest(item)
    assert [(run.key, run.status) for run in store.query(latest=True)] == [("b", "timed-out"), ("a", "succeeded")]


def test_queries_filter_page_and_keep_the_order_of_time(store: Store) -> None:
    ids = [record(f"k{i}", seed=i, dataset={"name": f"p/d{i % 2}", "config": {}}) for i in range(10)]
    store.ingest_all((item, Path("/runs") / item.id) for item in reversed(ids))
    assert [run.seed for run in store.query(dataset="p/d1", newest_first=False)] == [1, 3, 5, 7, 9]
    assert [run.seed for run in store.query(seed=[2, 4], method=["p/m"], status="succeeded")] == [4, 2]
    assert [run.seed for run in store.query(limit=3, offset=2, newest_first=False)] == [2, 3, 4]
    assert list(store.query(task="t.other")) == []
    run = next(store.query(id_prefix=ids[3].id))
    assert (run.folder, run.metrics["score"]["value"]) == (Path("/runs") / ids[3].id, 1.5)


def test_config_digests_tell_configs_and_files_apart(store: Store) -> None:
    for config, files in (({"a": 1}, {}), ({"a": 2}, {}), ({"a": 1}, {"a": "sha256:0"})):
        store.ingest(record(dataset={"name": "p/d", "config": config, "files": files}))
    assert len({run.dataset_digest for run in store.query()}) == 3


def test_amending_changes_the_document_and_refuses_unknown_ids(store: Store) -> None:
    given = record()
    store.ingest(given)
    given.metrics["gain"] = metric_entry(2.0, relative_to="x")
    store.amend(given)
    assert store.find(["k"])["k"].value("gain") == 2.0
    with pytest.raises(StoreError, match="no record"):
        store.amend(record())


def test_merging_is_a_union_by_id(store: Store, tmp_path: Path) -> None:
    shared, own, foreign = record("a"), record("b"), record("c")
    store.ingest_all([(shared, None), (own, None)])
    with Store.open(tmp_path / "other.sqlite3") as other:
        other.ingest_all([(shared, None), (foreign, None)])
        assert [store.merge(other), store.merge(other), store.count()] == [1, 0, 3]
        assert other.count() == 2


def test_reindexing_rebuilds_from_files_and_names_the_broken_ones(store: Store, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for item in (records := [record("a"), record("b")]):
        (runs / item.id).mkdir(parents=True)
        item.write(runs / item.id)
    for name, text in (("cut", '{"schema": "icml26.record/1", "id"'), ("empty", ""), ("alien", "[1]")):
        (runs / name).mkdir()
        (runs / name / "record.json").write_text(text, encoding="utf-8")
    (runs / "none").mkdir()
    found = store.reindex(runs)
    assert (found.added, found.known, len(found.unreadable)) == (2, 0, 4)
    assert store.reindex(runs).known == 2
    assert store.find(["a"])["a"] == records[0]
    assert store.reindex(tmp_path / "nowhere").added == 0


def test_ten_thousand_records_are_read_within_a_second(store: Store) -> None:
    store.ingest_all((record(f"k{i}", seed=i), None) for i in range(10_000))
    started = time.perf_counter()
    total = sum(run.metrics["score"]["value"] for run in store.query(latest=True))
    assert total == 15_000
    assert time.perf_counter() - started < 1.0


# -- schema --------------------------------------------------------------------------------------------------------------


def test_a_newer_schema_is_refused_for_reading_and_writing(store: Store) -> None:
    store.close()
    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    for readonly in (True, False):
        with pytest.raises(StoreError, match="newer icml26"):
            Store.open(store.path, readonly=readonly)


def test_an_older_schema_is_migrated_after_a_backup(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.ingest(record("a"))
    store.close()
    monkeypatch.setattr(database, "MIGRATIONS", (*database.MIGRATIONS, "ALTER TABLE owners ADD COLUMN note TEXT;"))
    with Store.open(store.path, readonly=True) as reader:
        assert list(reader.find(["a"])) == ["a"]
    assert not list(store.path.parent.glob("*.backup"))
    with Store.open(store.path) as migrated:
        assert migrated.count() == 1
        assert "note" in [row[1] for row in migrated.database.read("PRAGMA table_info(owners)")]
    (backup,) = store.path.parent.glob("*.backup")
    with sqlite3.connect(backup) as old:
        assert old.execute("PRAGMA user_version").fetchone() == (1,)
        assert old.execute("SELECT count(*) FROM records").fetchone() == (1,)


def test_a_failing_migration_changes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.ingest(record("a"))
    store.close()
    script = "ALTER TABLE owners ADD COLUMN note TEXT; ALTER TABLE nonsense ADD COLUMN note TEXT;"
    with monkeypatch.context() as patched, pytest.raises(StoreError):
        patched.setattr(database, "MIGRATIONS", (*database.MIGRATIONS, script))
        Store.open(store.path)
    with Store.open(store.path) as again:
        assert again.count() == 1
        assert "note" not in [row[1] for row in again.database.read("PRAGMA table_info(owners)")]


def test_other_files_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    alien, text = tmp_path / "alien.db", tmp_path / "notes.txt"
    with sqlite3.connect(alien) as connection:
        connection.execute("CREATE TABLE notes (x)")
    text.write_text("not a database, but long enough to look at " * 100, encoding="utf-8")
    before = alien.read_bytes()
    for path in (alien, text):
        for readonly in (True, False):
            with pytest.raises(StoreError, match="--store"):
                Store.open(path, readonly=readonly)
    assert alien.read_bytes() == before


def test_a_damaged_store_says_how_to_rebuild(store: Store) -> None:
    store.ingest_all((record(f"k{i}"), None) for i in range(500))
    store.close()
    data = bytearray(store.path.read_bytes())
    data[4096 : len(data) // 2] = bytes(len(data) // 2 - 4096)
    store.path.write_bytes(data)
    with pytest.raises(StoreError, match="reindex"), Store.open(store.path) as broken:
        list(broken.query())


# -- who may write ---------------------------------------------------------------------------------------------------------


def test_reading_a_missing_store_creates_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path / "sub" / "none.sqlite3", readonly=True) as reader:
        assert (list(reader.query()), reader.count()) == ([], 0)
        with pytest.raises(StoreError, match="reading only"):
            reader.ingest(record())
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_a_writer_is_just_making_reads_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite3"
    path.touch()
    with Store.open(path, readonly=True) as reader:
        assert reader.count() == 0
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = wal")
        with Store.open(path, readonly=True) as reader:
            assert reader.count() == 0


def test_a_store_without_write_bits_is_read_but_not_written_even_by_root(store: Store) -> None:
    store.ingest(record("a"))
    store.close()
    store.path.chmod(0o444)
    with Store.open(store.path, readonly=True) as reader:
        assert list(reader.find(["a"])) == ["a"]
    with pytest.raises(StoreError, match="read-only"):
        Store.open(store.path)


def test_a_reader_sees_what_a_killed_writer_left_in_its_log(store: Store, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    copied.mkdir()
    store.ingest(record("a"))
    for suffix in ("", "-wal"):
        source = store.path.with_name(store.path.name + suffix)
        (copied / source.name).write_bytes(source.read_bytes())
    with Store.open(copied / store.path.name, readonly=True) as reader:
        assert list(reader.find(["a"])) == ["a"]


def test_a_write_waits_for_another_writer_and_gives_up_in_time(store: Store) -> None:
    other = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusyError, match="locked"):
        store.ingest_all([(record("a"), None)], wait_seconds=0.2)
    threading.Timer(0.4, lambda: other.execute("COMMIT")).start()
    assert store.ingest(record("a"))
    other.close()


def test_two_processes_create_and_write_a_store_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "two.sqlite3"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path; from icml26.store import Store; from test_store import record\n"
        "with Store.open(Path(sys.argv[2])) as store:\n"
        "    for i in range(60): store.ingest(record(f'{sys.argv[3]}{i}'))\n"
    )
    arguments = [sys.executable, "-c", code, str(Path(__file__).parent), str(path)]
    writers = [subprocess.Popen([*arguments, name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    with Store.open(path, readonly=True) as reader:
        assert (reader.count(), reader.check()) == (120, [])


def test_network_file_systems_get_no_write_ahead_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "is_network_file_system", lambda folder: True)
    with closing(Database.open(tmp_path / "net.sqlite3", readonly=False)) as opened:
        assert opened.read("PRAGMA journal_mode").fetchone()[0] == "delete"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_is_an_error_that_says_so_and_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", disk], check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount")
    try:
        with Store.open(disk / "store.sqlite3") as store:
            stored = 0
            with pytest.raises(StoreError, match="disk"):
                for _ in range(1000):
                    stored += store.ingest(record(new_id(), info={"filler": "x" * 5000}))
            assert stored > 5
            assert store.count() == stored
        with Store.open(disk / "store.sqlite3", readonly=True) as reader:
            assert (reader.count(), reader.check()) == (stored, [])
    finally:
        subprocess.run(["umount", disk], check=True)
