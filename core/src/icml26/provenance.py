"""Where a record comes from: versions, commits, host. Recorded and shown, never part of a run's key."""

from __future__ import annotations

import json
import platform
import socket
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement

from icml26 import __version__
from icml26.hookspecs import CORE_API


def provenance(distributions: Iterable[str], *, threads: int, workers: int) -> dict[str, Any]:
    """The provenance of a run that starts now and uses these distributions."""
    names = tuple(sorted(set(distributions)))
    return {
        "started": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        **_host(),
        "core": __version__,
        "core_api": CORE_API,
        "threads": threads,
        "workers": workers,
        "distributions": {name: dict(_distribution(name)) for name in names},
        "libraries": dict(_libraries(names)),
    }


@cache
def _host() -> dict[str, str]:
    return {"host": socket.gethostname(), "python": platform.python_version(), "platform": platform.platform()}


@cache
def _distribution(name: str) -> dict[str, Any]:
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return {"version": None, "commit": None, "editable": False}
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    return {
        "version": distribution.version,
        "commit": origin.get("vcs_info", {}).get("commit_id"),
        "editable": bool(origin.get("dir_info", {}).get("editable", False)),
    }


@cache
def _libraries(distributions: tuple[str, ...]) -> dict[str, str]:
    """Versions of what the distributions require directly."""
    found = {}
    for name in distributions:
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for text in requirements:
            library = Requirement(text).name
            if library not in distributions:
                try:
                    found[library] = metadata.version(library)
                except metadata.PackageNotFoundError:
                    continue
    return dict(sorted(found.items()))
