"""Generate a plugin's project from the template: answers are checked here, files are made by copier, no code runs."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from icml26.carried import carried
from icml26.errors import EnvironmentError_, UsageError
from icml26.names import name_problem, task_problem

LICENSES = ("Apache-2.0", "MIT", "BSD-3-Clause")
ANSWERS_FILE = ".copier-answers.yml"
_TAKEN = frozenset(("core", "icml26", "sample-mean"))


@dataclass(frozen=True, slots=True)
class Answers:
    """What the template asks; raises UsageError, one line, for an answer that gives no valid project."""

    name: str
    title: str
    author: str
    task: str = ""
    license: str = "Apache-2.0"
    arxiv: str = ""

    def __post_init__(self) -> None:
        """Check every answer."""
        problem = name_problem(self.name)
        if problem:
            raise UsageError(f"plugin name {problem}{_nearest_name(self.name)}")
        if self.name in _TAKEN:
            raise UsageError(f"plugin name {self.name!r} is reserved; choose another")
        if self.task and (problem := task_problem(self.task)):
            raise UsageError(f"task {problem}")
        for what, text in (("title", self.title), ("author", self.author)):
            if not text.strip() or not text.isprintable():
                raise UsageError(f"the {what} must be one line of text without control characters, not {text!a}")
        if self.license not in LICENSES:
            raise UsageError(f"licence {self.license!r}: one of {', '.join(LICENSES)} is expected")
        if self.arxiv and not re.fullmatch(r"[a-z0-9./-]{1,40}", self.arxiv):
            raise UsageError(f"arXiv id {self.arxiv!r} is not one such as 2605.22365")

    @property
    def module(self) -> str:
        """The import package that will be generated."""
        return f"icml26_plugin_{self.name.replace('-', '_')}"

    def data(self) -> Mapping[str, str]:
        """The answers as copier takes them."""
        return {
            "name": self.name,
            "title": self.title,
            "arxiv": self.arxiv,
            "task": self.task or f"{self.name}.estimation",
            "author": self.author,
            "license": self.license,
        }


def new_plugin(answers: Answers, folder: Path, *, template: str | None = None, revision: str | None = None) -> Path:
    """Generate a project into ``folder``, which must be missing or empty; returns it.

    ``template`` is a git repository (URL or path) of the template, at its newest tag or ``revision``: then ``copier update``
    brings later changes. Without it the template that this icml26 carries is used. Raises UsageError or EnvironmentError_.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not an empty folder; choose another with --output")
    if importlib.util.find_spec("copier") is None:
        raise EnvironmentError_("new-plugin needs copier: pip install 'icml26[author]'")
    existed = folder.exists()
    try:
        if template is None:
            _copy_carried(answers, folder)
        else:
            _copy(template, answers, folder, revision)
    except BaseException:
        if not existed:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _copy_carried(answers: Answers, folder: Path) -> None:
    """From a plain folder, so that copier does not clone the repository in which an editable install lies."""
    from icml26 import __version__

    with tempfile.TemporaryDirectory(prefix="icml26-template-") as place:
        shutil.copyfile(carried("copier.yml"), Path(place) / "copier.yml")
        shutil.copytree(carried("plugin-template"), Path(place) / "plugin-template")
        _copy(place, answers, folder, None)
    path = folder / ANSWERS_FILE
    lines = [
        line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith(("_src_path", "_commit"))
    ]
    note = "# For `copier update`, set _src_path to a git repository of icml26 (a URL or a path)."
    lines[1:1] = [note, f"_commit: v{__version__}", "_src_path: icml26"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _copy(source: str, answers: Answers, folder: Path, revision: str | None) -> None:
    import copier
    from copier.errors import CopierError

    try:
        copier.run_copy(
            source,
            folder,
            data=dict(answers.data()),
            vcs_ref=revision,
            defaults=True,
            overwrite=True,
            quiet=True,
            unsafe=False,
        )
    except (CopierError, ValueError, OSError) as error:
        reason = str(error).strip() or type(error).__name__
        raise EnvironmentError_(f"the template {source} gave no project: {reason}") from error


def _nearest_name(name: str) -> str:
    """``; 'my-method' would do`` where a small change makes a name."""
    kebab = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-")
    return f"; {kebab!r} would do" if kebab and name.isascii() and not name_problem(kebab) else ""
