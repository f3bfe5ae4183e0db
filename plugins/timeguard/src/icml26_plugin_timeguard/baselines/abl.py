"""Anti-Backdoor Learning (Li et al., NeurIPS 2021), per window: isolate what is learnt first, then unlearn it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from icml26_plugin_timeguard.criteria import quantile_count
from icml26_plugin_timeguard.fitted import FittedForecaster
from icml26_plugin_timeguard.session import Session
from icml26_plugin_timeguard.settings import Log, Progress, forget, silent
from icml26_plugin_timeguard.trainer import Trainer


@dataclass(frozen=True)
class AblSettings:
    """``warmup_epochs`` of local gradient ascent (loss below the ``floor_quantile`` of recent window losses is pushed up), the
    ``isolation`` share with the lowest loss set apart, normal training on the rest, ``unlearn_epochs`` of ascent on it.
    """

    warmup_epochs: int = 20
    floor_quantile: float = 0.1
    isolation: float = 0.01
    unlearn_epochs: int = 5
    unlearn_lr_factor: float = 0.1


class _Floor:
    """sign(l - g) l, with g an exponentially averaged quantile of the batches' window losses."""

    def __init__(self, quantile: float, momentum: float = 0.9) -> None:
        self.quantile, self.momentum = quantile, momentum
        self.value: torch.Tensor | None = None

    def __call__(self, losses: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        windows = losses.mean(dim=1)
        now = torch.quantile(windows.detach(), self.quantile)
        self.value = now if self.value is None else self.momentum * self.value + (1 - self.momentum) * now
        return (torch.sign(windows.detach() - self.value) * windows).mean()


def anti_backdoor_learning(
    session: Session, settings: AblSettings, *, progress: Progress = silent, log: Log = forget
) -> tuple[FittedForecaster, np.ndarray]:
    """The forecaster after unlearning, and the windows that were not isolated as a pool (C, N)."""
    trainer = session.trainer()
    floor = _Floor(settings.floor_quantile)
    for epoch in progress(range(settings.warmup_epochs), "gradient flooring"):
        log("train-loss", trainer.epoch(batch_loss=floor), epoch)
    losses = trainer.unit_losses().mean(axis=0)
    isolated = np.argsort(losses, kind="stable")[: max(1, quantile_count(len(losses), settings.isolation))]
    keep = np.ones(len(losses), dtype=bool)
    keep[isolated] = False
    pool = np.broadcast_to(keep, (session.train.shape[1], len(keep))).copy()
    keeper = session.keeper(trainer)
    rest = max(1, session.training.epochs - settings.warmup_epochs - settings.unlearn_epochs)
    for epoch in progress(range(rest), "training on the rest"):
        log("train-loss", trainer.epoch(pool), settings.warmup_epochs + epoch)
        keeper.observe()
    keeper.finish()
    unlearn(trainer, pool, isolated, session.training.lr * settings.unlearn_lr_factor, settings.unlearn_epochs)
    return session.fitted(trainer.model), pool


def unlearn(trainer: Trainer, pool: np.ndarray, isolated: np.ndarray, lr: float, epochs: int) -> None:
    """Epochs of descent on the pool and ascent on the isolated windows in one loss, batch by batch."""
    windows = trainer.windows
    apart = torch.zeros(len(windows), dtype=torch.bool, device=windows.history.device)
    apart[torch.from_numpy(isolated).to(apart.device)] = True

    def signed(losses: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        sign = torch.where(apart[index], -1.0, 1.0).to(losses.dtype)
        return (sign[:, None] * losses).mean()

    trainer.reset_optimizer(lr)
    for _ in range(epochs):
        trainer.epoch(batch_loss=signed)
