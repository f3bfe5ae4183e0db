"""What a plugin declares: plain frozen dataclasses that a hook module can build without importing anything heavy.

Every spec names its implementation by an import string, ``"package.module:Name"``, which is imported only when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

#: The generation of the contracts between core and plugins; an index of another one is listed as incompatible.
CORE_API = 1
ENTRY_POINT_GROUP = "icml26"

Role: TypeAlias = Literal["paper", "baseline", "reference", "oracle"]
Direction: TypeAlias = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class Paper:
    """The paper that a method implements; ``arxiv`` is an id such as ``"2605.22365"``."""

    title: str
    arxiv: str | None = None
    openreview: str | None = None
    venue: str = "ICML 2026"
    authors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Provides:
    """A word that holds only for some configs: ``Provides("attack", when={"attack": ["random", "backtime"]})``.

    ``when`` maps field names of the resolved config to the values for which the word is provided; all fields must match.
    """

    word: str
    when: Mapping[str, tuple[Any, ...] | list[Any]] = field(default_factory=dict)


Word: TypeAlias = str | Provides


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A named contract between datasets, methods and metrics.

    ``inputs``, ``truth`` and ``output`` are import strings of dataclasses. ``metrics`` are scored by default, in this
    order; the first is primary. ``words`` explains what may stand in ``requires`` and ``provides``.
    """

    name: str
    summary: str
    inputs: str
    truth: str
    output: str
    metrics: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """A method of a task. ``reference`` and ``default_dataset`` are names seen from the method's own plugin.

    ``profiles`` are named config overrides, ``smoke`` the overrides that make a run end in seconds, ``files`` the
    config fields that hold paths, ``extra`` an optional extra of the distribution that the method needs, and
    ``results_version`` rises when the same config would give other results.
    """

    name: str
    task: str
    target: str
    summary: str
    role: Role = "paper"
    paper: Paper | None = None
    requires: tuple[Word, ...] = ()
    provides: tuple[Word, ...] = ()
    metrics: tuple[str, ...] = ()
    default_dataset: str | None = None
    reference: str | None = None
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    smoke: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    extra: str | None = None
    results_version: int = 1


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """A dataset of a task. ``seeded`` says whether another seed gives other data; ``profile`` recommends a method profile."""

    name: str
    task: str
    target: str
    summary: str
    provides: tuple[Word, ...] = ()
    seeded: bool = True
    files: tuple[str, ...] = ()
    profile: str | None = None
    smoke: Mapping[str, Any] = field(default_factory=dict)
    extra: str | None = None
    revision: str = "1"
    license: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """One number that a metric yields; ``direction`` is ``"lower"``, ``"higher"`` (better) or None (neither).

    ``name`` is empty for the main value: what a metric that returns a number yields, or ``{"": number, …}``.
    ``error_of`` names the value of which this one is the standard error (``""``: of the main value).
    """

    name: str = ""
    unit: str | None = None
    direction: Direction | None = None
    error_of: str | None = None


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A metric of a task: a function ``(output, truth[, ctx])``, or ``(scores, reference_scores)`` when ``relative_to`` is set.

    ``requires`` are words of the dataset or of the method; ``needs`` are metrics that are scored first.
    """

    name: str
    task: str
    target: str
    values: tuple[Value, ...] = (Value(),)
    summary: str = ""
    requires: tuple[Word, ...] = ()
    needs: tuple[str, ...] = ()
    relative_to: str | None = None
    cost: Literal["cheap", "expensive"] = "cheap"
    extra: str | None = None


Spec: TypeAlias = TaskSpec | MethodSpec | DatasetSpec | MetricSpec
