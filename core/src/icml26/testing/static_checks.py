"""Checks that run no method: hook module, index, names, targets, configs."""

from __future__ import annotations

import ast
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from icml26.catalog import Entry, Kind
from icml26.errors import Icml26Error, PluginError, UsageError
from icml26.index import INDEX_FILE, SECTIONS
from icml26.index_build import build_index, differences
from icml26.names import name_problem, task_problem
from icml26.smallfiles import read_text
from icml26.targets import load_target
from icml26.testing.report import Problem
from icml26.testing.subject import CONFIGURED, Subject

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
    stored = json.loads(read_text(path))
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


def names_in_index(folder: str) -> Iterator[Problem]:
    """What is wrong with the names in the index of a plugin that cannot be listed."""
    try:
        document = json.loads(read_text(Path(folder) / INDEX_FILE)) if folder else {}
    except (OSError, ValueError):
        return
    for kind, section in SECTIONS.items():
        items = document.get(section, []) if isinstance(document, dict) else []
        names = [item.get("name") for item in items if isinstance(item, dict)]
        for name in names:
            problem = task_problem(name) if kind == "task" else name_problem(name)
            if problem:
                yield Problem(f"{kind} {name}", problem, "rename it")
        for name in {name for name in names if names.count(name) > 1}:
            yield Problem(f"{kind} {name}", "is declared twice", "rename one")


def targets_import(subject: Subject) -> Iterator[Problem]:
    """Everything that a spec names can be imported and is of the right kind."""
    from icml26.dataset import Dataset
    from icml26.method import Method

    bases: dict[Kind, type] = {"method": Method, "dataset": Dataset}
    for kind, base in bases.items():
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
    for kind in CONFIGURED:
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

    for kind in CONFIGURED:
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
        offline = [item for item in datasets if not (item.config_schema or {}).get("required") and not item.spec.extra]
        if not offline:
            yield Problem(entry.name, "has no dataset that loads without a user's file", "add a small synthetic one")
        elif not any(item.spec.smoke or not (item.config_schema or {}).get("properties") for item in offline):
            names = ", ".join(item.name for item in offline)
            yield Problem(
                entry.name, f"no offline dataset has a smoke setting ({names})", "DatasetSpec(..., smoke={...})"
            )


def numbers_are_bounded(subject: Subject) -> Iterator[Problem]:
    """Numeric options say what range makes sense."""
    bounds = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "enum", "const"}
    for kind in CONFIGURED:
        for entry in subject.entries(kind):
            for name, option in (entry.config_schema or {}).get("properties", {}).items():
                forms = [option, *option.get("anyOf", [])]
                numeric = [form for form in forms if form.get("type") in ("number", "integer")]
                if numeric and name != "seed" and not any(bounds & set(form) for form in forms):
                    yield Problem(
                        f"{entry.qualified}: option {name}", "has no bounds", "Field(..., ge=, gt=, le= or lt=)"
                    )


def names_resolve(subject: Subject) -> Iterator[Problem]:
    """Every name that a spec mentions leads to an entry of the right task, every word is defined, every extra declared."""
    find = subject.catalog.find
    for entry in [item for item in subject.catalog.entries if item.distribution == subject.plugin.distribution]:
        spec = entry.spec
        mentioned: list[tuple[Kind, str]] = [("metric", name) for name in getattr(spec, "metrics", ())]
        mentioned += [("metric", name) for name in getattr(spec, "needs", ())]
        mentioned += [
            ("method", name) for name in (getattr(spec, "reference", None), getattr(spec, "relative_to", None)) if name
        ]
        mentioned += [("dataset", name) for name in (getattr(spec, "default_dataset", None),) if name]
        mentioned += [("task", spec.task)] if entry.kind != "task" else []
        task = entry.name if entry.kind == "task" else spec.task
        for kind, name in mentioned:
            try:
                find(kind, name, seen_from=entry.plugin, task=None if kind == "task" else task)
            except UsageError as error:
                yield Problem(f"{entry.kind} {entry.name}", str(error), "correct the name")
        yield from _words_are_defined(subject, entry, task)
        yield from _extra_is_declared(entry)


def _words_are_defined(subject: Subject, entry: Entry, task: str) -> Iterator[Problem]:
    words = [
        getattr(word, "word", word) for field in ("requires", "provides") for word in getattr(entry.spec, field, ())
    ]
    if not words:
        return
    try:
        known = subject.catalog.task(task).words
    except UsageError:
        return
    for word in words:
        if word not in known and ":" not in word:
            fix = f"define it in TaskSpec.words, or prefix it: {entry.plugin}:{word}"
            yield Problem(f"{entry.kind} {entry.name}", f"word {word!r} is not one of task {task}", fix)


def _extra_is_declared(entry: Entry) -> Iterator[Problem]:
    extra = getattr(entry.spec, "extra", None)
    if extra:
        declared = [
            str(canonicalize_name(name))
            for name in metadata.metadata(entry.distribution).get_all("Provides-Extra") or ()
        ]
        if canonicalize_name(extra) not in declared:
            text = f"needs the extra {extra!r}, which {entry.distribution} does not declare"
            yield Problem(f"{entry.kind} {entry.name}", text, "add it under [project.optional-dependencies]")


_TYPES = """
import json, sys
before = set(sys.modules)
import importlib
for name in sys.argv[2:]:
    importlib.import_module(name)
own = sys.argv[1]
tops = {name.split(".")[0] for name in set(sys.modules) - before}
heavy = sorted(tops - {own, "icml26", "pluggy", "numpy"} - sys.stdlib_module_names)
json.dump([name for name in heavy if not name.startswith("_")], sys.stdout)
"""


def types_are_light(subject: Subject) -> Iterator[Problem]:
    """The modules of a task's types import the standard library and numpy only."""
    fix = "keep the task's dataclasses in a module of their own that imports numpy only"
    for entry in subject.entries("task"):
        modules = sorted({getattr(entry.spec, part).partition(":")[0] for part in ("inputs", "truth", "output")})
        own = [name for name in modules if name.split(".")[0] == subject.plugin.module.split(".")[0]]
        if not own:
            continue
        command = [sys.executable, "-c", _TYPES, own[0].split(".")[0], *own]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode == 0:
            heavy = json.loads(done.stdout.splitlines()[-1])
            if heavy:
                yield Problem(entry.name, f"importing its types imports {', '.join(heavy)}", fix)


def recipes_can_be_read(subject: Subject) -> Iterator[Problem]:
    """Every recipe is valid, and names what is there."""
    from icml26.recipes import read_recipe

    folder = Path(subject.plugin.location)
    for path in sorted(folder.glob("recipes/*.toml")):
        where = f"recipes/{path.name}"
        try:
            recipe = read_recipe(path)
        except Icml26Error as error:
            yield Problem(where, str(error), "correct the recipe")
            continue
        for row in recipe.grid.methods:
            yield from _known(subject, where, "method", row.name)
        for row in recipe.grid.datasets:
            yield from _known(subject, where, "dataset", row.name)


def _known(subject: Subject, where: str, kind: Kind, name: str) -> Iterator[Problem]:
    try:
        subject.catalog.find(kind, name, seen_from=subject.plugin.name)
    except UsageError as error:
        yield Problem(where, str(error), "correct the name")


def listed_cleanly(subject: Subject) -> Iterator[Problem]:
    """Nothing about the plugin had to be left out or renamed when it was listed."""
    for fault in subject.catalog.faults:
        if fault.distribution == subject.plugin.distribution and fault.severity != "note":
            yield Problem(fault.plugin, fault.reason, fault.fix)


_UNPICKLERS = {"pickle.load", "pickle.loads", "pickle.Unpickler", "dill.load", "dill.loads", "cloudpickle.load"}
_UNPICKLERS |= {
    "cloudpickle.loads",
    "joblib.load",
    "pandas.read_pickle",
    "pd.read_pickle",
    "shelve.open",
    "marshal.loads",
}


def nothing_is_unpickled(subject: Subject) -> Iterator[Problem]:
    """The code unpickles nothing: a pickle runs code when it is read."""
    for path, tree in _sources(subject):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                options = {item.arg: ast.unparse(item.value) for item in node.keywords}
                if name in _UNPICKLERS or (
                    (name.endswith("np.load") or name == "numpy.load") and options.get("allow_pickle") == "True"
                ):
                    yield Problem(
                        f"{path}:{node.lineno}", f"{name} runs code that a file holds", "JSON, npz, safetensors"
                    )
                elif name == "torch.load" and options.get("weights_only") != "True":
                    yield Problem(f"{path}:{node.lineno}", "torch.load unpickles", "torch.load(..., weights_only=True)")


def libraries_do_not_print(subject: Subject) -> Iterator[Problem]:
    """Library code logs; standard output belongs to the command."""
    for path, tree in _sources(subject):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
                yield Problem(f"{path}:{node.lineno}", "prints", "ctx.logger, logging, or ctx.log for numbers")


def _sources(subject: Subject) -> Iterator[tuple[str, ast.Module]]:
    folder = Path(subject.plugin.location)
    for path in sorted(folder.rglob("*.py")):
        with contextlib.suppress(SyntaxError, UnicodeDecodeError):
            yield f"{folder.name}/{path.relative_to(folder).as_posix()}", ast.parse(path.read_bytes())
