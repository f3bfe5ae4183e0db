"""Files of the repository's root that core's wheel carries: the first registry and the plugin template."""

from __future__ import annotations

from pathlib import Path

from icml26.errors import EnvironmentError_

_PACKAGE = Path(__file__).resolve().parent


def carried(name: str) -> Path:
    """The path of ``registry.toml``, ``copier.yml`` or ``plugin-template``.

    It is in the wheel, or for an editable install at the root of the repository.
    Raises EnvironmentError_ when this installation has neither.
    """
    repository = _PACKAGE.parents[2]
    candidates = [_PACKAGE / "_carried" / name]
    if _PACKAGE.parent.name == "src" and _PACKAGE.parents[1].name == "core":
        candidates.append(repository / name)
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise EnvironmentError_(
        f"this installation of icml26 has no {name}; reinstall it: pip install --force-reinstall icml26"
    )
