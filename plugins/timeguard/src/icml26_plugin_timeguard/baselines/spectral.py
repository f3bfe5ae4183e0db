"""Spectral Signatures (Tran et al., NeurIPS 2018), per window: drop the top outliers of the features, train again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from icml26_plugin_timeguard.baselines.features import penultimate
from icml26_plugin_timeguard.criteria import quantile_count
from icml26_plugin_timeguard.fitted import FittedForecaster
from icml26_plugin_timeguard.session import Session
from icml26_plugin_timeguard.settings import Log, Progress, forget, silent
from icml26_plugin_timeguard.timeguard import train_plainly


@dataclass(frozen=True)
class SpectralSettings:
    """``poison_rate``: the assumed share of poisoned windows; 1.5 times as many are removed."""

    poison_rate: float = 0.03


def outlier_scores(features: torch.Tensor) -> torch.Tensor:
    """Squared projection (N,) of centred features (N, d) on their top right singular vector."""
    centred = (features - features.mean(dim=0)).double()
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    return (centred @ vectors[:, -1]).square()


def spectral_signatures(
    session: Session, settings: SpectralSettings, *, progress: Progress = silent, log: Log = forget
) -> tuple[FittedForecaster, np.ndarray]:
    """The forecaster trained without the outlying windows, and the windows kept as a pool (C, N)."""
    first = train_plainly(session, progress=progress)
    scores = outlier_scores(penultimate(first.module, session.windows(session.train)).flatten(1))
    keep = np.ones(session.n_windows, dtype=bool)
    removed = quantile_count(session.n_windows, 1.5 * settings.poison_rate)
    keep[np.argsort(-scores.cpu().numpy(), kind="stable")[:removed]] = False
    pool = np.broadcast_to(keep, (session.train.shape[1], len(keep))).copy()
    return train_plainly(session, mask=pool, progress=progress, log=log), pool
