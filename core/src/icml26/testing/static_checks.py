"""Checks that run no method: hook module, index, names, targets, configs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from icml26.errors import PluginError
from icml26.index import INDEX_FILE
from icml26.index_build import build_index, differences
from icml26.names import name_problem, task_problem
from icml26.targets import load_target
from icml26.testing.report import Problem
from icml26.testing.subject import Subject

_LIGHT = """
import json, sys
before = set(sys.modules)
import importlib
module = importlib.import_module(sys.argv[1])
own = sys.argv[1].split(".")[0]
heavy = sorted({name.split(".")[0] for name in set(sys.modules) - before} - {own, "icml26", "pluggy"} - sys.stdlib_module_names)
json.dump([name for name in heavy if not name.startswith(("_", "importlib_"))], sys.stdout)
"""


def light_hook_module(subject: Subject) -> Iterator[Problem]:
    """The hook module imports nothing but icml26's spec types."""
    module = subject.plugin.module.partition(":")[0]
    done = subprocess.run([sys.executable, "-c", _LIGHT, module], capture_output=True, text=True, timeout=60)
    fix = "import heavy things inside the modules that the specs' targets name, never in the hook module or __init__.py"
    if done.returncode:
        yield Problem(module, f"cannot be imported: {done.stderr.strip().splitlines()[-1:]}", fix)
        return
    try:
        heavy = json.loads(done.stdout)
    except ValueError:
        yield Problem(module, f"prints at import: {done.stdout[:80]!r}", "print nothing at import")
        return
    if heavy:
        yield Problem(module, f"importing it imports {', '.join(heavy)}", fix)


def index_agrees(subject: Subject) -> Iterator[Problem]:
    """The static index in the package says what the hooks say."""
    plugin = subject.plugin
    fix = f"icml26 check-plugin {plugin.name} --write-index"
    path = Path(plugin.location) / INDEX_FILE
    if not path.is_file():
        yield Problem(INDEX_FILE, "is missing from the package", fix)
        return
    stored = json.loads(path.read_text(encoding="utf-8"))
    fresh = build_index(
        stored.get("plugin", plugin.name), plugin.distribution, plugin.module, smoke=stored.get("smoke")
    )
    for line in differences(stored, fresh):
        yield Problem(INDEX_FILE, line, fix)


def names_are_portable(subject: Subject) -> Iterator[Problem]:
    """Names are kebab-case, short, unique and no file name that Windows reserves."""
    for entry in [item for item in subject.catalog.entries if item.distribution == subject.plugin.distribution]:
        problem = task_problem(entry.name) if entry.kind == "task" else name_problem(entry.name)
        if problem:
            yield Problem(f"{entry.kind} {entry.name}", problem, "rename it")


def targets_import(subject: Subject) -> Iterator[Problem]:
    """Everything that a spec names can be imported and is of the right kind."""
    from icml26.dataset import Dataset
    from icml26.method import Method

    for kind, base in (("method", Method), ("dataset", Dataset)):
        for entry in subject.entries(kind):
            found = yield from _import(entry.qualified, entry.spec.target)
            if found is not None and not (isinstance(found, type) and issubclass(found, base)):
                yield Problem(
                    entry.qualified, f"{entry.spec.target} is not a subclass of {base.__name__}", "subclass it"
                )
    for entry in subject.entries("metric"):
        found = yield from _import(entry.qualified, entry.spec.target)
        if found is not None and not callable(found):
            yield Problem(entry.qualified, f"{entry.spec.target} is not a function", "name a function")
    for entry in subject.entries("task"):
        for part in ("inputs", "truth", "output"):
            yield from _import(f"{entry.name} ({part})", getattr(entry.spec, part))


def _import(where: str, target: str) -> Any:
    try:
        return load_target(target, owner=where)
    except PluginError as error:
        yield Problem(where, str(error), "correct the import string, or what it imports")
    return None


def configs_are_documented(subject: Subject) -> Iterator[Problem]:
    """Every option has a description and a default, numbers have bounds where the field knows any."""
    for kind in ("method", "dataset"):
        for entry in subject.entries(kind):
            schema = entry.config_schema or {}
            for name, option in schema.get("properties", {}).items():
                where = f"{entry.qualified}: option {name}"
                if not option.get("description"):
                    yield Problem(where, "has no description", "Field(..., description='meaning, unit, source')")
                if "default" not in option and name not in entry.spec.files and kind == "method":
                    yield Problem(where, "has no default", "give the paper's default")
            if schema.get("additionalProperties") is not False:
                yield Problem(
                    entry.qualified,
                    "its Config accepts unknown options",
                    "derive it from MethodConfig or DatasetConfig",
                )


def overrides_are_valid(subject: Subject) -> Iterator[Problem]:
    """Profiles and smoke settings are options that the Config accepts."""
    from icml26.config import resolve_config
    from icml26.errors import InputError

    for kind in ("method", "dataset"):
        for entry in subject.entries(kind):
            layers = {"smoke": entry.spec.smoke, **getattr(entry.spec, "profiles", {})}
            for name, layer in layers.items():
                try:
                    resolve_config({**(entry.config_schema or {}), "required": []}, [layer], owner=entry.qualified)
                except InputError as error:
                    yield Problem(f"{entry.qualified}: {name}", str(error), "correct the override")


def tasks_have_offline_data(subject: Subject) -> Iterator[Problem]:
    """Every task that the plugin introduces has a dataset that needs no file and no network."""
    for entry in subject.entries("task"):
        datasets = subject.catalog.of_kind("dataset", task=entry.name)
        if not any(not (item.config_schema or {}).get("required") and item.spec.extra is None for item in datasets):
            yield Problem(entry.name, "has no dataset that loads without a user's file", "add a small synthetic one")
