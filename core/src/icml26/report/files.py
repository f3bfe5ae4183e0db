"""The files of a run as pages show them: the end of its log, its artifacts; linked where they lie, or copied."""

from __future__ import annotations

import os
import re
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from icml26.report.collect import Run
from icml26.smallfiles import open_regular

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9][A-Za-z0-9._-]{0,99})?")
_LOG_BYTES = 16_000
_PICTURES = (".png", ".svg", ".jpg", ".jpeg", ".gif", ".webp")


@dataclass(frozen=True, slots=True)
class Shown:
    """A file of a run: its name, the link to it (None when the file is gone), and whether it is a picture."""

    name: str
    href: str | None
    picture: bool = False


@dataclass(frozen=True, slots=True)
class RunFiles:
    """What a run's page shows of its folder."""

    log: str | None
    log_cut: bool
    files: list[Shown]


def run_files(run: Run, site: Path, *, bundle: bool) -> RunFiles:
    """The log's end and links for the page ``runs/<page>`` of the site; with ``bundle`` the files are copied into it.

    Names come from records, which may come from anyone: only plain names inside the run's folder are followed.
    """
    record = run.record
    text, cut = _tail(run.folder, record.log)
    below = None if run.folder is None or bundle else _relative(run.folder, site / "runs")
    names = [("log", record.log), ("curves", record.curves), *(("artifact", name) for name in record.artifacts)]
    shown = []
    for kind, name in names:
        if not isinstance(name, str):
            continue
        path = _inside(run.folder, name)
        href = None if path is None else f"{below}/{quote(name)}" if below else _copy(path, name, run, site)
        picture = kind == "artifact" and name.lower().endswith(_PICTURES)
        shown.append(Shown(name, href, picture and href is not None))
    return RunFiles(text, cut, shown)


def _inside(folder: Path | None, name: str) -> Path | None:
    if folder is None or not _NAME.fullmatch(name) or ".." in name:
        return None
    path = folder / name
    try:
        regular = stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return None
    return path if regular else None


def _relative(folder: Path, start: Path) -> str:
    """A link to a folder: relative where that is possible, else a file address."""
    try:
        return quote(Path(os.path.relpath(folder, start)).as_posix())
    except ValueError:
        return folder.absolute().as_uri()


def _copy(path: Path, name: str, run: Run, site: Path) -> str | None:
    """Copy a file into the site; the link to it."""
    stem = run.page.removesuffix(".html")
    target = site / "files" / stem / name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copyfile(path, target)
    except OSError:
        return None
    return quote(f"../files/{stem}/{name}")


def _tail(folder: Path | None, name: str | None) -> tuple[str | None, bool]:
    path = _inside(folder, name) if isinstance(name, str) else None
    if path is None:
        return None, False
    try:
        with open_regular(path) as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - _LOG_BYTES))
            data = file.read(_LOG_BYTES)
    except OSError:
        return None, False
    text = data.decode("utf-8", errors="replace")
    if length > _LOG_BYTES:
        text = text.partition("\n")[2] or text
    return text, length > _LOG_BYTES
