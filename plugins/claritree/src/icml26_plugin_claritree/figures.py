"""Figures of a run: the tree, what the lookahead saw, and predictions against truth."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from icml26 import Problem, RunContext
from icml26.tasks.tabular import Inputs, Truth
from numpy.typing import NDArray

from icml26_plugin_claritree.cuts import FirstCuts, first_cuts
from icml26_plugin_claritree.estimator import CLARITreeRegressor

FloatArray = NDArray[np.float64]

MOST_POINTS = 2000  # of a scatter plot
MOST_WORK = 2_000_000  # rows times columns above which the first cuts are not scored a second time
COLORS = ("#3b6fb6", "#d1793f", "#4f9d69", "#a85a9c", "#8a6d3b", "#5b6270", "#b64a4a", "#3f9aa8")
STYLE = 'font-family="ui-sans-serif, Helvetica, Arial, sans-serif" font-size="11"'


def write_figures(estimator: CLARITreeRegressor, problem: Problem[Inputs, Truth], ctx: RunContext) -> None:
    """Write tree.svg, tree.txt, tree.json, predictions.svg and (for the lookahead) first-cuts.svg."""
    names = problem.inputs.feature_names
    estimator.export_svg(ctx.artifact("tree.svg"), names)
    ctx.artifact("tree.txt").write_text(estimator.export_text(names), encoding="utf-8")
    estimator.to_json(ctx.artifact("tree.json"))
    truth = problem.truth
    predicted, leaf = estimator.predict(truth.X_test), estimator.apply(truth.X_test)
    ctx.artifact("predictions.svg").write_text(scatter_svg(truth.y_test, predicted, leaf), encoding="utf-8")
    small = problem.inputs.X.size <= MOST_WORK
    if estimator.search == "lookahead" and estimator.depth > 0 and estimator.tss_ > 0 and small:
        cuts = first_cuts(estimator, problem.inputs.X, problem.inputs.y)
        if cuts.column.size:
            ctx.artifact("first-cuts.svg").write_text(first_cuts_svg(cuts, names), encoding="utf-8")


def scatter_svg(y: FloatArray, predicted: FloatArray, leaf: NDArray[np.int64]) -> str:
    """Predictions against true values of the test rows, coloured by leaf; evenly thinned above `MOST_POINTS` rows."""
    shown = np.unique(np.linspace(0, y.size - 1, min(y.size, MOST_POINTS)).round().astype(int))
    low = float(min(y.min(), predicted.min()))
    high = float(max(y.max(), predicted.max()))
    span = (high - low) or 1.0
    left, top, side = 60, 24, 360

    def across(value: float) -> float:
        return left + side * (value - low) / span

    def down(value: float) -> float:
        return top + side * (high - value) / span

    parts = _axes(left, top, side, side, "true value", "prediction", (low, high), (low, high))
    parts.append(
        f'<line x1="{across(low):.1f}" y1="{down(low):.1f}" x2="{across(high):.1f}" y2="{down(high):.1f}" stroke="#9aa0aa"/>'
    )
    for i in shown:
        color = COLORS[int(leaf[i]) % len(COLORS)]
        parts.append(
            f'<circle cx="{across(y[i]):.1f}" cy="{down(predicted[i]):.1f}" r="2" fill="{color}" fill-opacity="0.55"/>'
        )
    return _document(left + side + 20, top + side + 44, "Predictions on the test rows, coloured by leaf", parts)


def first_cuts_svg(cuts: FirstCuts, names: Sequence[str]) -> str:
    """A panel a column: objective after one step and after greedy completion, by threshold. The least points are ringed."""
    columns = np.unique(cuts.column)
    width, height, gap, per_row, top = 190, 120, 56, 4, 48
    high = float(max(cuts.leaf, cuts.one_step.max(), cuts.completed.max())) or 1.0
    n_rows = -(-columns.size // per_row)
    parts = [
        f'<text x="54" y="20" fill="{COLORS[0]}">one step (greedy looks at this)</text>',
        f'<text x="254" y="20" fill="{COLORS[1]}">completed to full depth (the lookahead looks at this)</text>',
    ]
    ringed = {0: int(np.argmin(cuts.one_step)), 1: int(np.argmin(cuts.completed))}
    for panel, column in enumerate(columns):
        x0 = 54 + (panel % per_row) * (width + gap)
        y0 = top + (panel // per_row) * (height + gap)
        at = np.flatnonzero(cuts.column == column)
        lows, highs = float(cuts.threshold[at].min()), float(cuts.threshold[at].max())
        parts += _axes(
            x0, y0, width, height, names[column], "" if panel % per_row else "objective / TSS", (lows, highs), (0, high)
        )
        for series, values in enumerate((cuts.one_step, cuts.completed)):
            xs = x0 + width * (cuts.threshold[at] - lows) / ((highs - lows) or 1.0)
            ys = y0 + height * (1 - values[at] / high)
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
            parts.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[series]}" stroke-width="1.5"/>')
            for i, x, y in zip(at, xs, ys, strict=True):
                best = i == ringed[series]
                parts.append(
                    f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{5 if best else 1.8}" fill="{"none" if best else COLORS[series]}" '
                    f'stroke="{COLORS[series]}"/>'
                )
    shown = min(columns.size, per_row)
    return _document(54 + shown * (width + gap), top + n_rows * (height + gap), "Objective of every first cut", parts)


def _axes(
    x: float,
    y: float,
    width: float,
    height: float,
    across: str,
    down: str,
    xs: tuple[float, float],
    ys: tuple[float, float],
) -> list[str]:
    """A frame with the ends of both axes and their titles."""
    bottom = y + height
    middle = y + height / 2
    return [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="none" stroke="#c4c8cf"/>',
        f'<text x="{x}" y="{bottom + 14}" fill="#5b6270">{xs[0]:.3g}</text>',
        f'<text x="{x + width}" y="{bottom + 14}" text-anchor="end" fill="#5b6270">{xs[1]:.3g}</text>',
        f'<text x="{x + width / 2}" y="{bottom + 28}" text-anchor="middle" fill="#1f2430">{escape(across)}</text>',
        f'<text x="{x - 4}" y="{bottom}" text-anchor="end" fill="#5b6270">{ys[0]:.3g}</text>',
        f'<text x="{x - 4}" y="{y + 10}" text-anchor="end" fill="#5b6270">{ys[1]:.3g}</text>',
        f'<text transform="translate({x - 40},{middle}) rotate(-90)" text-anchor="middle" fill="#1f2430">{escape(down)}</text>',
    ]


def _document(width: float, height: float, title: str, parts: Sequence[Any]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" {STYLE}><title>{escape(title)}</title><rect width="100%" height="100%" fill="#ffffff"/>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"
