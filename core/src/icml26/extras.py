"""Whether the optional extra that a method, dataset or metric needs is installed, judged by metadata alone."""

from __future__ import annotations

from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def missing_extra(distribution: str, extra: str) -> str | None:
    """None when every requirement of ``distribution[extra]`` is met, else what is missing and the pip line."""
    try:
        requirements = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return f"{distribution} is not installed"
    missing = []
    wanted = canonicalize_name(extra)
    found = False
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            continue
        if not requirement.marker.evaluate({"extra": wanted}) and not requirement.marker.evaluate({"extra": extra}):
            continue
        found = True
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            missing.append(requirement.name)
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            missing.append(f"{requirement.name}{requirement.specifier} (installed: {version})")
    if not found:
        return f"{distribution} declares no extra {extra!r}; this is a fault of the plugin"
    if missing:
        return f"needs {', '.join(missing)}: pip install '{distribution}[{extra}]'"
    return None


def missing_requirements(distribution: str) -> list[str]:
    """The requirements of a distribution (without extras) that are not installed in a fitting version."""
    missing = []
    for text in metadata.requires(distribution) or []:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            missing.append(f"{requirement.name}{requirement.specifier}")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            missing.append(f"{requirement.name}{requirement.specifier}")
    return missing
