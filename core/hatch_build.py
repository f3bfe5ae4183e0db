"""Build hook of core's distributions: they carry the registry and the plugin template of the repository's root.

The sdist takes them from the folder above, a wheel from there or, when it is built from an sdist, from beside this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CARRIED = ("registry.toml", "copier.yml", "plugin-template")
FOLDER = "_carried"


class CarryHook(BuildHookInterface):
    """Adds the carried files; an editable install reads them in the repository."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a build."""
        if version == "editable":
            return
        here = Path(self.root)
        inside = FOLDER if self.target_name == "sdist" else f"icml26/{FOLDER}"
        for name in CARRIED:
            found = next((place for place in (here / FOLDER / name, here.parent / name) if place.exists()), None)
            if found is None:
                raise FileNotFoundError(f"{name} is neither in {here / FOLDER} nor in {here.parent}")
            build_data["force_include"][str(found)] = f"{inside}/{name}"
