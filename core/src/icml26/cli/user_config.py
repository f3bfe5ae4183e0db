"""The user's own defaults of shared options: ``config.toml`` in the config folder. Flags and variables win over it."""

from __future__ import annotations

import os
import tomllib

from icml26.errors import UsageError
from icml26.smallfiles import read_text

KEYS = ("device", "executor", "jobs", "memory", "store", "threads", "timeout")


def apply_user_config() -> None:
    """Give each key of the file to its ``ICML26_<KEY>`` variable, unless that is set; raises UsageError for a faulty file."""
    for key, value in read_user_config().items():
        os.environ.setdefault(f"ICML26_{key.upper()}", value)


def read_user_config() -> dict[str, str]:
    """The options of the user's file as text, none without a file; raises UsageError that says what is wrong with it."""
    from icml26.home import config_folder

    path = config_folder() / "config.toml"
    try:
        text = read_text(path, 1 << 20)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error}); mend or remove it") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: {error}; mend or remove the file") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}; mend or remove the file") from error
    for key, value in document.items():
        if key not in KEYS:
            raise UsageError(f"{path}: unknown option {key!r}; allowed: {', '.join(KEYS)}")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise UsageError(f"{path}: option {key!r} must be a text or a number")
    return {key: str(value) for key, value in document.items()}
