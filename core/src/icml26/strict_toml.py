"""Reading of TOML documents that tolerates nothing: each table is taken apart key by key, and what is left is an error."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from icml26.errors import UsageError
from icml26.smallfiles import read_text

T = TypeVar("T")
SIZE_LIMIT = 16 << 20

_NAMES: dict[type, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "an array",
    dict: "a table",
}


def read_toml(path: Path) -> dict[str, Any]:
    """The document in a file; raises UsageError that names the file and the line."""
    try:
        # Editors on Windows begin UTF-8 with a byte order mark, which TOML does not know.
        return tomllib.loads(read_text(path, SIZE_LIMIT, "utf-8-sig"))
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML ({error})") from error
    except RecursionError as error:
        raise UsageError(f"{path}: arrays or tables are nested too deeply") from error
    except ValueError as error:  # a zero character in the path
        raise UsageError(f"{str(path)!r} cannot be the path of a file ({error})") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or the known names when none is near."""
    choices = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    if near:
        return f"; did you mean {' or '.join(repr(choice) for choice in near)}?"
    return f"; known: {', '.join(choices)}" if choices else ""


class Table:
    """One table of a document, and where it stands (``recipes/x.toml: [[claim]] 2``)."""

    def __init__(self, where: str, values: Any) -> None:
        if not isinstance(values, Mapping):
            raise UsageError(f"{where}: a table is expected, not {_found(values)}")
        self.where = where
        self.values = dict(values)
        self.known: list[str] = []

    def fail(self, message: str) -> UsageError:
        """An error that says where."""
        return UsageError(f"{self.where}: {message}")

    def has(self, key: str) -> bool:
        """Whether the key is given and was not taken yet."""
        return key in self.values

    def take(self, key: str, kind: type[T], default: T | None = None) -> T | None:
        """The value of an optional key, checked to be of ``kind``."""
        self.known.append(key)
        if key not in self.values:
            return default
        return self._checked(key, self.values.pop(key), kind)

    def need(self, key: str, kind: type[T]) -> T:
        """The value of a required key."""
        self.known.append(key)
        if key not in self.values:
            raise self.fail(f"{key!r} is missing ({_NAMES.get(kind, kind.__name__)})")
        return self._checked(key, self.values.pop(key), kind)

    def raw(self, key: str) -> Any:
        """The value of an optional key of any type, None without one."""
        self.known.append(key)
        return self.values.pop(key, None)

    def choice(self, key: str, choices: Iterable[str], default: str | None = None) -> str:
        """One of a few words; without a default the key is required."""
        value = self.need(key, str) if default is None else self.take(key, str, default)
        assert value is not None
        if value not in choices:
            raise self.fail(f"{key} = {value!r} is not one of {', '.join(choices)}")
        return value

    def strings(self, key: str) -> tuple[str, ...] | None:
        """An optional array of distinct strings."""
        values = self.take(key, list)
        if values is None:
            return None
        if not all(isinstance(value, str) for value in values):
            raise self.fail(f"{key} must be an array of strings")
        if len(set(values)) != len(values):
            raise self.fail(f"{key} names something twice")
        return tuple(values)

    def tables(self, key: str) -> list[Table]:
        """An optional array of tables, ``[[key]]``."""
        values = self.take(key, list, [])
        assert values is not None
        return [Table(f"{self.where}: [[{key}]] {number}", value) for number, value in enumerate(values, start=1)]

    def done(self) -> None:
        """Refuse what was not taken, with the nearest known keys."""
        for key in self.values:
            raise self.fail(f"unknown key {key!r}{nearest(key, self.known)}")

    def _checked(self, key: str, value: Any, kind: type[T]) -> T:
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)  # type: ignore[return-value]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.fail(f"{key} must be {_NAMES.get(kind, kind.__name__)}, not {_found(value)}")
        return value


def _found(value: Any) -> str:
    for kind in (bool, str, int, float, list, dict):
        if isinstance(value, kind):
            return f"{_NAMES[kind]} ({value!r})" if kind not in (list, dict) else _NAMES[kind]
    return type(value).__name__
