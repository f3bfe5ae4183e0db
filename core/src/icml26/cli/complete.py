"""Shell completion of commands and of names, in the protocol of the scripts that ``--install-completion`` writes.

Options and everything else are left to typer.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from icml26.catalog import Kind
from icml26.cli.commands import COMMANDS
from icml26.cli.output import COLOR_CHOICES, Output, plain
from icml26.errors import Icml26Error

if TYPE_CHECKING:
    from icml26.catalog import Catalog

#: What the value of an option names, and what the first positional argument of a command names.
_OPTIONS = {
    "--dataset": "dataset",
    "-d": "dataset",
    "--datasets": "dataset",
    "--task": "task",
    "--plugin": "plugin",
    "--metrics": "metric",
    "--methods": "method",
    "--role": "role",
    "--kind": "kind",
    "--color": "color",
}
_ARGUMENTS = {
    "run": "method",
    "show": "any",
    "reproduce": "recipe",
    "check-plugin": "plugin",
    "info": "plugin",
    "uninstall": "plugin",
}
_WORDS = {
    "role": ("paper", "baseline", "reference", "oracle"),
    "kind": ("method", "dataset", "metric", "task"),
    "color": COLOR_CHOICES,
}
_FLAGS = frozenset(("--json", "--smoke", "--quiet", "-q", "--dry-run", "-n", "--traceback", "--yes", "-y"))

Item = tuple[str, str]


def complete(instruction: str, environ: Mapping[str, str], output: Output) -> int | None:
    """Answer a completion request of bash, zsh or fish; None leaves it to typer."""
    if instruction == "complete_bash":
        words = _split(environ.get("COMP_WORDS", ""))
        position = int(environ.get("COMP_CWORD", "0") or 0)
        before, incomplete = words[1:position], words[position] if position < len(words) else ""
    elif instruction in ("complete_zsh", "complete_fish"):
        text = environ.get("_TYPER_COMPLETE_ARGS", "")
        before, incomplete = _split(text)[1:], ""
        if before and not text.endswith(" "):
            *before, incomplete = before
    else:
        return None
    wanted = what_is_wanted(before, incomplete)
    if wanted is None:
        return None
    items = matching(candidates(wanted, incomplete), incomplete)
    if instruction == "complete_fish" and environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return 0 if items else 1
    text = _FORMATS[instruction](items)
    if text:
        output.write(text)
    return 0


def what_is_wanted(before: Sequence[str], incomplete: str) -> str | None:
    """What kind of thing the word at the cursor names; None when typer should say."""
    if incomplete.startswith("-"):
        return None
    words = list(before)
    if words and words[-1] in _OPTIONS:
        return _OPTIONS[words[-1]]
    positional: list[str] = []
    items = iter(words)
    for word in items:
        if word in _OPTIONS:
            next(items, None)
        elif word.startswith("-"):
            if word not in _FLAGS and "=" not in word:
                return None
        else:
            positional.append(word)
    if not positional:
        return "command"
    return _ARGUMENTS.get(positional[0]) if len(positional) == 1 else None


def candidates(wanted: str, incomplete: str) -> list[Item]:
    """(value, help) of everything that may stand there."""
    if wanted == "command":
        return [(name, command.summary) for name, command in COMMANDS.items()]
    if wanted in _WORDS:
        return [(word, "") for word in _WORDS[wanted]]
    from icml26.index import ALL_KINDS
    from icml26.plugins import load_catalog

    kinds = tuple(kind for kind in ALL_KINDS if wanted in ("any", kind))
    try:
        catalog = load_catalog(probe="never", kinds=kinds, schemas=False)
    except Icml26Error:
        return []
    if wanted == "plugin":
        return [(plugin.name, plugin.distribution) for plugin in catalog.plugins]
    if wanted == "recipe":
        return [(recipe.qualified, recipe.title) for recipe in catalog.recipes]
    return list(dict([item for kind in kinds for item in _names(catalog, kind, incomplete)]).items())


def matching(items: Sequence[Item], incomplete: str) -> list[Item]:
    """Those that begin like the word; ``plugin/name`` only where it is asked for, or where nothing shorter fits."""
    found = [item for item in items if item[0].startswith(incomplete)]
    bare = [item for item in found if "/" not in item[0]]
    return bare if bare and incomplete and "/" not in incomplete else found


def _names(catalog: Catalog, kind: Kind, incomplete: str) -> Iterable[Item]:
    from icml26.cli.lists import shortest_names

    names = {} if "/" in incomplete else shortest_names(catalog, kind)
    return [(names.get(id(entry), entry.qualified), plain(entry.spec.summary)) for entry in catalog.of_kind(kind)]


def _split(text: str) -> list[str]:
    """The words of a command line that may end within quotes."""
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words.append(lexer.token)
    return words


def _bash(items: Sequence[Item]) -> str:
    return "\n".join(value for value, _ in items)


def _zsh(items: Sequence[Item]) -> str:
    def escape(text: str) -> str:
        for old, new in (('"', '""'), ("'", "''"), ("$", "\\$"), ("`", "\\`"), (":", r"\\:")):
            text = text.replace(old, new)
        return text

    if not items:
        return "_files"
    parts = [f'"{escape(value)}":"{escape(text)}"' if text else f'"{escape(value)}"' for value, text in items]
    return "_arguments '*: :((" + "\n".join(parts) + "))'"


def _fish(items: Sequence[Item]) -> str:
    return "\n".join(f"{value}\t{text}" if text else value for value, text in items)


_FORMATS = {"complete_bash": _bash, "complete_zsh": _zsh, "complete_fish": _fish}
