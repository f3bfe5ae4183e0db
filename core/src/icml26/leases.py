"""Who is computing what: claims of run keys, in a table of their own, never among the results.

A lease names the folder in which its record will appear. When its owner is gone, a record found there is taken in and the
key is free again, so that killing anything at any moment loses no finished run.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from icml26.errors import StoreError
from icml26.ids import new_id
from icml26.processes import process_started, sweep, token_of
from icml26.records import RunRecord
from icml26.store import Store

#: An owner on another machine that has not renewed for this long is taken for dead.
FOREIGN_PATIENCE_SECONDS = 600.0
RENEW_EVERY_SECONDS = 30.0
_DYING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim: the run of ``key`` will leave its record in ``folder`` under ``record_id``."""

    key: str
    record_id: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Active:
    """A lease as others see it."""

    lease: Lease
    owner: str
    host: str
    pid: int
    alive: bool
    token: str | None = None


# The owners in this process that are at work: its process id alone would keep the claims of a failed call alive.
_AT_WORK: set[str] = set()


class Leases:
    """The claims of one coordinator (an *owner*) on a store."""

    def __init__(self, store: Store, owner: str | None = None) -> None:
        self.store = store
        self.owner = owner or new_id()
        self._renewed = -1e9
        _AT_WORK.add(self.owner)

    def forget(self) -> None:
        """This owner is no longer at work; what it still holds is recovered by whoever comes next."""
        _AT_WORK.discard(self.owner)

    def claim(self, wanted: Sequence[Lease], *, wait_seconds: float | None = None) -> set[str]:
        """Claim what nobody else holds, in one transaction; returns the keys that are now ours. Dead owners do not count."""
        self._recover(wait_seconds)
        with self.store.database.writing(wait_seconds) as connection:
            self._touch(connection)
            rows = [(lease.key, lease.record_id, self.owner, str(lease.folder)) for lease in wanted]
            connection.executemany("INSERT OR IGNORE INTO leases VALUES (?, ?, ?, ?)", rows)
            ids = connection.execute("SELECT record_id FROM leases WHERE owner = ?", (self.owner,)).fetchall()
        held = {str(row[0]) for row in ids}
        return {lease.key for lease in wanted if lease.record_id in held}

    @property
    def renewal_due(self) -> bool:
        """Whether we have been silent for ``RENEW_EVERY_SECONDS``."""
        return time.monotonic() - self._renewed >= RENEW_EVERY_SECONDS

    def renew(self, *, wait_seconds: float | None = None) -> None:
        """Say that we are alive."""
        with self.store.database.writing(wait_seconds) as connection:
            self._touch(connection)

    def release(self, record_ids: Iterable[str] | None = None, *, wait_seconds: float | None = None) -> None:
        """Give up some claims, or all and leave the table of owners."""
        with self.store.database.writing(wait_seconds) as connection:
            if record_ids is None:
                connection.execute("DELETE FROM leases WHERE owner = ?", (self.owner,))
                connection.execute("DELETE FROM owners WHERE owner = ?", (self.owner,))
            else:
                connection.executemany("DELETE FROM leases WHERE record_id = ?", [(item,) for item in record_ids])

    def _recover(self, wait_seconds: float | None) -> None:
        if any(not active.alive for active in active_leases(self.store)):
            recover(self.store, wait_seconds=wait_seconds)

    def _touch(self, connection: object) -> None:
        connection.execute(  # type: ignore[attr-defined]
            "INSERT INTO owners VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (owner) DO UPDATE SET renewed = excluded.renewed",
            (self.owner, machine(), platform.node(), os.getpid(), process_started(os.getpid()), time.time()),
        )
        self._renewed = time.monotonic()


def active_leases(store: Store) -> list[Active]:
    """All leases of a store, and whether their owners live."""
    rows = store.database.read(
        "SELECT l.key, l.record_id, l.folder, l.owner, o.machine, o.host, o.pid, o.process_started, o.renewed"
        " FROM leases l LEFT JOIN owners o ON l.owner = o.owner"
    ).fetchall()
    living: dict[str, bool] = {}
    found = []
    for key, record_id, folder, owner, owner_machine, host, pid, started, renewed in rows:
        if owner not in living:
            living[owner] = owner_machine is not None and _alive(owner, owner_machine, pid, started, renewed)
        elsewhere = owner_machine != machine() or pid == os.getpid()
        token = None if elsewhere else token_of(pid, started)
        found.append(Active(Lease(key, record_id, Path(folder)), owner, host or "", pid or 0, living[owner], token))
    return found


def recover(store: Store, *, wait_seconds: float | None = None) -> int:
    """Take in the finished runs of coordinators that died and free their other keys; returns how many were taken in."""
    dead = [active for active in active_leases(store) if not active.alive]
    if not dead:
        return 0
    # Its workers end with it, but one may just be writing its record: look only when none is left.
    for token in {active.token for active in dead if active.token}:
        sweep(token, patience=_DYING_SECONDS)
    stale = [active.lease for active in dead]
    finished: list[tuple[RunRecord, Path | None]] = []
    for lease in stale:
        try:
            record = RunRecord.read(lease.folder / "record.json")
        except StoreError:
            continue
        if record.id == lease.record_id:
            finished.append((record, lease.folder))
    kept = {record.id for record, _ in finished}
    added = store.ingest_all(finished, release=[lease.record_id for lease in stale], wait_seconds=wait_seconds)
    with store.database.writing(wait_seconds) as connection:
        connection.execute(
            "DELETE FROM owners WHERE owner NOT IN (SELECT owner FROM leases) AND renewed < ?",
            (time.time() - FOREIGN_PATIENCE_SECONDS,),
        )
    for lease in stale:
        if lease.record_id not in kept:
            discard_unfinished(lease.folder, lease.record_id)
    return added


def discard_unfinished(folder: Path, record_id: str) -> None:
    """Remove the folder of a run that was cut off; one that does not look like it, or holds a record, is left alone."""
    if folder.name != record_id or (folder / "record.json").exists() or not folder.is_dir():
        return
    if any((folder / name).is_file() for name in ("request.json", "log.txt")) or not any(folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)


@cache
def machine() -> str:
    """This boot of this machine (and its process namespace): where a process id means something."""
    parts = [platform.node()]
    for source in ("/proc/sys/kernel/random/boot_id",):
        try:
            parts.append(Path(source).read_text(encoding="ascii").strip())
        except OSError:
            parts.append("")
    try:
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        parts.append("")
    return "|".join(parts)


def _alive(owner: str, owner_machine: str, pid: int, started: float, renewed: float) -> bool:
    if owner_machine == machine():
        if pid == os.getpid():
            return owner in _AT_WORK
        return process_started(pid) == started
    return time.time() - renewed < FOREIGN_PATIENCE_SECONDS
