"""The rules for names: of methods, datasets, metrics and plugins (kebab-case), of tasks, and of distributions."""

from __future__ import annotations

import re

MAX_LENGTH = 40

_KEBAB = r"[a-z0-9]+(?:-[a-z0-9]+)*"
_NAME = re.compile(_KEBAB)
_TASK = re.compile(rf"{_KEBAB}(?:\.{_KEBAB})+")
_TARGET = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_SEPARATORS = re.compile(r"[-_.]+")
_RESERVED = frozenset(
    ("con", "prn", "aux", "nul", *(f"com{digit}" for digit in range(10)), *(f"lpt{digit}" for digit in range(10)))
)


def name_problem(name: object) -> str | None:
    """Why ``name`` cannot name a method, dataset, metric or plugin; None when it can."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{name!r} is not kebab-case (lower-case letters, digits and single hyphens)"
    if len(name) > MAX_LENGTH:
        return f"{name!r} is longer than {MAX_LENGTH} characters"
    if name in _RESERVED:
        return f"{name!r} is a reserved file name on Windows"
    return None


def task_problem(name: object) -> str | None:
    """Why ``name`` cannot name a task, such as ``forecasting.backdoor-defense``; None when it can."""
    if not isinstance(name, str) or not _TASK.fullmatch(name):
        return f"{name!r} is not of the form field.noun (lower-case letters, digits, single hyphens)"
    return None


def target_problem(target: object) -> str | None:
    """Why ``target`` is not an import string ``module:Name``; None when it is."""
    if not isinstance(target, str) or not _TARGET.fullmatch(target):
        return f"{target!r} is not an import string of the form 'package.module:Name'"
    return None


def normalised(distribution: str) -> str:
    """The normalised name of a distribution (PEP 503)."""
    return _SEPARATORS.sub("-", distribution).lower()
