"""The rules for names: of methods, datasets, metrics and plugins (kebab-case), of tasks, and of distributions.

Written without regular expressions, whose compilation every list command would pay for.
"""

from __future__ import annotations

from functools import lru_cache

MAX_LENGTH = 40

_RESERVED = frozenset(
    ("con", "prn", "aux", "nul", *(f"com{digit}" for digit in range(10)), *(f"lpt{digit}" for digit in range(10)))
)


def name_problem(name: object) -> str | None:
    """Why ``name`` cannot name a method, dataset, metric or plugin; None when it can."""
    if not isinstance(name, str) or not _is_kebab(name):
        return f"{name!r} is not kebab-case (lower-case letters, digits and single hyphens)"
    if len(name) > MAX_LENGTH:
        return f"{name!r} is longer than {MAX_LENGTH} characters"
    if name in _RESERVED:
        return f"{name!r} is a reserved file name on Windows"
    return None


@lru_cache(maxsize=1024)
def task_problem(name: object) -> str | None:
    """Why ``name`` cannot name a task, such as ``forecasting.backdoor-defense``; None when it can."""
    if not isinstance(name, str) or "." not in name or not all(map(_is_kebab, name.split("."))):
        return f"{name!r} is not of the form field.noun (lower-case letters, digits, single hyphens)"
    return None


@lru_cache(maxsize=1024)
def target_problem(target: object) -> str | None:
    """Why ``target`` is not an import string ``module:Name``; None when it is."""
    if not isinstance(target, str) or ":" not in target or not is_import_path(target):
        return f"{target!r} is not an import string of the form 'package.module:Name'"
    return None


def is_import_path(text: str) -> bool:
    """Whether ``text`` is ``package.module`` or ``package.module:Name.inner``."""
    module, colon, name = text.partition(":")
    parts = [*module.split("."), *name.split(".")] if colon else module.split(".")
    return all(map(str.isidentifier, parts))


def is_distribution(text: str) -> bool:
    """Whether ``text`` is a name that a distribution may have (PEP 508)."""
    bare = text.replace("-", "").replace("_", "").replace(".", "")
    return text.isascii() and bare.isalnum() and text[0].isalnum() and text[-1].isalnum()


def normalised(distribution: str) -> str:
    """The normalised name of a distribution (PEP 503)."""
    name = distribution.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name


def _is_kebab(text: str) -> bool:
    return (
        text.isascii()
        and text.replace("-", "").isalnum()
        and text == text.lower()
        and text[0] != "-"
        and text[-1] != "-"
        and "--" not in text
    )
