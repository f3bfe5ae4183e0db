"""Proactive Defensive Backdoor (Wei et al., NeurIPS 2024), carried over to forecasting.

The defender plants a backdoor of its own on trusted windows: under a strong stamp the target is shifted by a known amount.
At inference every history is stamped and the shift taken back; the defender's trigger is to drown the attacker's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from icml26_plugin_timeguard.fitted import FittedForecaster
from icml26_plugin_timeguard.loss import unit_loss
from icml26_plugin_timeguard.session import Session
from icml26_plugin_timeguard.settings import Log, Progress, forget, silent
from icml26_plugin_timeguard.task import CleanWindows
from icml26_plugin_timeguard.trainer import stream_seed
from icml26_plugin_timeguard.windows import WindowSet, sliding

CLEAN = 6


@dataclass(frozen=True)
class PdbSettings:
    """``offset`` (deviations) on the last ``stamp_steps`` steps of all channels means: the target is ``shift`` deviations higher.

    ``weight`` of the stamped clean windows against the untrusted ones; as many of each are drawn in a batch.
    """

    offset: float = 3.0
    stamp_steps: int = 2
    shift: float = 1.0
    weight: float = 1.0


def defender_stamp(settings: PdbSettings, n_channels: int) -> np.ndarray:
    """What is added to the end of a normalised history, (stamp steps, C); alternating signs, so that no level change matches."""
    signs = np.where(np.arange(settings.stamp_steps) % 2 == 0, 1.0, -1.0)
    return settings.offset * np.repeat(signs[:, None], n_channels, axis=1)


def proactive_backdoor(
    session: Session, clean: CleanWindows, settings: PdbSettings, *, progress: Progress = silent, log: Log = forget
) -> FittedForecaster:
    """Train on the untrusted windows and, in every batch, on stamped trusted ones."""
    trainer = session.trainer()
    stamp = defender_stamp(settings, session.train.shape[1])
    stamped = _stamped(session, clean, stamp, settings.shift)
    keeper = session.keeper(trainer, _stamped_validation(session, stamp, settings.shift))
    for epoch in progress(range(session.training.epochs), "training"):
        generator = torch.Generator().manual_seed(stream_seed(session.seed, CLEAN, epoch))

        def mixed(losses: torch.Tensor, index: torch.Tensor, draw: torch.Generator = generator) -> torch.Tensor:
            chosen = torch.randint(len(stamped), (len(index),), generator=draw).to(index.device)
            own = unit_loss(trainer.forecast(stamped.history[chosen]), stamped.future[chosen])
            return losses.mean() + settings.weight * own.mean()

        log("train-loss", trainer.epoch(batch_loss=mixed), epoch)
        keeper.observe()
    fitted = session.fitted(keeper.finish())
    fitted.stamp, fitted.output_shift = stamp, settings.shift
    return fitted


def _stamped_validation(session: Session, stamp: np.ndarray, shift: float) -> WindowSet | None:
    """The validation windows as the deployed forecaster sees them."""
    if session.val is None:
        return None
    windows = sliding(session.val, session.seq_len + session.pred_len)
    clean = CleanWindows(windows[:, : session.seq_len], windows[:, session.seq_len :])
    return _stamped(session, clean, stamp, shift)


def _stamped(session: Session, clean: CleanWindows, stamp: np.ndarray, shift: float) -> WindowSet:
    windows = session.window_set(clean.history, clean.future)
    history = windows.history.clone()
    history[:, -len(stamp) :] += torch.from_numpy(stamp).to(history)
    return WindowSet(history, windows.future + shift * windows.std, windows.mean, windows.std)
