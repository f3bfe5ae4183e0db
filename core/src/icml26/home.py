"""Where icml26 keeps what it writes. Asking for a path creates nothing."""

from __future__ import annotations

import os
from pathlib import Path


def home_folder() -> Path:
    """``ICML26_HOME``, or the user's data folder (store, runs, environments)."""
    own = os.environ.get("ICML26_HOME")
    if own:
        return Path(own).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("icml26", appauthor=False)


def runs_folder() -> Path:
    """The folder that holds one folder a run."""
    return home_folder() / "runs"


def store_file() -> Path:
    """The SQLite file of records: ``ICML26_STORE``, or in the home folder."""
    own = os.environ.get("ICML26_STORE")
    return Path(own).expanduser().absolute() if own else home_folder() / "store.sqlite3"


def cache_folder() -> Path:
    """What can be deleted at any time: below ``ICML26_HOME``, or the user's cache folder."""
    if os.environ.get("ICML26_HOME"):
        return home_folder() / "cache"
    from platformdirs import user_cache_path

    return user_cache_path("icml26", appauthor=False)


def config_folder() -> Path:
    """The user's config folder: below ``ICML26_HOME``, or the user's own."""
    if os.environ.get("ICML26_HOME"):
        return home_folder() / "config"
    from platformdirs import user_config_path

    return user_config_path("icml26", appauthor=False)
