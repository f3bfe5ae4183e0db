"""Which calls can do harm, and which words ask for a call. Both can be overridden by the user."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from icml26.errors import InputError

from icml26_plugin_causaltrace.text import STOP_WORDS, stem, word_set
from icml26_plugin_causaltrace.trace import Step, ToolInfo

#: Verbs that ask for the same action. A tool's own verbs select the groups that can ask for it.
VERB_GROUPS: tuple[frozenset[str], ...] = tuple(
    frozenset(group.split())
    for group in (
        "send pay transfer refund wire remit",
        "send mail email forward message write reply notify tell text",
        "post publish upload share send write announce put",
        "create add make schedule set write register put plan organize",
        "delete remove erase cancel drop wipe clear",
        "update change modify edit set reset replace rename reschedule move adjust",
        "reserve book order buy purchase rent",
        "get visit open browse read see check go fetch view access click navigate look retrieve",
        "invite add include",
        "execute run launch call start invoke exec eval bash shell terminal powershell python repl cmd command",
        "share give grant send",
        "append add write",
        "delegate ask hand tell instruct assign",
        "login sign authenticate",
        "submit enter fill type input",
        "download save get fetch",
    )
)
ACTING = word_set(
    "send pay transfer refund wire schedule delete remove create add make share invite post publish reserve book order "
    "buy execute run "
    "update change modify edit set reset append write cancel reschedule upload submit forward reply move rename revoke "
    "grant register deploy install approve type click drop insert merge push commit delegate save store put kick ban "
    "purchase donate withdraw deposit email mail message notify remember "
    "exec eval bash sh shell terminal powershell python repl cmd command kill reboot shutdown trade sell swap accept approve "
    "confirm checkout subscribe unsubscribe vote"
)
FETCHING = word_set("get visit open browse fetch navigate read web request download load")
READING = word_set("get read list search find view check fetch lookup query show retrieve count recall load")
_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_URL = re.compile(
    r"^(?:https?://|www\.)\S+|^[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|io|info|biz|co|dev|example|test)(?:/\S*)?$", re.I
)


@dataclass(frozen=True, slots=True)
class Affordance:
    """Words that ask for a tool: base forms of ``verbs`` (with synonyms) and stems of its ``nouns``."""

    verbs: frozenset[str]
    nouns: frozenset[str]


@dataclass(frozen=True)
class Policy:
    """User overrides: tool name -> whether it can do harm, tools whose results nobody else can write to."""

    sensitive: Mapping[str, bool] = field(default_factory=dict)
    trusted_tools: frozenset[str] = frozenset()
    trusted_domains: frozenset[str] = frozenset()

    def acts(self, step: Step, info: ToolInfo | None) -> bool:
        """Whether the call changes state or sends something out: by override, then MCP hints, then the tool's verbs."""
        if step.tool in self.sensitive:
            return self.sensitive[step.tool]
        if info is not None and info.read_only is not None:
            return not info.read_only
        if info is not None and info.destructive:
            return True
        pieces = name_pieces(step.tool)
        if pieces and pieces[0] in READING:
            # "get_or_create", "read_and_delete": what comes after does more than read.
            return any(a in ("and", "or", "then") and b in ACTING for a, b in pairwise(pieces))
        return any(piece in ACTING for piece in pieces)

    def trusts(self, step: Step) -> bool:
        """Whether the result is declared to be beyond an attacker's reach."""
        return step.trusted or step.tool in self.trusted_tools or (step.domain or "") in self.trusted_domains


def fetches(step: Step) -> bool:
    """Whether the call loads what an argument names by its address."""
    return bool(FETCHING.intersection(name_pieces(step.tool)))


def is_url(value: str) -> bool:
    """Whether a value is a web address."""
    return bool(_URL.match(value.strip()))


@lru_cache(maxsize=4096)
def name_pieces(tool: str) -> tuple[str, ...]:
    """``getWebPage``, ``get_web_page`` and ``mail.get-web-page`` as lower-case words."""
    return tuple(piece.lower() for piece in _PIECES.findall(tool))


def affordance(tool: str, description: str = "") -> Affordance:
    """What a text must say to ask for this tool. Only the description's first word counts."""
    first = re.match(r"\W{0,40}([A-Za-z]{1,40})", description)
    return _affordance(tool, first.group(1).lower() if first else "")


@lru_cache(maxsize=4096)
def _affordance(tool: str, lead: str) -> Affordance:
    pieces = name_pieces(tool)
    known = {verb for group in VERB_GROUPS for verb in group} | ACTING
    own = {p for p in pieces if p in known}
    if lead:
        own |= {form for form in (lead, lead[:-1], lead[:-2]) if form in known}
    verbs = set(own)
    for group in VERB_GROUPS:
        if group & own:
            verbs |= group
    nouns = {stem(p) for p in pieces if p not in own and p not in STOP_WORDS and len(p) > 2}
    return Affordance(frozenset(verbs), frozenset(nouns))


def read_policy(path: Path) -> Policy:
    """A policy from JSON: ``{"sensitive": {"tool": true}, "trusted_tools": [...], "trusted_domains": [...]}``."""
    try:
        body = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"policy {path} cannot be read: {error}") from None
    return policy_of(body, str(path))


def policy_of(body: Any, path: str) -> Policy:
    """A policy from its JSON form; ``path`` names the file in errors."""
    allowed = {"sensitive", "trusted_tools", "trusted_domains"}
    if not isinstance(body, dict) or set(body) - allowed:
        raise InputError(f"policy {path} must be a JSON object with keys among {', '.join(sorted(allowed))}")
    sensitive: Any = body.get("sensitive", {})
    if not isinstance(sensitive, dict) or not all(isinstance(v, bool) for v in sensitive.values()):
        raise InputError(f"policy {path}: 'sensitive' maps tool names to true or false")
    lists = {}
    for key in ("trusted_tools", "trusted_domains"):
        value = body.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise InputError(f"policy {path}: {key!r} is a list of names")
        lists[key] = frozenset(value)
    return Policy(sensitive, **lists)
