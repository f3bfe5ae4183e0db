"""Import strings, ``"package.module:Name"``."""

from __future__ import annotations

import importlib
from typing import Any

from icml26.errors import PluginError


def load_target(target: str, *, owner: str) -> Any:
    """Import what ``target`` names; raises PluginError that says whose target it is and what went wrong."""
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise PluginError(f"{owner}: target {target!r} is not of the form 'package.module:Name'")
    try:
        value: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise PluginError(f"{owner}: cannot import {module_name}: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            raise PluginError(f"{owner}: module {module_name} has no {name!r}") from error
    return value
