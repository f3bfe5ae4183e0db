"""Short names for configs of one method (or dataset): what tells them apart, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from icml26.keys import canonical, from_jsonable

_SHOWN_KEYS = 3
_SHOWN_VALUE = 24


@dataclass(frozen=True, slots=True)
class Described:
    """A method or dataset as records describe it: qualified name, resolved config, profile, hashes of its files."""

    name: str
    config: Mapping[str, Any]
    profile: str | None = None
    files: Mapping[str, str] | None = None

    @property
    def identity(self) -> str:
        """Equal for equal names, configs and file contents."""
        return canonical([self.name, {**self.config, **(self.files or {})}])


def describe(part: Mapping[str, Any]) -> Described:
    """The ``method`` or ``dataset`` of a record."""
    config = part.get("config")
    files = part.get("files")
    return Described(
        str(part.get("name")),
        config if isinstance(config, Mapping) else {},
        part.get("profile"),
        files if isinstance(files, Mapping) else {},
    )


def short_labels(items: Iterable[Described]) -> dict[str, str]:
    """A unique label for each identity: the bare name where that is enough, else with the options that differ."""
    distinct = {item.identity: item for item in items}
    by_name: dict[str, list[Described]] = {}
    for item in distinct.values():
        by_name.setdefault(item.name, []).append(item)
    bare: dict[str, int] = {}
    for name in by_name:
        bare[_bare(name)] = bare.get(_bare(name), 0) + 1
    labels: dict[str, str] = {}
    used: set[str] = set()
    for name, group in by_name.items():
        start = _bare(name) if bare[_bare(name)] == 1 else name
        for item, suffix in zip(group, _suffixes(group), strict=True):
            label, number = start + suffix, 2
            while label in used:
                label, number = f"{start}{suffix} #{number}", number + 1
            used.add(label)
            labels[item.identity] = label
    return labels


def _bare(name: str) -> str:
    return name.rpartition("/")[2]


def _suffixes(group: Sequence[Described]) -> list[str]:
    if len(group) == 1:
        return [""]
    profiles = [item.profile for item in group]
    if len(set(profiles)) == len(group):
        return ["" if profile is None else f" [{profile}]" for profile in profiles]
    flat = [flatten({**item.config, **(item.files or {})}) for item in group]
    keys = list(dict.fromkeys(key for values in flat for key in values))
    differing = [key for key in keys if len({canonical(values.get(key)) for values in flat}) > 1]
    shown = _telling(flat, differing)
    more = f", +{len(differing) - len(shown)}" if len(shown) == _SHOWN_KEYS < len(differing) else ""
    names = [{**values, **_file_names(item, group)} for values, item in zip(flat, group, strict=True)]
    return [f" ({', '.join(f'{key}={_short(values.get(key))}' for key in shown)}{more})" for values in names]


def _file_names(item: Described, group: Sequence[Described]) -> dict[str, str]:
    """Files by their names, as people know them; by name and hash where two contents share a name."""
    names = {}
    for key, content in (item.files or {}).items():
        name = PurePath(str(item.config.get(key))).name
        contents = {
            (other.files or {}).get(key) for other in group if PurePath(str(other.config.get(key))).name == name
        }
        names[key] = name if len(contents) == 1 else f"{content.removeprefix('sha256:')[:8]} {name}"
    return names


def _telling(flat: Sequence[Mapping[str, Any]], differing: Sequence[str]) -> list[str]:
    """The few keys that tell the configs apart: the one that tells most of them first, until all are told or three are shown."""
    shown: list[str] = []
    told = 1
    while told < len(flat) and len(shown) < _SHOWN_KEYS:
        counts = {
            key: len({canonical([values.get(name) for name in (*shown, key)]) for values in flat})
            for key in differing
            if key not in shown
        }
        best = max(counts, key=lambda key: counts[key], default=None)
        if best is None or counts[best] == told:
            break
        shown.append(best)
        told = counts[best]
    return shown


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and set(value) != {"nonfinite"} and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _short(value: Any) -> str:
    value = from_jsonable(value)
    text = f"{value:g}" if isinstance(value, float) else str(value) or "''"
    return text if len(text) <= _SHOWN_VALUE else text[: _SHOWN_VALUE - 1] + "…"
