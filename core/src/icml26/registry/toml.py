"""Write the small part of TOML that registries need: strings, numbers, arrays, inline tables, arrays of tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
WIDTH = 110


def value(item: Any) -> str:
    """One TOML value on one line."""
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int):
        return str(item)
    if isinstance(item, str):
        return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(item, Mapping):
        return "{ " + ", ".join(f"{key(name)} = {value(inner)}" for name, inner in item.items()) + " }"
    if isinstance(item, Sequence):
        return "[" + ", ".join(value(inner) for inner in item) + "]"
    raise TypeError(f"{type(item).__name__} has no TOML form here")


def key(name: str) -> str:
    """A bare key where possible, else a quoted one."""
    return name if _BARE.fullmatch(name) else value(name)


def line(name: str, item: Any) -> str:
    """``name = value``; an array that is too long for a line has one element a line."""
    text = f"{key(name)} = {value(item)}"
    if len(text) > WIDTH and isinstance(item, Sequence) and not isinstance(item, str):
        text = f"{key(name)} = [\n" + "".join(f"    {value(inner)},\n" for inner in item) + "]"
    return text


def table(header: str, items: Mapping[str, Any]) -> str:
    """``[header]`` (or ``[[header]]``, as given) and its keys; keys whose value is None or empty are left out."""
    lines = [line(name, item) for name, item in items.items() if item is not None and item not in ((), [], {}, "")]
    return "\n".join([header, *lines]) + "\n"
