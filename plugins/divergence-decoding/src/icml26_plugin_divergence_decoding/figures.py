"""Pictures of a run: what is forgotten against what is kept, over the steering strength; sampled images before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from icml26_plugin_divergence_decoding.evaluation import Rows
from icml26_plugin_divergence_decoding.task import Row, Truth

if TYPE_CHECKING:
    from icml26_plugin_divergence_decoding.model import DivergenceModel

ALPHAS = (0.0, 0.25, 0.5, 0.8, 1.0, 1.25, 1.6, 2.0)
#: Rows of a kind that a point of the curve asks about: enough for a picture, not for a table.
_ROWS = 96


class Point(NamedTuple):
    """How much is still known of what was to be forgotten, and of what was to be kept, both 0 to 1; ``note`` stands beside."""

    forget: float
    retain: float
    note: str


def known_share(model: Any, rows: Sequence[Row], truth: Truth) -> float:
    """Share of greedy answers with the right keyword, where keywords are known; else the mean probability of a token."""
    step = max(1, len(rows) // _ROWS)
    judged = Rows(model, rows[::step], truth.tokenizer, truth.format)
    if all(row.keyword is not None for row in judged.questions) and judged.questions:
        return judged.keyword_share
    return judged.probability


def point(model: Any, truth: Truth, note: str) -> Point:
    """A model's place in the picture."""
    return Point(known_share(model, truth.forget, truth), known_share(model, truth.retain, truth), note)


def sweep(model: DivergenceModel, truth: Truth, alphas: Sequence[float] = ALPHAS) -> list[Point]:
    """The linear form's curve over ``alphas`` with the auxiliaries of ``model``; they are not trained again."""
    return [
        point(model.with_fusion(replace(model.fusion, alpha=alpha, rank_k=0)), truth, f"{alpha:g}") for alpha in alphas
    ]


def tradeoff_figure(path: Path, curves: Mapping[str, Sequence[Point]], marks: Mapping[str, Point], judged: str) -> None:
    """Write the picture (format by suffix): curves over alpha, single models as marks, the good corner at top left."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for label, points in curves.items():
        (line,) = axes.plot([p.forget for p in points], [p.retain for p in points], "o-", ms=4, lw=1.6, label=label)
        for p in points:
            axes.annotate(p.note, (p.forget, p.retain), (4, -10), textcoords="offset points", size=7, color="#444")
        line.set_zorder(2)
    for at, ((label, p), shape) in enumerate(zip(marks.items(), "s^DvP*X", strict=False)):
        # Smaller and smaller, so that none hides behind another in the same place.
        axes.plot([p.forget], [p.retain], shape, ms=max(5, 13 - 3 * at), label=label, mec="white", zorder=3 + at)
    axes.set_xlabel(f"still known of what was to be forgotten ({judged})")
    axes.set_ylabel(f"still known of what was to be kept ({judged})")
    # Shares span 0 to 1; probabilities of a token may all be small, and would lie in one corner.
    largest = max(
        (max(p.forget, p.retain) for points in (*curves.values(), marks.values()) for p in points), default=1.0
    )
    limit = 1.0 if not 0 < largest < 0.4 else 1.25 * largest
    axes.set_xlim(-0.03 * limit, 1.03 * limit)
    axes.set_ylim(-0.03 * limit, 1.03 * limit)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", fontsize=8)
    axes.set_title("Forgetting against keeping; numbers are the strength alpha", fontsize=10)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)


def image_figure(path: Path, groups: Mapping[str, np.ndarray]) -> None:
    """Write rows of images (n, 64), levels 0 to 16, one group a row."""
    from matplotlib.figure import Figure

    columns = max(len(images) for images in groups.values())
    figure = Figure(figsize=(0.62 * columns + 1.2, 0.75 * len(groups) + 0.3), layout="constrained")
    grid = figure.subplots(len(groups), columns, squeeze=False)
    for axes, (label, images) in zip(grid, groups.items(), strict=True):
        for place, image in zip(axes, images, strict=False):
            place.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16, interpolation="nearest")
        for place in axes:
            place.set_xticks([])
            place.set_yticks([])
        axes[0].set_ylabel(label, rotation=0, ha="right", va="center", size=9)
    figure.savefig(path, dpi=150)
