"""Pictures of a run: where the privacy budget went, and what accuracy each epsilon buys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from icml26_plugin_ihm.report import PrivacyReport
from icml26_plugin_ihm.tradeoff import Tradeoff

# A palette that stays apart for colour-blind readers (Okabe and Ito).
_COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
_MARKERS = ("o", "s", "^", "D", "v", "P")


def draw_budget(report: PrivacyReport, path: Path) -> None:
    """Two bars, epsilon and delta, each split by mechanism; `path` ends in .svg or .png."""
    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    axes = figure.subplots(2, 1)
    _stack(axes[0], report, "epsilon", report.epsilon, "ε")
    _stack(axes[1], report, "delta", report.delta, "δ")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    note = "  (bounds read off the data: not covered)" if report.bounds_from_data else ""
    figure.suptitle(f"Privacy budget of {report.mechanism}, {report.accounting} accounting{note}", fontsize=11)
    figure.savefig(path)


def _stack(axes: Axes, report: PrivacyReport, attribute: str, total: float, symbol: str) -> None:
    left = 0.0
    for i, spend in enumerate(report.spends):
        share = getattr(spend, attribute) / total
        axes.barh([0], [share], left=left, color=_COLOURS[i % len(_COLOURS)], label=spend.name, edgecolor="white")
        if share > 0.06:
            value = f"{getattr(spend, attribute):.3g}"
            axes.text(left + share / 2, 0, value, ha="center", va="center", color="white", fontsize=9)
        left += share
    axes.set_xlim(0, max(1.0, left))
    axes.set_yticks([0], [f"{symbol} = {total:.3g}"])
    axes.set_xticks([])
    for side in axes.spines.values():
        side.set_visible(False)


def draw_tradeoff(tradeoff: Tradeoff, path: Path) -> None:
    """Mean excess risk of every method against epsilon, with 95 % intervals over fits, and the null model as a line."""
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    axes = figure.subplots()
    for i, curve in enumerate(tradeoff.curves):
        half = 1.96 * curve.standard_error
        # An interval that reaches zero has no lower end on a logarithmic axis.
        below = np.minimum(half, 0.95 * np.maximum(curve.mean, 0.0))
        axes.errorbar(
            tradeoff.epsilons,
            curve.mean,
            yerr=None if np.isnan(half).any() else np.vstack([below, half]),
            color=_COLOURS[i % len(_COLOURS)],
            marker=_MARKERS[i % len(_MARKERS)],
            markersize=4,
            capsize=2,
            linewidth=1.4,
            label=curve.name,
        )
    axes.axhline(tradeoff.null, color="black", linestyle=":", linewidth=1.2, label="null model (predicts 0)")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("ε")
    axes.set_ylabel("excess risk on the training rows (squared units of y)")
    axes.set_title(f"Mean of {tradeoff.repeats} fits, 95 % intervals", fontsize=11)
    axes.grid(True, which="major", alpha=0.25)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path)
