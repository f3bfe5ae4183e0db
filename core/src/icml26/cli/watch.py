"""``icml26 results --watch``: what other processes are computing and recording in a store, until they are done."""

from __future__ import annotations

import sys
import time
from pathlib import Path

_EVERY_SECONDS = 1.0


def watch(store: Path) -> None:
    """Print a line for every record that appears; runs in progress are counted on standard error.

    Ends when nobody is computing for this store any more.
    """
    from icml26.cli.output import console
    from icml26.leases import active_leases
    from icml26.store import Store

    output = console()
    seen: set[str] | None = None
    told = ""
    while True:
        with Store.open(store, readonly=True) as records:
            active = [lease for lease in active_leases(records) if lease.alive] if store.exists() else []
            rows = records.database.read("SELECT id, method, dataset, seed, status FROM records").fetchall()
        if seen is None:
            seen = {row[0] for row in rows}
        for identity, method, dataset, seed, status in rows:
            if identity not in seen:
                seen.add(identity)
                output.write("\t".join([method, dataset, f"seed {seed}", status, identity]))
        if not active:
            output.note("nothing is running" if not told else "done")
            return
        owners = {f"{lease.host} (process {lease.pid})" for lease in active}
        text = f"{len(active)} runs claimed by {', '.join(sorted(owners))}"
        if text != told:
            output.note(text)
            told = text
        sys.stdout.flush()
        time.sleep(_EVERY_SECONDS)
