"""The environment that ``install`` and ``uninstall`` change, and the installer that may do it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from icml26.errors import EnvironmentError_, UsageError


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """Where the installer looks for distributions, when the user says so; else its own configuration decides."""

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()

    @property
    def explicit(self) -> tuple[str, ...]:
        """The indexes that were named, in the order in which they are asked."""
        return ((self.index_url,) if self.index_url else ()) + self.extra_index_urls


@dataclass(frozen=True, slots=True)
class Target:
    """A Python environment and how distributions are put into it."""

    python: str
    tool: Literal["uv", "pip"]
    uv: str | None = None

    def install(
        self, what: Sequence[str], options: IndexOptions, *, allow_build: bool, upgrade: bool, alone: bool = False
    ) -> list[str]:
        """The command line that installs wheels, folders or direct references; ``alone`` leaves out what they require."""
        extra_index = "--index" if self.tool == "uv" else "--extra-index-url"
        command = self._tool("install")
        if not allow_build:
            command += ["--only-binary", ":all:"]
        if upgrade:
            command.append("--upgrade")
        if alone:
            command.append("--no-deps")
        if options.index_url:
            command += ["--index-url", options.index_url]
        for url in options.extra_index_urls:
            command += [extra_index, url]
        for path in options.constraints:
            command += ["--constraint", path]
        return [*command, "--", *what] if self.tool == "pip" else [*command, *what]

    def uninstall(self, distributions: Sequence[str]) -> list[str]:
        """The command line that removes distributions."""
        yes = ["-y"] if self.tool == "pip" else []
        return [*self._tool("uninstall"), *yes, *distributions]

    def _tool(self, verb: str) -> list[str]:
        if self.tool == "uv":
            assert self.uv is not None
            return [self.uv, "pip", verb, "--python", self.python]
        return [self.python, "-m", "pip", "--disable-pip-version-check", verb]


def find_uv() -> str | None:
    """The uv program: on the path, or from the ``uv`` distribution of this environment."""
    found = shutil.which("uv")
    if found is None and importlib.util.find_spec("uv") is not None:
        from uv import find_uv_bin

        found = str(find_uv_bin())
    return found


def this_environment() -> Target:
    """The environment that icml26 runs in; raises EnvironmentError_ when it may not or cannot be changed."""
    refuse_managed()
    uv, pip = find_uv(), importlib.util.find_spec("pip") is not None
    wanted = os.environ.get("ICML26_INSTALLER")
    if wanted not in (None, "", "uv", "pip"):
        raise UsageError(f"ICML26_INSTALLER={wanted!r}: 'uv' or 'pip' is expected")
    if wanted == "uv" or (not wanted and uv and (not pip or _made_by_uv())):
        if uv is None:
            raise EnvironmentError_("ICML26_INSTALLER=uv, but there is no uv here; install it: pip install uv")
        return Target(sys.executable, "uv", uv)
    if not pip:
        raise EnvironmentError_(
            f"the environment {sys.prefix} has no pip, and there is no uv to use in its place; "
            f"add one: {sys.executable} -m ensurepip"
        )
    return Target(sys.executable, "pip")


def refuse_managed() -> None:
    """Raise EnvironmentError_ when the operating system owns this Python (PEP 668)."""
    if sys.prefix != sys.base_prefix:
        return
    marker = Path(sysconfig.get_path("stdlib", sysconfig.get_default_scheme())) / "EXTERNALLY-MANAGED"
    if marker.exists():
        raise EnvironmentError_(
            f"the Python at {sys.prefix} belongs to the operating system, which forbids installing into it (PEP 668). "
            "Make an environment of your own and work there: "
            f"{sys.executable} -m venv ~/icml26 && ~/icml26/bin/pip install icml26"
        )


def forgetful_tool(distributions: Sequence[str]) -> str | None:
    """A hint when this environment belongs to ``uv tool``, whose next upgrade drops what was added; None elsewhere."""
    if not (Path(sys.prefix) / "uv-receipt.toml").exists():
        return None
    return (
        "this environment belongs to `uv tool`, whose next upgrade drops what was added to it; to keep it: "
        f"uv tool install icml26 {' '.join(f'--with {name}' for name in distributions)}"
    )


def run_tool(command: Sequence[str], *, timeout: float = 3600.0) -> None:
    """Run an installer to its end; its words go to our standard error. Raises EnvironmentError_ when it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), timeout=timeout, check=False
        )
    except OSError as error:
        raise EnvironmentError_(f"{command[0]} cannot be started ({error.strerror or error})") from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentError_(f"{command[0]} did not end within {timeout:.0f} s") from error
    if done.returncode:
        raise EnvironmentError_(f"the installer failed with exit code {done.returncode}; its words stand above")


def _made_by_uv() -> bool:
    try:
        lines = (Path(sys.prefix) / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.split("=")[0].strip() == "uv" for line in lines)
