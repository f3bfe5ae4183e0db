"""``icml26 check-plugin``: the conformance kit from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icml26.cli.output import console

if TYPE_CHECKING:
    from icml26.plugins import Candidate
    from icml26.testing.report import Report

_MARKS = {"passed": "ok", "failed": "FAILED", "expected": "expected failure", "skipped": "skipped"}


def check_plugin(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A plugin's name or its distribution's.")],
    write_index: Annotated[
        bool,
        typer.Option(
            "--write-index", help="Write icml26-index.json into the package from its hooks, and check nothing."
        ),
    ] = False,
    smoke: Annotated[
        bool,
        typer.Option(
            "--smoke",
            help="With --write-index: run each method's smoke setting and store its scores; exit 1 when one has none.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ID", help="Run only this check (repeatable).")
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option("--expect", metavar="ID=REASON", help="A check that may fail, and why (repeatable)."),
    ] = None,
    wheel: Annotated[Path | None, typer.Option("--wheel", metavar="FILE", help="A built wheel to check too.")] = None,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Limit of each smoke run, e.g. 30s, 2m.")
    ] = "2m",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Check that a plugin keeps the contracts; each finding says what is wrong and how to mend it."""
    from icml26.errors import UsageError
    from icml26.units import parse_duration

    if write_index:
        console().write(str(_write_index(name)))
        if smoke:
            scores, without = _smoke_scores(name, parse_duration(timeout))
            console().write(str(_write_index(name, scores)))
            for method, reason in without.items():
                console().warn(f"{method} is in the index without smoke scores: {reason}")
            raise typer.Exit(1 if without else 0)
        return
    if smoke:
        raise UsageError("--smoke goes with --write-index; the checks always run the smoke settings")
    expected = {}
    for text in expect or ():
        check, equals, reason = text.partition("=")
        if not equals or not reason:
            raise UsageError(f"--expect {text!r}: expected ID=REASON")
        expected[check] = reason
    report = _check(name, only, expected, wheel, parse_duration(timeout))
    if as_json:
        document = report.to_json()
        document.pop("schema")
        console().json("check-plugin", document)
    else:
        console().write(_text(report))
    raise typer.Exit(0 if report.clean else 1)


def _smoke_scores(name: str, trial_seconds: float) -> tuple[dict[str, object], dict[str, str]]:
    import tempfile

    from icml26.capture import captured_streams
    from icml26.testing.kit import smoke_scores

    with tempfile.TemporaryDirectory(prefix="icml26-check-") as folder, captured_streams(Path(folder) / "printed.txt"):
        return smoke_scores(name, trial_seconds)


def _check(
    name: str, only: list[str] | None, expected: dict[str, str], wheel: Path | None, trial_seconds: float
) -> Report:
    import tempfile

    from icml26.capture import captured_streams
    from icml26.testing.kit import check_plugin as check

    with tempfile.TemporaryDirectory(prefix="icml26-check-") as folder, captured_streams(Path(folder) / "printed.txt"):
        runs = Path(folder) / "runs"
        return check(name, only=only, expected=expected, folder=runs, wheel=wheel, trial_seconds=trial_seconds)


def _write_index(name: str, scores: dict[str, object] | None = None) -> Path:
    """Build the index of an installed plugin from its hooks, also when the stored one is damaged.

    Without ``scores`` the smoke scores that it holds are kept.
    """
    from icml26.errors import UsageError
    from icml26.index_build import build_index
    from icml26.index_build import write_index as write
    from icml26.smallfiles import read_text

    candidate = _candidate(name)
    distribution = candidate.distribution
    if not candidate.folder:
        raise UsageError(f"{distribution.name}: its hook module is not in a package; make it PACKAGE.plugin")
    smoke = dict(scores or {})
    if candidate.index_path is not None and scores is None:
        try:
            smoke = json.loads(read_text(candidate.index_path)).get("smoke", {})
        except (OSError, ValueError, AttributeError):
            smoke = {}
    document = build_index(distribution.entry_point, distribution.name, distribution.module, smoke=smoke)
    return write(document, Path(candidate.folder))


def _candidate(name: str) -> Candidate:
    from icml26.catalog import unknown
    from icml26.distributions import scan
    from icml26.errors import PluginError, UsageError
    from icml26.plugins import Candidate, locate

    distributions = scan().distributions
    for distribution in distributions:
        if name in (distribution.entry_point, distribution.name):
            found = locate(distribution)
            if not isinstance(found, Candidate):
                raise PluginError(f"{name}: {found.reason}")
            return found
    raise UsageError(unknown("plugin", name, [distribution.entry_point for distribution in distributions]))


def _text(report: Report) -> str:
    lines = []
    for result in report.results:
        warning = result.outcome == "failed" and result.severity == "warning"
        mark = "warning" if warning else _MARKS[result.outcome]
        lines.append(f"{mark:<16}  {result.id}" + (f"  ({result.note})" if result.note else ""))
        for problem in result.problems:
            lines.append(f"    {problem.where}: {problem.message}")
            if problem.fix:
                lines.append(f"      fix: {problem.fix}")
    failed = len(report.failures)
    lines.append(f"{report.plugin}: {'clean' if not failed else f'{failed} of {len(report.results)} checks failed'}")
    return "\n".join(lines)
