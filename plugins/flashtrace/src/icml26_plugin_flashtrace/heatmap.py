"""Heat maps of an attribution: a page to explore that needs no network, and a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icml26_plugin_flashtrace.files import write_whole
from icml26_plugin_flashtrace.task import Attribution, Span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: A picture of more tokens than this would be too small to read: the tokens with the highest scores stay, in their order.
MAX_DRAWN = 1200
#: Lines of all panels together: a picture of many hops of a long prompt would take gigabytes.
MAX_LINES = 2400
#: Characters of a line, and inches of a line's height and a character's width at 9 points.
COLUMNS, ROW_HEIGHT, CHAR = 110, 0.24, 0.0785


def html_page(
    tokens: Sequence[str],
    n_prompt: int,
    attribution: Attribution,
    *,
    title: str = "",
    gold: np.ndarray | None = None,
    output_span: Span | None = None,
) -> str:
    """One self-contained page: prompt tokens shaded by score, the hops as tabs, the score of the token pointed at.

    ``tokens`` N texts, which are shown as text whatever they hold; ``gold`` (P,) bool is underlined; ``output_span``
    (inclusive generated tokens) is marked as the explained answer.
    """
    data = page_data(tokens, n_prompt, attribution, title, gold, output_span)
    # In a script element only "</" and "<!--" could end the data or change how it is read.
    text = json.dumps(data, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")
    template = files("icml26_plugin_flashtrace").joinpath("heatmap.html").read_text(encoding="utf-8")
    before, after = template.split("__DATA__")
    return before.replace("__TITLE__", escape(data["title"])) + text + after


def page_data(
    tokens: Sequence[str],
    n_prompt: int,
    attribution: Attribution,
    title: str,
    gold: np.ndarray | None,
    output_span: Span | None,
) -> dict[str, Any]:
    """What the page's script draws, as JSON values."""
    generated: list[float] | None = _numbers(attribution.generation_scores)
    views: list[dict[str, Any]] = [{"name": "All", "prompt": _numbers(attribution.scores), "generation": generated}]
    if len(attribution.hops) > 1:
        for k, hop in enumerate(attribution.hops):
            views.append({"name": f"Hop {k}", "prompt": _numbers(hop), "generation": generated if k == 0 else None})
    ratios = ", ".join(f"{ratio:.0%}" for ratio in attribution.residual_ratios)
    facts = f"{n_prompt} prompt tokens, {len(tokens) - n_prompt} generated; share on generated tokens by hop: {ratios}"
    return {
        "title": _clean(str(title or "Attribution")),
        "facts": facts,
        "tokens": [_clean(token) for token in tokens],
        "n_prompt": n_prompt,
        "kept": [bool(keep) for keep in attribution.kept],
        "gold": None if gold is None else [bool(mark) for mark in gold],
        "negative": bool((attribution.scores < 0).any()),
        "output_span": [-1, -2] if output_span is None else list(output_span),
        "views": views,
    }


def draw_png(
    path: Path | str,
    tokens: Sequence[str],
    n_prompt: int,
    attribution: Attribution,
    *,
    gold: np.ndarray | None = None,
    title: str = "",
) -> None:
    """The prompt with its tokens shaded, one panel a hop (and their sum), gold tokens underlined, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    chosen = _drawn(attribution, n_prompt)
    texts = [_printable(tokens[k]) for k in chosen]
    places, rows = _layout([tokens[k] for k in chosen], texts)
    panels = [("all hops" if len(attribution.hops) > 1 else "scores", attribution.scores)]
    if len(attribution.hops) > 1:
        panels += [(f"hop {k}", hop) for k, hop in enumerate(attribution.hops)]
    panels = panels[: max(1, MAX_LINES // rows)]
    height = ROW_HEIGHT * rows + 0.55
    figure = Figure(figsize=(COLUMNS * CHAR + 0.4, height * len(panels) + 0.05))
    FigureCanvasAgg(figure)
    whole = figure.get_figheight()
    hidden, left = n_prompt - len(chosen), len(attribution.hops) + 1 - len(panels)
    for k, (name, scores) in enumerate(panels):
        bottom = (whole - 0.05 - height * (k + 1)) / whole
        axes = figure.add_axes((0.02, bottom, 0.96, (height - 0.4) / whole))
        missing = [f"{hidden} tokens of low score"] if hidden else []
        missing += [f"{left} hops"] if left and len(attribution.hops) > 1 else []
        note = f" ({' and '.join(missing)} not drawn)" if missing and k == 0 else ""
        label = f"{_printable(title)[:80]}: {name}" if title and k == 0 else name
        axes.set_title(label + note, loc="left", fontsize=10, fontweight="bold", parse_math=False)
        marks = None if gold is None else gold[chosen]
        _panel(axes, texts, places, rows, scores[chosen], marks)
    options: dict[str, Any] = {"dpi": 110, "facecolor": "white", "metadata": {"Software": None}}
    write_whole(path, lambda half: figure.savefig(half, format="png", **options))


def _panel(
    axes: Axes,
    texts: Sequence[str],
    places: list[tuple[int, int]],
    rows: int,
    scores: np.ndarray,
    gold: np.ndarray | None,
) -> None:
    from matplotlib.patches import Rectangle

    axes.set_xlim(0, COLUMNS)
    axes.set_ylim(rows, 0)
    axes.axis("off")
    top = float(np.abs(scores).max(initial=0.0))
    for k, (text, (row, column)) in enumerate(zip(texts, places, strict=True)):
        value = float(scores[k])
        strength = np.sqrt(abs(value) / top) if top > 0 else 0.0
        colour = (0.85, 0.33, 0.10, 0.85 * strength) if value >= 0 else (0.17, 0.42, 0.69, 0.85 * strength)
        axes.add_patch(Rectangle((column, row + 0.08), len(text), 0.84, facecolor=colour, edgecolor="none"))
        if gold is not None and gold[k]:
            axes.plot([column + 0.1, column + len(text) - 0.1], [row + 0.96] * 2, color="#8a6d00", linewidth=2)
        axes.text(
            column, row + 0.5, text, family="monospace", fontsize=9, va="center", color="#1a202c", parse_math=False
        )


def _layout(tokens: Sequence[str], texts: Sequence[str]) -> tuple[list[tuple[int, int]], int]:
    """(row, column) of each text on lines of ``COLUMNS`` characters, and the number of lines; line breaks are kept."""
    places, row, column = [], 0, 0
    for token, text in zip(tokens, texts, strict=True):
        if column and column + len(text) > COLUMNS:
            row, column = row + 1, 0
        places.append((row, column))
        column += len(text)
        if "\n" in token:
            row, column = row + 1, 0
    return places, max(1, row + (column > 0))


def _drawn(attribution: Attribution, n_prompt: int) -> np.ndarray:
    if n_prompt <= MAX_DRAWN:
        return np.arange(n_prompt)
    return np.sort(np.argsort(-np.abs(attribution.scores), kind="stable")[:MAX_DRAWN])


def _numbers(values: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in np.nan_to_num(values.astype(np.float64))]


def _clean(token: str) -> str:
    """The token without lone surrogates, which no UTF-8 file can hold."""
    return token.encode("utf-8", "replace").decode("utf-8")


def _printable(token: str) -> str:
    shown = "".join(c if c.isprintable() and c.isascii() else {"\n": "⏎", "\t": " "}.get(c, _other(c)) for c in token)
    return shown[:COLUMNS]


def _other(c: str) -> str:
    """Characters that the picture's font has, as they are; others as a box, so that a width is one character."""
    return c if c.isprintable() and ord(c) < 0x250 else "□"
