"""Whether what a distribution or one of its extras needs is installed, judged by metadata alone."""

from __future__ import annotations

from typing import Protocol

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


class Installed(Protocol):
    """What is installed: where metadata comes from."""

    def requires(self, distribution: str) -> list[str] | None:
        """The requirements of a distribution as its metadata has them; None when it is not installed."""

    def version(self, distribution: str) -> str | None:
        """The version of a distribution; None when it is not installed."""


class ThisEnvironment:
    """What ``importlib.metadata`` finds."""

    def requires(self, distribution: str) -> list[str] | None:
        """See ``Installed``."""
        from importlib import metadata

        try:
            return metadata.requires(distribution) or []
        except metadata.PackageNotFoundError:
            return None

    def version(self, distribution: str) -> str | None:
        """See ``Installed``."""
        from importlib import metadata

        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            return None


def missing_extra(distribution: str, extra: str, installed: Installed | None = None) -> str | None:
    """None when every requirement of ``distribution[extra]`` is met, else what is missing and the pip line."""
    installed = installed or ThisEnvironment()
    requirements = installed.requires(distribution)
    if requirements is None:
        return f"{distribution} is not installed"
    wanted = canonicalize_name(extra)
    missing = []
    found = False
    for requirement in map(Requirement, requirements):
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}):
            continue
        if not marker.evaluate({"extra": wanted}) and not marker.evaluate({"extra": extra}):
            continue
        found = True
        lack = _lack(requirement, installed)
        if lack is not None:
            missing.append(lack)
    if not found:
        return f"{distribution} declares no extra {extra!r}; this is a fault of the plugin"
    if missing:
        return f"needs {', '.join(missing)}: pip install '{distribution}[{extra}]'"
    return None


def missing_requirements(distribution: str, installed: Installed | None = None) -> list[str]:
    """The requirements of a distribution (without extras) that are not installed in a fitting version."""
    installed = installed or ThisEnvironment()
    requirements = map(Requirement, installed.requires(distribution) or [])
    needed = [item for item in requirements if item.marker is None or item.marker.evaluate({"extra": ""})]
    return [lack for item in needed if (lack := _lack(item, installed)) is not None]


def _lack(requirement: Requirement, installed: Installed) -> str | None:
    version = installed.version(requirement.name)
    if version is None:
        return f"{requirement.name}{requirement.specifier}"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name}{requirement.specifier} (installed: {version})"
    return None
