"""Run records in one SQLite file. Only a coordinator writes; the record files of the runs remain the truth.

Ingestion is idempotent by record id, so a store can always be brought up to date from files: after a kill
(``icml26.leases``), from another machine (``merge``), or from nothing (``reindex``).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from icml26.database import Database
from icml26.errors import StoreError
from icml26.keys import digest
from icml26.records import RunRecord

_COLUMNS = (
    "id",
    "key",
    "status",
    "task",
    "method",
    "role",
    "profile",
    "config_digest",
    "dataset",
    "dataset_digest",
    "seed",
    "started",
    "folder",
)
_CHUNK = 500

Names = str | int | Sequence[str] | Sequence[int] | None


class StoredRun:
    """A row of the store; the document is decoded when it is asked for.

    Columns: ``id``, ``key``, ``status``, ``task``, ``method``, ``role``, ``profile``, ``config_digest``, ``dataset``,
    ``dataset_digest``, ``seed``, ``started`` (ISO text), ``folder`` (the run's folder or None). ``config_digest`` and
    ``dataset_digest`` are equal exactly when the resolved configs (and the content of their files) are.
    """

    id: str
    key: str
    status: str
    task: str
    method: str
    role: str
    profile: str | None
    config_digest: str
    dataset: str
    dataset_digest: str
    seed: int
    started: str
    folder: Path | None

    def __init__(self, row: Sequence[Any]) -> None:
        for name, value in zip(_COLUMNS, row, strict=False):
            setattr(self, name, value)
        self.folder = None if self.folder is None else Path(self.folder)
        self._metrics: str = row[len(_COLUMNS)]
        self._document: str = row[len(_COLUMNS) + 1]

    @cached_property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """The record's metrics, decoded without the rest of the document."""
        decoded: dict[str, dict[str, Any]] = json.loads(self._metrics)
        return decoded

    @cached_property
    def record(self) -> RunRecord:
        """The whole record."""
        return RunRecord.from_json(json.loads(self._document))

    @property
    def document(self) -> str:
        """The record as its JSON text."""
        return self._document


@dataclass(frozen=True, slots=True)
class Reindexed:
    """What ``reindex`` found: records taken in, records that were there, folders whose record cannot be read (and why).

    ``linked`` of the known ones had lost their folder and have it again.
    """

    added: int
    known: int
    unreadable: dict[str, str]
    linked: int = 0


class Store:
    """The run records of one SQLite file; use as a context manager, from one thread."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @classmethod
    def open(cls, path: Path, readonly: bool = False) -> Self:
        """Open the store at ``path``; writers create it, readers of a missing file see an empty store.

        Raises StoreError for a newer schema, a file that is not a store, or a damaged one.
        """
        return cls(Database.open(path, readonly=readonly))

    @property
    def path(self) -> Path:
        """The file of the store."""
        return self.database.path

    @property
    def readonly(self) -> bool:
        """Whether this store only reads."""
        return self.database.readonly

    def close(self) -> None:
        """Close the file; later calls fail."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- writing ---------------------------------------------------------------------------------------------------

    def ingest(self, record: RunRecord, folder: Path | None = None) -> bool:
        """Take a record in, with the folder of its run; False when its id is already there."""
        return self.ingest_all([(record, folder)]) == 1

    def ingest_all(
        self,
        records: Iterable[tuple[RunRecord, Path | None]],
        *,
        release: Iterable[str] = (),
        wait_seconds: float | None = None,
    ) -> int:
        """Take records in and drop the leases of the ids in ``release``, in one transaction; returns how many were new.

        Raises StoreError when the disk is full or the file is locked for longer than ``wait_seconds`` (default 90).
        """
        rows = [_row(record, folder) for record, folder in records]
        marks = ", ".join("?" * (len(_COLUMNS) + 2))
        with self.database.writing(wait_seconds) as connection:
            before = connection.total_changes
            connection.executemany(f"INSERT OR IGNORE INTO records VALUES ({marks})", rows)
            added = connection.total_changes - before
            connection.executemany("DELETE FROM leases WHERE record_id = ?", [(item,) for item in release])
        return added

    def amend(self, record: RunRecord, *, wait_seconds: float | None = None) -> None:
        """Replace the document of a record that is already there (rescored or relative metrics); unknown ids are refused."""
        row = dict(zip((*_COLUMNS, "metrics", "document"), _row(record, None), strict=True))
        with self.database.writing(wait_seconds) as connection:
            changed = connection.execute(
                "UPDATE records SET status = :status, metrics = :metrics, document = :document WHERE id = :id", row
            ).rowcount
        if changed != 1:
            raise StoreError(f"{self.path}: there is no record {record.id} to amend")

    def merge(self, other: Store) -> int:
        """Take in the records of another store that are not here (a union by record id); returns how many were new."""
        added = 0
        marks = ", ".join("?" * (len(_COLUMNS) + 2))
        batch = other.database.read(f"SELECT {', '.join(_COLUMNS)}, metrics, document FROM records ORDER BY id")
        while rows := batch.fetchmany(_CHUNK):
            with self.database.writing() as connection:
                before = connection.total_changes
                connection.executemany(f"INSERT OR IGNORE INTO records VALUES ({marks})", rows)
                added += connection.total_changes - before
        return added

    def reindex(self, runs: Path) -> Reindexed:
        """Take in every ``record.json`` below ``runs`` that is not here; broken ones are named, not fatal.

        A record that is here but whose folder is not (it was merged from another machine) is linked to the one found.
        """
        added = known = 0
        unreadable: dict[str, str] = {}
        pending: list[tuple[RunRecord, Path | None]] = []
        seen = {str(row[0]): row[1] for row in self.database.read("SELECT id, folder FROM records")}
        found: list[tuple[str, str]] = []
        for folder in sorted(path for path in runs.iterdir() if path.is_dir()) if runs.is_dir() else ():
            if folder.name in seen:
                known += 1
                kept = seen[folder.name]
                if (kept is None or not Path(kept).is_dir()) and (folder / "record.json").is_file():
                    found.append((str(folder), folder.name))
                continue
            path = folder / "record.json"
            try:
                record = RunRecord.read(path)
                _row(record, folder)
            except (StoreError, KeyError, TypeError, AttributeError) as error:
                unreadable[str(path)] = str(error)
                continue
            pending.append((record, folder))
            if len(pending) >= _CHUNK:
                added += self.ingest_all(pending)
                pending.clear()
        added += self.ingest_all(pending) if pending else 0
        if found:
            with self.database.writing() as connection:
                connection.executemany("UPDATE records SET folder = ? WHERE id = ?", found)
        return Reindexed(added, known, unreadable, len(found))

    # -- reading ---------------------------------------------------------------------------------------------------

    def get(self, record_id: str) -> RunRecord | None:
        """The record of an id, or of an unambiguous beginning of one."""
        found = [run.record for run in self.query(id_prefix=record_id, limit=2)]
        return found[0] if len(found) == 1 else None

    def find(self, keys: Iterable[str]) -> dict[str, RunRecord]:
        """The newest succeeded record of each key that has one."""
        return {key: run.record for key, run in self.find_runs(keys).items()}

    def find_runs(self, keys: Iterable[str]) -> dict[str, StoredRun]:
        """Like ``find``, as rows with lazily decoded documents."""
        wanted = list(dict.fromkeys(keys))
        found: dict[str, StoredRun] = {}
        for start in range(0, len(wanted), _CHUNK):
            for run in self.query(key=wanted[start : start + _CHUNK], status="succeeded", newest_first=False):
                found[run.key] = run
        return found

    def query(
        self,
        *,
        task: Names = None,
        method: Names = None,
        dataset: Names = None,
        status: Names = None,
        role: Names = None,
        seed: Names = None,
        key: Names = None,
        id_prefix: str | None = None,
        since: str | None = None,
        latest: bool = False,
        newest_first: bool = True,
        limit: int | None = None,
        offset: int = 0,
    ) -> Iterator[StoredRun]:
        """Stream the runs that meet all filters; each takes a value or several. Methods and datasets are qualified names.

        ``latest`` keeps one run a key: the newest that succeeded, else the newest. ``since`` is an ISO time. ``limit`` and
        ``offset`` page through the result, in the order of record ids (which is that of time).
        """
        filters = {
            "task": task,
            "method": method,
            "dataset": dataset,
            "status": status,
            "role": role,
            "seed": seed,
            "key": key,
        }
        clause, values = _where(filters, id_prefix, since)
        order = "DESC" if newest_first else "ASC"
        source = "records"
        if latest:
            # Documents are large; only ids go through the window.
            ranked = (
                "SELECT id, row_number() OVER (PARTITION BY key ORDER BY status = 'succeeded' DESC, id DESC) AS place"
                f" FROM records {clause}"
            )
            clause = f"WHERE id IN (SELECT id FROM ({ranked}) WHERE place = 1)"
        page = f" LIMIT {-1 if limit is None else int(limit)} OFFSET {int(offset)}"
        cursor = self.database.read(
            f"SELECT {', '.join(_COLUMNS)}, metrics, document FROM {source} {clause} ORDER BY id {order}{page}", values
        )
        while rows := cursor.fetchmany(_CHUNK):
            for row in rows:
                yield StoredRun(row)

    def count(self) -> int:
        """How many records there are."""
        return int(self.database.read("SELECT count(*) FROM records").fetchone()[0])

    def check(self) -> list[str]:
        """The faults that SQLite's integrity check finds; empty when the file is sound."""
        rows = self.database.read("PRAGMA integrity_check").fetchall()
        return [str(row[0]) for row in rows if row[0] != "ok"]


def _where(filters: Mapping[str, Names], id_prefix: str | None, since: str | None) -> tuple[str, list[Any]]:
    clauses: list[str] = []
    values: list[Any] = []
    for column, wanted in filters.items():
        if wanted is None:
            continue
        several = [wanted] if isinstance(wanted, str | int) else list(wanted)
        clauses.append(f"{column} IN ({', '.join('?' * len(several))})")
        values.extend(several)
    if id_prefix is not None:
        clauses.append("substr(id, 1, ?) = ?")
        values.extend([len(id_prefix), id_prefix])
    if since is not None:
        clauses.append("started >= ?")
        values.append(since)
    return ("WHERE " + " AND ".join(clauses) if clauses else ""), values


def _row(record: RunRecord, folder: Path | None) -> tuple[Any, ...]:
    document = record.to_json()
    method, dataset = document["method"], document["dataset"]
    return (
        record.id,
        record.key,
        record.status,
        record.task,
        method["name"],
        method.get("role", "paper"),
        method.get("profile"),
        digest({**method.get("config", {}), **(method.get("files") or {})}),
        dataset["name"],
        digest({**dataset.get("config", {}), **(dataset.get("files") or {})}),
        record.seed,
        str(document["provenance"].get("started", "")),
        None if folder is None else str(folder),
        json.dumps(document["metrics"], allow_nan=False),
        json.dumps(document, allow_nan=False),
    )


def is_full_disk(error: BaseException) -> bool:
    """Whether an error says that the disk (or the quota) is full."""
    import errno

    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, sqlite3.OperationalError) and (error.sqlite_errorcode & 0xFF) == sqlite3.SQLITE_FULL
