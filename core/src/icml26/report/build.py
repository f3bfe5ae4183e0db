"""Write the site: pages from templates, data for the list of runs as a script file, in a folder that is swapped in whole."""

from __future__ import annotations

import datetime
import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import icml26
from icml26.errors import EnvironmentError_, UsageError
from icml26.keys import jsonable
from icml26.records import RunRecord
from icml26.report import views
from icml26.report.collect import Run, TaskBoard, collect
from icml26.report.drawing import MAXIMUM_PLOTS, draw_all, sketches
from icml26.report.files import run_files
from icml26.report.plots import mark
from icml26.report.recipes import RecipePage, recipe_pages
from icml26.report.soundness import fault_of

MARKER = "icml26-report.json"
_HERE = Path(__file__).parent
_TOP = 3


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """What was written: the first page, and how much of everything."""

    index: Path
    runs: int
    tasks: int
    plots: int
    plots_left_out: int
    recipes: int
    skipped: dict[str, str]


def build_report(
    records: Iterable[tuple[RunRecord, Path | None]],
    output: Path,
    *,
    reproductions: Iterable[Mapping[str, Any]] = (),
    title: str = "icml26 results",
    bundle: bool = False,
    now: datetime.datetime | None = None,
) -> ReportSummary:
    """Write a site about these records (each with its run's folder, where it is known) into ``output``.

    ``reproductions`` are documents that ``icml26 reproduce`` kept. With ``bundle`` logs and artifacts are copied, so that
    the site can be moved; without it they are linked. Records of a wrong shape are skipped and named in the summary. An
    existing folder is replaced only when it is a report; else UsageError. Raises EnvironmentError_ when it cannot be written.
    """
    output = output.absolute()
    _refuse_foreign(output)
    temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in ("assets", "data", "runs"):
            (temporary / folder).mkdir(parents=True)
        site = _Site(temporary, title, bundle, now or datetime.datetime.now(datetime.UTC))
        summary = site.write(records, reproductions)
        _swap(temporary, output)
    except OSError as error:
        raise EnvironmentError_(f"{output}: the report cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return replace(summary, index=output / "index.html")


def _refuse_foreign(output: Path) -> None:
    if output.is_symlink() or output.is_file():
        raise UsageError(f"{output} is not a folder; name another with --output")
    if output.is_dir() and any(output.iterdir()) and not (output / MARKER).is_file():
        raise UsageError(f"{output} holds something other than a report; name another folder with --output")


def _swap(temporary: Path, output: Path) -> None:
    """Put the new folder in the place of the old one."""
    output.parent.mkdir(parents=True, exist_ok=True)
    if not output.exists():
        temporary.replace(output)
        return
    old = output.with_name(f".{output.name}.{os.getpid()}.old")
    output.replace(old)
    try:
        temporary.replace(output)
    except OSError:
        old.replace(output)
        raise
    shutil.rmtree(old, ignore_errors=True)


class _Site:
    def __init__(self, folder: Path, title: str, bundle: bool, now: datetime.datetime) -> None:
        self.folder = folder
        self.bundle = bundle
        self.environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.globals |= {
            "site": {"title": title, "version": icml26.__version__, "made": now.strftime("%Y-%m-%d %H:%M UTC")},
            "number": views.number,
            "duration": views.duration,
            "size": views.size,
            "mark": mark,
        }

    def write(
        self, records: Iterable[tuple[RunRecord, Path | None]], reproductions: Iterable[Mapping[str, Any]]
    ) -> ReportSummary:
        """All pages."""
        sound, skipped = [], {}
        for record, folder in records:
            fault = fault_of(record)
            if fault is None:
                sound.append((record, folder))
            else:
                skipped[str(record.id)] = fault
        tasks, runs = collect(sound)
        recipes = recipe_pages(reproductions, runs)
        self.environment.globals["has_claims"] = bool(recipes)
        drawn, count, left = draw_all(
            [sketches(task) for task in tasks], MAXIMUM_PLOTS - sum(len(p.plots) for p in recipes)
        )
        cards = []
        for task in tasks:
            boards = [
                views.leaderboard(task, board, f"dataset-{place}", drawn.get((task.name, board.dataset), []))
                for place, board in enumerate(task.boards, 1)
            ]
            cards.append(_card(task, boards))
            failures = [run for run in task.runs if not run.record.succeeded]
            self._page("task.html", task.page, task=task, boards=boards, versus=views.versus(task), failures=failures)
        if recipes:
            self._page("claims.html", "claims.html", recipes=recipes)
        self._runs(runs, tasks)
        self._page("runs.html", "runs.html", total=len(runs))
        self._page("index.html", "index.html", cards=cards, totals=_totals(runs), recipes=recipes, plots_left_out=left)
        for name in ("style.css", "report.js"):
            shutil.copyfile(_HERE / "assets" / name, self.folder / "assets" / name)
        (self.folder / MARKER).write_text(
            json.dumps({"schema": "icml26.report/1", "core": icml26.__version__, "runs": len(runs)}) + "\n"
        )
        drawn_recipes = sum(len(page.plots) for page in recipes)
        return ReportSummary(
            self.folder / "index.html", len(runs), len(tasks), count + drawn_recipes, left, len(recipes), skipped
        )

    def _page(self, template: str, name: str, root: str = "", **values: Any) -> None:
        text = self.environment.get_template(template).render(root=root, page=name, **values)
        (self.folder / name).write_text(text, encoding="utf-8", errors="replace")

    def _runs(self, runs: Sequence[Run], tasks: Sequence[TaskBoard]) -> None:
        """A page for each run, and the data of their list."""
        by_task = {task.name: task for task in tasks}
        template = self.environment.get_template("run.html")
        rows = []
        for run in runs:
            task = by_task[str(run.record.task)]
            text = template.render(
                root="../",
                page=f"runs/{run.page}",
                run=run,
                record=run.record,
                task=task,
                files=run_files(run, self.folder, bundle=self.bundle),
                metrics=list(views.metric_lines(run)),
                config=views.flat(run.record.method.get("config"), _text),
                dataset_config=views.flat(run.record.dataset.get("config"), _text),
                provenance=_provenance(run.record),
                info=views.flat(run.record.info.get("problem"), _text),
                warnings=[str(text) for text in run.record.info.get("warnings") or []],
            )
            (self.folder / "runs" / run.page).write_text(text, encoding="utf-8", errors="replace")
            rows.append(_data_row(run, task))
        write_script(self.folder / "data" / "runs.js", "icml26Runs", _columns(rows))


def write_script(path: Path, name: str, value: Any) -> None:
    """A script file that sets one global to plain data; safe whatever the strings in it are."""
    text = json.dumps(jsonable(value), allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    path.write_text(f"window.{name} = {text};\n", encoding="ascii")


def _data_row(run: Run, task: TaskBoard) -> list[Any]:
    record = run.record
    primary = task.primary
    value = None if primary is None else record.value(primary.key)
    started = str(record.provenance.get("started") or "")[:19].replace("T", " ")
    return [
        run.page,
        started,
        task.name,
        run.method,
        run.dataset,
        record.seed,
        record.status,
        primary.key if primary is not None and value is not None else "",
        value,
        run.seconds,
        run.superseded,
    ]


def _columns(rows: list[list[Any]]) -> dict[str, Any]:
    """Rows whose repeated strings are numbers of a table of strings."""
    strings: dict[str, int] = {}
    coded = [
        [strings.setdefault(cell, len(strings)) if place in (2, 3, 4, 6, 7) else cell for place, cell in enumerate(row)]
        for row in rows
    ]
    return {"strings": list(strings), "rows": coded}


def _card(task: TaskBoard, boards: Sequence[views.Leaderboard]) -> dict[str, Any]:
    """A task on the first page: counts, and who leads where."""
    leaders = []
    for board in boards[:_TOP]:
        lines = [line for line in board.lines if line.cells and not line.cells[0].missing][:_TOP]
        leaders.append({"dataset": board.dataset, "anchor": board.anchor, "lines": lines})
    statuses = Counter(run.record.status for run in task.runs)
    return {
        "task": task,
        "leaders": leaders,
        "more": max(0, len(boards) - _TOP),
        "succeeded": statuses["succeeded"],
        "failed": sum(statuses.values()) - statuses["succeeded"],
        "seeds": len({run.record.seed for run in task.runs}),
    }


def _totals(runs: Sequence[Run]) -> dict[str, int]:
    return {
        "runs": len(runs),
        "methods": len({run.record.method.get("name") for run in runs}),
        "datasets": len({run.record.dataset.get("name") for run in runs}),
        "failed": sum(not run.record.succeeded for run in runs),
    }


def _provenance(record: RunRecord) -> list[tuple[str, str]]:
    facts = dict(record.provenance)
    lines: list[tuple[str, str]] = []
    for key, value in facts.items():
        if key == "distributions" and isinstance(value, Mapping):
            for name, origin in value.items():
                details = origin if isinstance(origin, Mapping) else {"version": origin}
                commit = f", commit {details['commit']}" if details.get("commit") else ""
                editable = ", editable" if details.get("editable") else ""
                lines.append((str(name), f"{details.get('version')}{commit}{editable}"))
        elif isinstance(value, Mapping):
            lines += [(str(name), _text(item)) for name, item in value.items()]
        else:
            lines.append((str(key), _text(value)))
    return lines


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return repr(value)
    if isinstance(value, Mapping) and set(value) == {"nonfinite"}:
        return str(value["nonfinite"])
    return json.dumps(jsonable(value), ensure_ascii=False)


__all__ = ["MARKER", "RecipePage", "ReportSummary", "build_report", "write_script"]
