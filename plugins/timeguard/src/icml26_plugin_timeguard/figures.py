"""Pictures of a run: what the forecaster does with a trigger, and which units were thrown out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from icml26 import Problem
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from icml26_plugin_timeguard.task import Attack, Inputs, Output, Pool, Truth
from icml26_plugin_timeguard.windows import n_windows, sliding

# Colour-blind safe (Okabe and Ito).
DATA, FORECAST, TRIGGER, TARGET = "#444444", "#0072B2", "#D55E00", "#CC79A7"
N_PANELS = 3
MAX_COLUMNS = 1200


def _save(figure: Figure, path: Path) -> None:
    FigureCanvasAgg(figure)
    part = path.with_name(path.name + ".part")
    figure.savefig(part, dpi=120, format=path.suffix.removeprefix("."))
    part.replace(path)


def forecast_figure(problem: Problem[Inputs, Truth], output: Output, path: Path) -> None:
    """One test window on up to three channels: history and future, forecasts with and without the trigger, the target.

    With an attack these are attacked channels; without one, the first channels and the plain forecast.
    """
    truth = problem.truth
    windows = sliding(truth.test, truth.seq_len + truth.pred_len)
    count = n_windows(len(truth.test), truth.seq_len, truth.pred_len)
    # The middle of the test part: arbitrary, fixed, and never chosen by how the forecast looks.
    index = count // 2
    window = np.array(windows[index])
    channels = np.arange(window.shape[1]) if truth.attack is None else truth.attack.channels
    channels = channels[:N_PANELS]
    history = window[None, : truth.seq_len]
    clean = output.forecaster.predict(history)[0]
    figure = Figure(figsize=(4.2 * len(channels), 3.6), layout="constrained")
    axes = figure.subplots(1, len(channels), squeeze=False)[0]
    for position, (axis, channel) in enumerate(zip(axes, channels.tolist(), strict=True)):
        _panel(axis, window[:, channel], clean[:, channel], truth.seq_len)
        if truth.attack is not None:
            stamped = truth.attack.triggered(history, slice(index, index + 1))
            attacked = output.forecaster.predict(stamped)[0]
            _attack_panel(
                axis, truth.attack, index, position, stamped[0, :, channel], attacked[:, channel], truth.seq_len
            )
        axis.set_title(problem.inputs.channels[channel])
        axis.set_xlabel("step relative to the forecast's start")
    axes[0].set_ylabel("value (units of the data)")
    figure.legend(handles=_legend(truth.attack is not None), loc="outside lower center", ncols=3, frameon=False)
    _save(figure, path)


def _panel(axis: Axes, values: np.ndarray, forecast: np.ndarray, seq_len: int) -> None:
    steps = np.arange(len(values)) - seq_len
    axis.plot(steps, values, color=DATA, linewidth=1.2)
    axis.plot(np.arange(len(forecast)), forecast, color=FORECAST, linewidth=1.5)
    axis.axvline(-0.5, color="#bbbbbb", linewidth=0.8)


def _attack_panel(
    axis: Axes, attack: Attack, index: int, position: int, stamped: np.ndarray, forecast: np.ndarray, seq_len: int
) -> None:
    width = attack.trigger.shape[1]
    axis.axvspan(-width - 0.5, -0.5, color=TRIGGER, alpha=0.12, linewidth=0)
    axis.plot(np.arange(-width, 0), stamped[seq_len - width :], color=TRIGGER, marker=".", linewidth=1.2)
    axis.plot(np.arange(len(forecast)), forecast, color=TRIGGER, linewidth=1.5, linestyle="--")
    target = attack.target[index, :, position]
    axis.plot(np.arange(len(target)), target, color=TARGET, marker="x", linestyle=":", linewidth=1.2)


def _legend(attacked: bool) -> list[Line2D]:
    entries: list[tuple[str, dict[str, Any]]] = [
        ("data", {"color": DATA}),
        ("forecast of the clean history" if attacked else "forecast", {"color": FORECAST}),
    ]
    if attacked:
        entries += [
            ("trigger written into the history", {"color": TRIGGER, "marker": "."}),
            ("forecast of the triggered history", {"color": TRIGGER, "linestyle": "--"}),
            ("what the attacker wants", {"color": TARGET, "linestyle": ":", "marker": "x"}),
        ]
    return [Line2D([], [], label=label, **style) for label, style in entries]


def pool_figure(problem: Problem[Inputs, Truth], pool: Pool, path: Path) -> None:
    """How often each training unit was thrown out, channels down and time across.

    With a known attack: injections are ticked above, and below stands how the share thrown out moves as a window passes over
    an injection, in attacked and in other channels. Without: the share of channels thrown out in the end.
    """
    attack = problem.truth.attack
    share = pool.rejections / max(pool.rounds, 1)
    n_channels, n = share.shape
    height = float(np.clip(0.22 * n_channels, 1.5, 8.0))
    figure = Figure(figsize=(11, height + 3.6), layout="constrained")
    image_axis, line_axis = figure.subplots(2, 1, height_ratios=(height, 2.2))
    image = image_axis.imshow(
        _shrink(share), aspect="auto", cmap="magma_r", vmin=0, vmax=1, interpolation="nearest",
        extent=(-0.5, n - 0.5, n_channels - 0.5, -0.5),
    )  # fmt: skip
    figure.colorbar(image, ax=image_axis, label="share of rounds\nleft out", pad=0.01)
    if n_channels <= 40:
        image_axis.set_yticks(range(n_channels), problem.inputs.channels, fontsize=8)
    image_axis.set_xlabel("training window (its first step)")
    if attack is None:
        image_axis.set_title("Units thrown out by the pool")
        line_axis.plot((~pool.final).mean(axis=0), color=DATA, linewidth=0.7)
        line_axis.set_xlabel("training window (its first step)")
        line_axis.set_ylabel("share of channels\nout in the end")
        line_axis.set_xlim(-0.5, n - 0.5)
    else:
        image_axis.set_title(
            "Units thrown out by the pool; attacked channels in orange, injections ticked above", pad=22
        )
        first = attack.starts + attack.trigger.shape[1] - problem.inputs.seq_len
        image_axis.vlines(first, -1.3, -0.6, color=TRIGGER, linewidth=0.9, clip_on=False)
        image_axis.set_ylim(n_channels - 0.5, -0.5)
        for channel, label in enumerate(image_axis.get_yticklabels()):
            if channel in attack.channels:
                label.set_color(TRIGGER)
        _around_injections(line_axis, attack, share, first)
    _save(figure, path)


def _around_injections(axis: Axes, attack: Attack, share: np.ndarray, first: np.ndarray, reach: int = 24) -> None:
    """Mean share of rounds left out, of windows up to ``reach`` before and after those whose future is the pattern."""
    offsets = np.arange(-reach, reach + 1)
    windows = first[:, None] + offsets
    inside = (windows >= 0) & (windows < share.shape[1])
    clipped = windows.clip(0, share.shape[1] - 1)
    attacked = np.zeros(len(share), dtype=bool)
    attacked[attack.channels] = True
    count = np.maximum(inside.sum(axis=0), 1)
    for chosen, color, label in ((attacked, TRIGGER, "attacked channels"), (~attacked, DATA, "other channels")):
        if chosen.any():
            mean = np.where(inside, share[chosen].mean(axis=0)[clipped], 0.0).sum(axis=0) / count
            axis.plot(offsets, mean, color=color, linewidth=1.5, label=label)
    axis.axvspan(-0.5, len(attack.pattern) - 0.5, color=TRIGGER, alpha=0.12, linewidth=0, label="poisoned windows")
    axis.set_ylim(0, 1)
    axis.set_xlabel("window relative to the one whose future starts with the pattern")
    axis.set_ylabel("share of rounds\nleft out")
    axis.legend(loc="upper right", fontsize=8, framealpha=0.9)


def _shrink(share: np.ndarray) -> np.ndarray:
    """Average neighbouring windows so that the picture has at most MAX_COLUMNS columns."""
    factor = -(-share.shape[1] // MAX_COLUMNS)
    if factor == 1:
        return share
    edges = np.arange(0, share.shape[1], factor)
    counts = np.diff(np.append(edges, share.shape[1]))
    return np.add.reduceat(share, edges, axis=1) / counts
