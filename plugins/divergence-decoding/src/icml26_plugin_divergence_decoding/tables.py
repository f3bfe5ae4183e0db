"""A page that shows what the model said before and after: questions, right answers, greedy answers side by side."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icml26_plugin_divergence_decoding.evaluation import Rows
from icml26_plugin_divergence_decoding.measures import contains, rouge_l
from icml26_plugin_divergence_decoding.task import QA, Format

_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}
table{border-collapse:collapse;width:100%;margin:.5rem 0 2rem}
th,td{border-bottom:1px solid #8884;padding:.35rem .6rem;text-align:left;vertical-align:top}
td{overflow-wrap:anywhere;min-width:5rem}
th{font-weight:600}
.known{background:#3b82f638}
small{opacity:.75}
"""


def generations_table(
    path: Path,
    models: Mapping[str, Any],
    parts: Mapping[str, Sequence[QA]],
    tokenizer: Any,
    form: Format,
    *,
    rows: int = 16,
    continued: bool = False,
) -> None:
    """Write an HTML page: for each part ("to be forgotten", …) evenly chosen questions with each model's greedy answer.

    An answer is marked as known when it holds the keyword; without keywords, when its ROUGE-L F1 is at least one half.
    """
    sections = [
        _section(title, _spread(questions, rows), models, tokenizer, form, continued)
        for title, questions in parts.items()
        if questions
    ]
    page = (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Before and after unlearning</title>"
        "<meta name='viewport' content='width=device-width'>"
        f"<style>{_STYLE}</style><h1>Before and after unlearning</h1>"
        "<p>Greedy answers; a <span class='known'>marked</span> one gives the fact away.</p>"
        + "".join(sections)
        + "</html>"
    )
    path.write_text(page, encoding="utf-8")


def _spread(questions: Sequence[QA], count: int) -> list[QA]:
    """Some of the questions; the odd step keeps off the rhythm in which kinds of questions recur."""
    return list(questions[:: max(1, len(questions) // count) | 1][:count])


def _section(
    title: str, questions: list[QA], models: Mapping[str, Any], tokenizer: Any, form: Format, continued: bool
) -> str:
    answers = {
        name: Rows(model, questions, tokenizer, form, continued=continued).answers for name, model in models.items()
    }
    known = {
        name: [_known(row, text) for row, text in zip(questions, found, strict=True)] for name, found in answers.items()
    }
    heads = "".join(
        f"<th>{html.escape(name)}<br><small>{sum(known[name])} of {len(questions)} known</small></th>"
        for name in models
    )
    lines = []
    for i, row in enumerate(questions):
        cells = "".join(
            f"<td{' class=known' if known[name][i] else ''}>{html.escape(answers[name][i])}</td>" for name in models
        )
        lines.append(f"<tr><td>{html.escape(row.question)}</td><td>{html.escape(row.answer)}</td>{cells}</tr>")
    return (
        f"<h2>{html.escape(title)}</h2><table><thead><tr><th>question</th><th>right answer</th>{heads}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def _known(row: QA, text: str) -> bool:
    if row.keyword is not None:
        return contains(text, row.keyword)
    return rouge_l([row.answer], [text])[0][1] >= 0.5
