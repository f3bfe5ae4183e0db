"""Get one commit of a git repository, with transports, hooks, prompts and submodules switched off."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from icml26.errors import EnvironmentError_
from icml26.registry.model import GitSource

TIMEOUT_SECONDS = 600.0
_OPTIONS = ("-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never", "-c", "submodule.recurse=false")


def checkout(source: GitSource, folder: Path) -> Path:
    """Check the commit out below ``folder`` and return the project's folder; raises EnvironmentError_."""
    if shutil.which("git") is None:
        raise EnvironmentError_("git is not installed; this plugin comes from a git repository")
    repository = folder / "repository"
    repository.mkdir()
    _git(repository, "init", "--quiet")
    if not _git(
        repository, "fetch", "--quiet", "--depth=1", "--no-tags", "--", source.url, source.revision, fails=True
    ):
        # Some servers hand out branches and tags only; the commit may be reachable from one of them.
        everything = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
        _git(repository, "fetch", "--quiet", "--", source.url, *everything)
    if not _git(repository, "cat-file", "-e", source.revision + "^{commit}", fails=True):
        raise EnvironmentError_(
            f"{source.url} does not have the commit {source.revision} (any more); a branch may have been force-pushed. "
            "Nothing was installed: the registry must name a commit that exists"
        )
    _git(repository, "checkout", "--quiet", "--detach", source.revision)
    project = repository / source.subdirectory if source.subdirectory else repository
    if not project.resolve().is_relative_to(repository.resolve()):
        raise EnvironmentError_(
            f"{source.url}: subdirectory {source.subdirectory!r} leads out of the repository; refused"
        )
    if not project.is_dir():
        raise EnvironmentError_(f"{source.url} has no folder {source.subdirectory!r} at {source.revision[:12]}")
    return project


def reference(distribution: str, source: GitSource) -> str:
    """The direct reference that an installer takes and records (PEP 508, PEP 610)."""
    fragment = f"#subdirectory={source.subdirectory}" if source.subdirectory else ""
    return f"{distribution} @ git+{source.url}@{source.revision}{fragment}"


def _git(folder: Path, *arguments: str, fails: bool = False) -> bool:
    allowed = [f"protocol.{scheme}.allow=always" for scheme in ("https", "http", "ssh")]
    options = [*_OPTIONS, *(part for item in allowed for part in ("-c", item))]
    environment = {
        **os.environ,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_SSH_COMMAND": os.environ.get("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
    }
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        environment.pop(name, None)
    command = ["git", *options, "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentError_(f"git {arguments[0]} did not end well ({error})") from error
    if done.returncode and not fails:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise EnvironmentError_(f"git {arguments[0]} failed: {last}")
    return done.returncode == 0
