"""Fine-Pruning (Liu et al., RAID 2018): prune the units that clean data leaves silent, then fine-tune on clean windows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from icml26_plugin_timeguard.baselines.features import last_linear, penultimate
from icml26_plugin_timeguard.fitted import FittedForecaster
from icml26_plugin_timeguard.session import Session, window_mae
from icml26_plugin_timeguard.settings import Log, Progress, forget, silent
from icml26_plugin_timeguard.task import CleanWindows
from icml26_plugin_timeguard.timeguard import train_plainly
from icml26_plugin_timeguard.trainer import Trainer
from icml26_plugin_timeguard.windows import WindowSet

FINE_TUNING = 5


@dataclass(frozen=True)
class FinePruningSettings:
    """Pruning stops before the validation MAE exceeds ``tolerance`` times its start; then ``epochs`` on clean windows."""

    tolerance: float = 1.05
    epochs: int = 10
    lr_factor: float = 1.0


def fine_pruning(
    session: Session,
    clean: CleanWindows,
    settings: FinePruningSettings,
    *,
    progress: Progress = silent,
    log: Log = forget,
) -> tuple[FittedForecaster, int]:
    """The pruned and fine-tuned forecaster, and how many units were pruned."""
    trained = train_plainly(session, progress=progress, log=log)
    windows = session.window_set(clean.history, clean.future)
    trainer = Trainer(trained.module, windows, session.optimisation, seed=session.seed, stream=FINE_TUNING)
    validation = windows if session.val is None else session.windows(session.val)
    pruned = prune(trainer, windows, validation, settings.tolerance)
    layer = last_linear(trainer.model, windows.history)
    trainer.reset_optimizer(session.training.lr * settings.lr_factor)
    for _ in progress(range(settings.epochs), "fine-tuning"):
        trainer.epoch()
        # Pruned units stay pruned: fine-tuning would else grow the backdoor's path back from any gradient it gets.
        with torch.no_grad():
            layer.weight[:, pruned] = 0.0
    return session.fitted(trainer.model), int(pruned.sum())


@torch.no_grad()
def prune(trainer: Trainer, clean: WindowSet, validation: WindowSet, tolerance: float) -> torch.Tensor:
    """Zero the last layer's weights from its least active inputs, one after another; returns which (features,) bool."""
    model = trainer.model
    features = penultimate(model, clean)
    activity = features.abs().flatten(0, -2).mean(dim=0)
    layer = last_linear(model, clean.history)
    limit = tolerance * window_mae(trainer.forecast, model, validation)
    pruned = torch.zeros(len(activity), dtype=torch.bool, device=activity.device)
    for unit in torch.argsort(activity, stable=True).tolist():
        kept = layer.weight[:, unit].clone()
        layer.weight[:, unit] = 0.0
        if window_mae(trainer.forecast, model, validation) > limit:
            layer.weight[:, unit] = kept
            break
        pruned[unit] = True
    return pruned
