"""The SQLite file under the store: opening, waiting for locks, schema and migrations, readable errors."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from icml26.errors import StoreError

#: ``ICML`` as SQLite's application id: other programs' databases are refused.
APPLICATION_ID = 0x49434D4C

_CREATE = """
CREATE TABLE records (
  id TEXT PRIMARY KEY, key TEXT NOT NULL, status TEXT NOT NULL, task TEXT NOT NULL, method TEXT NOT NULL,
  role TEXT NOT NULL, profile TEXT, config_digest TEXT NOT NULL, dataset TEXT NOT NULL, dataset_digest TEXT NOT NULL,
  seed INTEGER NOT NULL, started TEXT NOT NULL, folder TEXT, metrics TEXT NOT NULL, document TEXT NOT NULL);
CREATE INDEX records_by_key ON records (key, status);
CREATE INDEX records_by_method ON records (method, dataset);
CREATE INDEX records_by_task ON records (task);
CREATE INDEX records_by_started ON records (started);
CREATE TABLE owners (
  owner TEXT PRIMARY KEY, machine TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, process_started REAL NOT NULL,
  renewed REAL NOT NULL);
CREATE TABLE leases (
  key TEXT PRIMARY KEY, record_id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, folder TEXT NOT NULL);
CREATE INDEX leases_by_owner ON leases (owner);
"""
#: The n-th script leads from schema n to n + 1; ``user_version`` says how many were applied.
MIGRATIONS: tuple[str, ...] = (_CREATE,)

_WAIT_SECONDS = 90.0
_NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "afs", "lustre", "gpfs", "beegfs", "ceph", "9p", "fuse.", "glusterfs")


class StoreBusyError(StoreError):
    """Another process held the store locked for longer than we were willing to wait; nothing was written."""


class Database:
    """One connection; writes are short transactions that wait for other writers."""

    def __init__(self, path: Path, connection: sqlite3.Connection, readonly: bool, scratch: Path | None = None) -> None:
        self.path = path
        self.readonly = readonly
        self._connection = connection
        self._scratch = scratch

    @classmethod
    def open(cls, path: Path, *, readonly: bool) -> Self:
        """Open (for writers: create, migrate) the file; raises StoreError with what to do."""
        path = path.absolute()
        if path.exists() and not path.is_file():
            raise StoreError(f"{path}: this is a folder, pipe or device, not a store; use --store FILE for another")
        with _readable_errors(path):
            database = cls._open_reader(path) if readonly else cls._open_writer(path)
            try:
                database._check()
            except BaseException:
                database.close()
                raise
        return database

    @classmethod
    def _open_writer(cls, path: Path) -> Self:
        if path.exists() and path.stat().st_mode & 0o222 == 0:
            raise StoreError(
                f"{path}: the store is read-only (its mode has no write bit); use --store FILE for another"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path.parent}: cannot be created ({error.strerror}); use --store FILE") from error
        connection = sqlite3.connect(path, isolation_level=None, timeout=0.0)
        database = cls(path, connection, readonly=False)
        try:
            database._prepare()
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def _open_reader(cls, path: Path) -> Self:
        if not path.exists():
            return cls(path, _empty(), readonly=True)
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=10.0)
        try:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version == 0 and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                connection.close()  # a writer has just made the file
                return cls(path, _empty(), readonly=True)
            if version >= len(MIGRATIONS) or version == 0:
                return cls(path, connection, readonly=True)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                connection.close()
                raise
        # An older schema, or a write-ahead log in a folder that cannot be written: read a private copy.
        connection.close()
        scratch = Path(tempfile.mkdtemp(prefix="icml26-store-"))
        for suffix in ("", "-wal"):
            source = path.with_name(path.name + suffix)
            if source.exists():
                shutil.copyfile(source, scratch / source.name)
        copy = sqlite3.connect(scratch / path.name, isolation_level=None)
        database = cls(path, copy, readonly=True, scratch=scratch)
        database._migrate(backup=False)
        return database

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def read(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run a query; waits for a writer that blocks readers (rollback journals do)."""
        with _readable_errors(self.path):
            return self._retry(lambda: self._connection.execute(sql, values), _WAIT_SECONDS)

    @contextmanager
    def writing(self, wait_seconds: float | None = None) -> Iterator[sqlite3.Connection]:
        """A write transaction; waits up to ``wait_seconds`` (default 90) for the lock, then raises StoreBusyError."""
        if self.readonly:
            raise StoreError(f"{self.path}: the store was opened for reading only")
        wait = _WAIT_SECONDS if wait_seconds is None else wait_seconds
        connection = self._connection
        with _readable_errors(self.path):
            self._retry(lambda: connection.execute("BEGIN IMMEDIATE"), wait)
            try:
                yield connection
                self._retry(lambda: connection.execute("COMMIT"), wait)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _retry(self, action: Any, wait_seconds: float) -> Any:
        """Call ``action`` until the lock is free. Sleeps here, not in SQLite's busy handler: that one ignores Ctrl-C."""
        deadline = time.monotonic() + wait_seconds
        pause = 0.005
        while True:
            try:
                return action()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
                if time.monotonic() + pause > deadline:
                    raise StoreBusyError(
                        f"{self.path}: another process has kept the store locked for {wait_seconds:.0f} s; "
                        "end it or wait, then run the same command again"
                    ) from error
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    def _prepare(self) -> None:
        connection = self._connection
        if self._tables():
            self._check()  # before anything is changed in a file that may not be ours
        network = is_network_file_system(self.path.parent)
        mode = "delete" if network else "wal"
        current = str(self._retry(lambda: connection.execute("PRAGMA journal_mode"), _WAIT_SECONDS).fetchone()[0])
        if current.lower() != mode:
            answer = self._retry(lambda: connection.execute(f"PRAGMA journal_mode = {mode}"), _WAIT_SECONDS).fetchone()
            if str(answer[0]).lower() != mode:
                self._retry(lambda: connection.execute("PRAGMA journal_mode = delete"), _WAIT_SECONDS)
                mode = "delete"
        # In WAL mode a power cut may undo the last commits but never their order: leases reappear with their record files.
        connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
        if self._version() < len(MIGRATIONS):
            self._migrate(backup=True)

    def _version(self) -> int:
        cursor = self._retry(lambda: self._connection.execute("PRAGMA user_version"), _WAIT_SECONDS)
        return int(cursor.fetchone()[0])

    def _migrate(self, *, backup: bool) -> None:
        connection = self._connection
        self._retry(lambda: connection.execute("BEGIN IMMEDIATE"), _WAIT_SECONDS)
        try:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version and backup:
                self._back_up(version)
            for script in MIGRATIONS[version:]:
                for statement in filter(None, map(str.strip, script.split(";"))):
                    connection.execute(statement)
            if version < len(MIGRATIONS):
                _stamp(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _back_up(self, version: int) -> None:
        """Copy the store beside itself before its schema changes; the copy is complete before anything is altered."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        target = self.path.with_name(f"{self.path.name}.schema-{version}.{stamp}.backup")
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        source = sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True, timeout=_WAIT_SECONDS)
        copy = sqlite3.connect(temporary)
        try:
            source.backup(copy)
            copy.close()
            temporary.replace(target)
        finally:
            copy.close()
            source.close()
            temporary.unlink(missing_ok=True)

    def _tables(self) -> int:
        return int(self.read("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()[0])

    def _check(self) -> None:
        application = int(self.read("PRAGMA application_id").fetchone()[0])
        version = self._version()
        if application != APPLICATION_ID:
            raise StoreError(f"{self.path}: not a store of icml26; use --store FILE for a new one")
        if version > len(MIGRATIONS):
            raise StoreError(
                f"{self.path}: written by a newer icml26 (schema {version}, this one knows {len(MIGRATIONS)}); "
                "upgrade with `pip install -U icml26` or use --store FILE for a new one"
            )


def _empty() -> sqlite3.Connection:
    """A store without records, in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for script in MIGRATIONS:
        connection.executescript(script)
    _stamp(connection)
    return connection


def _stamp(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space, then run the same command again: finished runs are kept",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written (full, or failing); finished runs are kept as files",
    sqlite3.SQLITE_READONLY: "the store is read-only; use --store FILE for another",
    sqlite3.SQLITE_CANTOPEN: "the store cannot be opened (missing folder, or no permission); use --store FILE",
    sqlite3.SQLITE_PERM: "no permission; use --store FILE for another",
    sqlite3.SQLITE_CORRUPT: "the store is damaged; move it away and rebuild it with `icml26 results reindex`",
    sqlite3.SQLITE_NOTADB: "not a store of icml26; use --store FILE for a new one",
}


@contextmanager
def _readable_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", None)
        advice = _ADVICE.get(code & 0xFF) if code is not None else None
        raise StoreError(f"{path}: {advice or 'SQLite refuses'} ({error})") from error


def is_network_file_system(folder: Path) -> bool:
    """Whether a folder lies on a file system where write-ahead logs are unsafe, as far as ``/proc/mounts`` tells."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
        resolved = folder.resolve()
    except OSError:
        return False
    best, kind = -1, ""
    for line in mounts:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(fields[1].replace("\\040", " "))
        if (resolved == point or point in resolved.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind.startswith(_NETWORK_FILE_SYSTEMS) and kind not in ("fuse.overlayfs", "fuse.fuse-overlayfs")
