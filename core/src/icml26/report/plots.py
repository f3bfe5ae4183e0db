"""Plots as SVG text, drawn by matplotlib and coloured by the page's own CSS variables, so that they follow its theme."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SYMBOLS = ("●", "■", "▲", "◆", "▼", "✚", "✖", "★")
COLORS = 8

_FOREGROUND, _GRID = "#0a0b0c", "#0a0b0d"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_SIZE = (5.2, 3.1)
_MARGINS = (0.135, 0.15, 0.85, 0.82)


@dataclass(frozen=True, slots=True)
class Mark:
    """How a series looks: a colour of the palette and a marker; past the palette the marker changes."""

    color: int
    symbol: str
    marker: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A point with its intervals (None: none)."""

    x: float
    y: float
    x_low: float | None = None
    x_high: float | None = None
    y_low: float | None = None
    y_high: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A named line of dots; ``band`` draws the y interval as an area instead of bars."""

    name: str
    dots: Sequence[Dot]
    faint: Sequence[Sequence[tuple[float, float]]] = ()


def mark(place: int) -> Mark:
    """The look of the ``place``-th series."""
    shape = (place // COLORS + place) % len(MARKERS)
    return Mark(place % COLORS, SYMBOLS[shape], MARKERS[shape])


def plain(text: str, limit: int = 48) -> str:
    """Text that may stand in an SVG: no control characters, not too long."""
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def scatter(
    lines: Sequence[Line],
    places: Sequence[int],
    *,
    x_label: str,
    y_label: str,
    log: str = "",
    front: Sequence[tuple[float, float]] = (),
    salt: str,
) -> str:
    """One mark a dot with its intervals; ``front`` is drawn as a dashed line."""

    def draw(axes: Axes) -> None:
        if front:
            axes.plot(*zip(*front, strict=True), color=_FOREGROUND, alpha=0.35, linewidth=1, linestyle="--", zorder=1)
        for line, place in zip(lines, places, strict=True):
            _dots(axes, line, mark(place), connected=False)

    return _svg(draw, x_label, y_label, log, salt)


def lines(
    drawn: Sequence[Line],
    places: Sequence[int],
    *,
    x_label: str,
    y_label: str,
    log: str = "",
    x_ticks: Sequence[str] | None = None,
    markers: bool = True,
    salt: str,
) -> str:
    """Lines with intervals; ``faint`` ones (single seeds) behind them. ``x_ticks`` names the places of a categorical x."""

    def draw(axes: Axes) -> None:
        for line, place in zip(drawn, places, strict=True):
            for single in line.faint:
                if single:
                    axes.plot(*zip(*single, strict=True), color=_series(place), alpha=0.25, linewidth=0.8, zorder=2)
            _dots(axes, line, mark(place), connected=True, markers=markers)
        if x_ticks is not None:
            axes.set_xticks(range(len(x_ticks)), [plain(tick, 16) for tick in x_ticks])

    return _svg(draw, x_label, y_label, log, salt)


def _dots(axes: Axes, line: Line, look: Mark, *, connected: bool, markers: bool = True) -> None:
    dots = [dot for dot in line.dots if math.isfinite(dot.x) and math.isfinite(dot.y)]
    color = f"#fe010{look.color}"
    options: dict[str, Any] = {"color": color, "zorder": 3, "linewidth": 1.6 if connected else 0}
    if markers or len(dots) == 1:
        options |= {"marker": look.marker, "markersize": 5.5 if connected else 7, "markeredgewidth": 0}
    axes.plot([dot.x for dot in dots], [dot.y for dot in dots], **options)
    whiskers: dict[str, Any] = {"color": color, "alpha": 0.65, "linewidth": 1.1, "zorder": 2}
    for dot in dots:
        if dot.y_low is not None and dot.y_high is not None:
            axes.plot([dot.x, dot.x], [dot.y_low, dot.y_high], **whiskers)
        if dot.x_low is not None and dot.x_high is not None:
            axes.plot([dot.x_low, dot.x_high], [dot.y, dot.y], **whiskers)


def _series(place: int) -> str:
    return f"#fe010{place % COLORS}"


def _svg(draw: Callable[[Axes], None], x_label: str, y_label: str, log: str, salt: str) -> str:
    with _style(salt):
        figure = Figure(figsize=_SIZE)
        # fixed margins: fitting them to the labels would double the time of a plot
        axes = figure.add_axes(_MARGINS)
        for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            if name in log:
                # matplotlib's own labels of logarithmic axes are mathtext, which is off: texts come from anyone
                set_scale = axes.set_xscale if name == "x" else axes.set_yscale
                set_scale("log")
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axis.set_minor_formatter(NullFormatter())
        draw(axes)
        axes.set_xlabel(plain(x_label))
        axes.set_ylabel(plain(y_label))
        axes.margins(0.06)
        text = StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _themed(text.getvalue(), f"{y_label} against {x_label}")


@contextmanager
def _style(salt: str) -> Iterator[None]:
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "text.parse_math": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": _GRID,
        "axes.labelcolor": _FOREGROUND,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.formatter.use_mathtext": False,
        "axes.unicode_minus": True,
        "grid.color": _GRID,
        "grid.linewidth": 0.6,
        "text.color": _FOREGROUND,
        "xtick.color": _GRID,
        "ytick.color": _GRID,
        "xtick.labelcolor": _FOREGROUND,
        "ytick.labelcolor": _FOREGROUND,
        "font.size": 10,
        "path.simplify": True,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", category=UserWarning, module="matplotlib")
        yield


def _themed(svg: str, description: str) -> str:
    """The ``<svg>`` element alone, with CSS variables for colours, without fixed size and ids that repeat."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r' id="(?:figure|axes|patch|text|line2d|matplotlib\.axis|xtick|ytick|[A-Za-z]+)_\d+"', "", svg)
    svg = re.sub(
        r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img" aria-label="PLOT">', svg, count=1
    )
    svg = svg.replace("PLOT", _attribute(plain(description, 120)), 1)
    svg = svg.replace('xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace("xlink:href", "href")
    svg = svg.replace(_FOREGROUND, "var(--fg)").replace(_GRID, "var(--line)")
    return re.sub(r"#fe010(\d)", r"var(--s\1)", svg)


def _attribute(text: str) -> str:
    for character, entity in (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return text
