"""Pictures of a run: how often features fire, where they lie, which of them died, and the spectrum of the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from icml26 import Problem, RunContext
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from icml26_plugin_subspace_sae.metrics import active_basis, stats_of
from icml26_plugin_subspace_sae.rank import Spectrum, blocks_of, covariance_of, effective_rank, variance_directions
from icml26_plugin_subspace_sae.scores import StreamStats, subspace_shares
from icml26_plugin_subspace_sae.task import Inputs, Output, Truth

# Colour-blind safe (Okabe and Ito).
ALIVE, DEAD, START, LINE = "#0072B2", "#D55E00", "#999999", "#444444"
# More curves than this have their legend beside the axes.
IN_AXES = 6
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")


def save(figure: Figure, path: Path) -> None:
    """Write ``figure`` to ``path`` in the format of its suffix; a reader never sees half a file."""
    FigureCanvasAgg(figure)
    part = path.with_name(path.name + ".part")
    figure.savefig(part, dpi=120, format=path.suffix.removeprefix("."))
    part.replace(path)


def draw_run(problem: Problem[Inputs, Truth], output: Output, ctx: RunContext) -> None:
    """All pictures of a run as artifacts ``features.png`` and ``spectrum.png``."""
    truth = problem.truth
    features_figure(output, truth, ctx.artifact("features.png"))
    rows = truth.activations if truth.targets is None else truth.targets
    spectrum = covariance_of(blocks_of(rows)).spectrum()
    spectrum_figure([spectrum], [problem.inputs.name], ctx.artifact("spectrum.png"))


def features_figure(output: Output, truth: Truth, path: Path) -> None:
    """Histogram of firing rates, and of the share of each feature in the active subspace before and after training."""
    stats = stats_of(output, truth)
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    rate_axis, share_axis = figure.subplots(1, 2)
    _rates(rate_axis, stats)
    _shares(share_axis, output, active_basis(truth), stats.fired > 0)
    save(figure, path)


def _rates(axis: Axes, stats: StreamStats) -> None:
    rates = stats.rates
    alive = rates[rates > 0]
    floor = 1.0 / stats.rows
    edges = np.geomspace(floor, 1.0, 40)
    axis.hist(alive, bins=edges.tolist(), color=ALIVE)
    n_dead = int((rates == 0).sum())
    if n_dead:
        # A bar of its own left of the axis's log scale: a rate of zero has no place on it.
        axis.bar(floor / 2.2, n_dead, width=floor / 2.2, color=DEAD)
        axis.annotate(f"{n_dead} dead", (floor / 2.2, n_dead), ha="left", va="bottom", color=DEAD, fontsize=9)
    axis.set_xscale("log")
    axis.set_xlim(floor / 4, 1)
    axis.margins(y=0.12)
    axis.set_xlabel(f"share of {stats.rows:,} held-out rows in which a feature fires")
    axis.set_ylabel("features")
    axis.set_title(f"Firing rates: {n_dead / len(rates):.1%} of {len(rates):,} features are dead", fontsize=10)


def _shares(axis: Axes, output: Output, basis: np.ndarray, alive: np.ndarray) -> None:
    edges = np.linspace(0, 1, 51).tolist()
    shares = subspace_shares(output.sae.decoder, basis)
    axis.hist(
        [shares[alive], shares[~alive]],
        bins=edges,
        stacked=True,
        color=[ALIVE, DEAD],
        label=["end, alive", "end, dead"],
    )
    if output.initial_decoder is not None:
        initial = subspace_shares(output.initial_decoder, basis)
        axis.hist(initial, bins=edges, histtype="step", color=LINE, linewidth=1.4, label="start, all")
    axis.axvline(basis.shape[1] / len(basis), color=START, linestyle=":", label="random direction")
    axis.set_xlabel(f"share of squared length in the {basis.shape[1]} active of {len(basis)} dimensions")
    axis.set_ylabel("features")
    axis.set_title("Where features lie", fontsize=10)
    axis.legend(fontsize=8, frameon=False)


def spectrum_figure(spectra: Sequence[Spectrum], names: Sequence[str], path: Path) -> None:
    """Singular values relative to the largest, and the variance that the leading directions hold; effective ranks are ticked."""
    beside = len(spectra) > IN_AXES
    figure = Figure(figsize=(16, 4.4) if beside else (10, 3.8), layout="constrained")
    value_axis, variance_axis = figure.subplots(1, 2)
    for index, (spectrum, name) in enumerate(zip(spectra, names, strict=True)):
        color = CYCLE[index % len(CYCLE)]
        values = spectrum.singular_values
        place = np.arange(1, len(values) + 1) / len(values)
        rank = effective_rank(values) / len(values)
        held = np.cumsum(values**2) / (values**2).sum()
        positive = values > 0
        style = ("-", "--", "-.")[index // len(CYCLE) % 3]
        value_axis.plot(
            place[positive], values[positive] / values[0], style, color=color, label=f"{name}: {rank:.2f} d"
        )
        value_axis.axvline(rank, color=color, linestyle=":", linewidth=1)
        variance_axis.plot(
            place, held, style, color=color, label=f"{name}: {variance_directions(values) / len(values):.2f} d"
        )
    value_axis.set_yscale("log")
    value_axis.set_ylabel("singular value / largest")
    value_axis.set_title("Spectrum; dotted: effective rank", fontsize=10)
    variance_axis.axhline(0.99, color=START, linewidth=0.8)
    variance_axis.set_ylabel("share of the variance held")
    variance_axis.set_title("Directions for 99 % of the variance", fontsize=10)
    for axis in (value_axis, variance_axis):
        axis.set_xlabel("direction / d")
        axis.set_xlim(0, 1)
        place_of_legend = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if beside else {}
        axis.legend(fontsize=8, frameon=False, **place_of_legend)
    save(figure, path)
