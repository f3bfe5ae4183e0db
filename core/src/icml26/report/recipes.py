"""Reproduced claims as pages show them, from the documents that ``icml26 reproduce`` keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from icml26.digits import number
from icml26.figures import figure_data
from icml26.leaderboard import Outcome
from icml26.recipes import Figure
from icml26.report.collect import Run
from icml26.report.drawing import recipe_plot
from icml26.report.views import Plot

_STATES = {"holds": "holds", "fails": "does not hold", "void": "void", "not-measured": "not measured"}
_FIGURES_A_RECIPE = 6
_FIGURES = 40


@dataclass(frozen=True, slots=True)
class ClaimLine:
    """A claim with what was measured."""

    id: str
    text: str
    paper: str
    state: str
    word: str
    must: bool
    measured: str
    interval: str
    n: int
    wanted: str
    what: str
    note: str


@dataclass(frozen=True, slots=True)
class RecipePage:
    """A reproduced recipe."""

    name: str
    title: str
    finished: str
    claims: list[ClaimLine]
    preconditions: list[ClaimLine]
    plots: list[Plot]
    runs: list[Run]

    @property
    def held(self) -> int:
        """How many claims hold."""
        return sum(claim.state == "holds" for claim in self.claims)


def recipe_pages(documents: Iterable[Mapping[str, Any]], runs: Sequence[Run]) -> list[RecipePage]:
    """One page section a document, sorted by recipe; documents of another shape are skipped."""
    by_id = {run.record.id: run for run in runs}
    pages: list[RecipePage] = []
    for document in sorted(documents, key=lambda document: str(document.get("recipe"))):
        cells = [cell for cell in _list(document, "cells") if isinstance(cell, Mapping)]
        used = [by_id[str(cell.get("record"))] for cell in cells if str(cell.get("record")) in by_id]
        budget = min(_FIGURES_A_RECIPE, _FIGURES - sum(len(page.plots) for page in pages))
        pages.append(
            RecipePage(
                str(document.get("recipe")),
                str(document.get("title") or document.get("recipe")),
                str(document.get("finished") or "")[:19].replace("T", " "),
                [_claim(claim) for claim in _list(document, "claims") if isinstance(claim, Mapping)],
                [_claim(claim) for claim in _list(document, "preconditions") if isinstance(claim, Mapping)],
                _figures(document, cells, by_id, budget, f"recipe-{len(pages)}"),
                list({run.page: run for run in used}.values()),
            )
        )
    return pages


def _list(document: Mapping[str, Any], key: str) -> list[Any]:
    value = document.get(key)
    return value if isinstance(value, list) else []


def _claim(claim: Mapping[str, Any]) -> ClaimLine:
    state = str(claim.get("state"))
    interval = claim.get("interval")
    shown = ""
    if isinstance(interval, list) and len(interval) == 2:
        shown = f"[{_number(interval[0])}, {_number(interval[1])}]"
    bounds = [f"≥ {_number(claim['at_least'])}"] if claim.get("at_least") is not None else []
    bounds += [f"≤ {_number(claim['at_most'])}"] if claim.get("at_most") is not None else []
    what = f"{claim.get('metric')} of {claim.get('of')}"
    if claim.get("as") in ("ratio", "difference"):
        what = f"{claim.get('as')} of {claim.get('metric')}: {claim.get('of')} to {claim.get('over') or '?'}"
    measured = claim.get("nonfinite") if claim.get("measured") is None else _number(claim.get("measured"))
    unit = f" {claim['unit']}" if claim.get("unit") and measured else ""
    return ClaimLine(
        str(claim.get("id")),
        str(claim.get("text")),
        str(claim.get("paper") or ""),
        state if state in _STATES else "not-measured",
        _STATES.get(state, "not measured"),
        bool(claim.get("must")),
        f"{measured}{unit}" if measured else "–",
        shown,
        int(claim.get("n") or 0),
        " and ".join(bounds),
        f"{what}, on {claim.get('on')}",
        str(claim.get("note") or ""),
    )


def _number(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else str(value)


def _figures(
    document: Mapping[str, Any], cells: Sequence[Mapping[str, Any]], by_id: Mapping[str, Run], budget: int, salt: str
) -> list[Plot]:
    outcomes = []
    for cell in cells:
        run = by_id.get(str(cell.get("record")))
        if run is not None:
            record = run.record
            role = str(record.method.get("role", "paper"))
            outcomes.append(Outcome(str(cell.get("method")), str(cell.get("dataset")), record.seed, record, role))
    drawn: list[Plot] = []
    for place, body in enumerate(_list(document, "figures")):
        if len(drawn) >= budget or not isinstance(body, Mapping) or not outcomes:
            break
        log = body.get("log")
        figure = Figure(
            str(body.get("x")),
            str(body.get("y")),
            str(body.get("by") or "method"),
            None if body.get("on") is None else str(body["on"]),
            None if body.get("title") is None else str(body["title"]),
            log if log in ("x", "y", "xy") else "",
        )
        plot = recipe_plot(figure_data(figure, outcomes), f"{salt}-{place}")
        if plot is not None:
            drawn.append(plot)
    return drawn
