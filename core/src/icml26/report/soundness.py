"""Records may come from anyone: what does not have a record's shape is kept off the pages, and said."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from icml26.records import RunRecord


def fault_of(record: RunRecord) -> str | None:
    """What is wrong with a record's shape, None when pages can show it."""
    for name in ("method", "dataset"):
        part = getattr(record, name)
        if not isinstance(part, Mapping) or not isinstance(part.get("name"), str):
            return f"{name} has no name"
    if not isinstance(record.seed, int) or not isinstance(record.status, str) or not isinstance(record.task, str):
        return "seed, status or task is of a wrong type"
    for name in ("metrics", "seconds", "provenance", "info"):
        if not isinstance(getattr(record, name), Mapping):
            return f"{name} is not a table"
    if not isinstance(record.artifacts, list) or not isinstance(record.error, Mapping | None):
        return "artifacts or error is of a wrong type"
    if not all(_is_entry(entry) for entry in record.metrics.values()):
        return "a metric is not a number"
    if not all(_is_number(value) for value in record.seconds.values()):
        return "a duration is not a number"
    return None


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, Mapping):
        return False
    value = entry.get("value")
    return (value is None or _is_number(value)) and entry.get("nonfinite") in (None, "nan", "inf", "-inf")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
