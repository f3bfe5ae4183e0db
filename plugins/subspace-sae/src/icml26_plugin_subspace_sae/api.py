"""Training in one call, and what a run needs beside the trainer: the identity of its checkpoint and plain values to read."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from icml26_plugin_subspace_sae.batches import make_batches
from icml26_plugin_subspace_sae.checkpoint import Checkpoint
from icml26_plugin_subspace_sae.resources import checked_seed
from icml26_plugin_subspace_sae.schedules import n_steps_of
from icml26_plugin_subspace_sae.settings import Log, Progress, TrainingSettings, forget, silent
from icml26_plugin_subspace_sae.task import ActivationSource
from icml26_plugin_subspace_sae.trainer import Trained, Trainer

# Rows of an array that tell data apart in a checkpoint's identity.
_PROBED = 4096


def train(
    activations: np.ndarray | ActivationSource,
    settings: TrainingSettings | None = None,
    *,
    targets: np.ndarray | ActivationSource | None = None,
    seed: int = 0,
    device: str = "cpu",
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1000,
    progress: Progress = silent,
    log: Log = forget,
) -> Trained:
    """Train a sparse autoencoder on ``activations`` (n, d), or a transcoder to ``targets`` (n, d_out).

    Both are arrays (memory-mapped ones are read batch by batch) or sources that stream. With ``checkpoint`` a stopped call
    continues where the file stands. Raises InputError for data or settings that make no sense, before training.
    """
    settings = settings or TrainingSettings()
    o = settings.optimisation
    seed = checked_seed(seed)
    batches = make_batches(activations, targets, o.batch_size, seed, buffer=o.buffer)
    keeper = None
    if checkpoint is not None:
        identity = run_identity(activations, targets, settings, seed)
        keeper = Checkpoint(Path(checkpoint), identity, checkpoint_every)
    trained = Trainer(batches, settings, seed=seed, device=device).run(progress=progress, log=log, checkpoint=keeper)
    assert trained is not None
    return trained


def run_identity(
    activations: np.ndarray | ActivationSource,
    targets: np.ndarray | ActivationSource | None,
    settings: TrainingSettings,
    seed: int,
) -> str:
    """A hash of data, settings and seed; of large arrays evenly spaced rows count."""
    sha = hashlib.sha256(repr((asdict(settings), seed)).encode())
    for data in (activations, targets):
        if data is None:
            continue
        if isinstance(data, np.ndarray):
            sha.update(repr((data.shape, data.dtype.str)).encode())
            step = max(len(data) // _PROBED, 1)
            sha.update(np.ascontiguousarray(data[::step]).tobytes())
        else:
            own = getattr(data, "__fingerprint__", None)
            sha.update(repr((data.width, data.rows, None if own is None else own())).encode())
    return sha.hexdigest()


def doubts(settings: TrainingSettings, steps: int) -> list[str]:
    """What is probably not meant: defaults for hundreds of millions of rows in a training of ``steps`` steps."""
    o, r = settings.optimisation, settings.revival
    found = []
    warmup = n_steps_of(o.warmup, steps)
    if 2 * warmup > steps:
        found.append(f"The learning rate warms up over {warmup} steps of {steps}: set warmup to a share, e.g. 0.05.")
    if (r.auxk > 0 or r.resample_every is not None) and o.dead_threshold >= steps * o.batch_size:
        found.append(
            f"No feature can count as dead: dead_threshold={o.dead_threshold}, of {steps * o.batch_size} rows in all. "
            "AuxK and resampling did nothing; lower it."
        )
    return found


def describe(trained: Trained, settings: TrainingSettings) -> dict[str, Any]:
    """What a reader of a run wants to know, as JSON values."""
    sae = trained.sae
    info: dict[str, Any] = {
        "architecture": sae.architecture.as_json(),
        "initialisation": trained.report.as_json(),
        "optimizer": settings.optimisation.optimizer,
        "steps": trained.steps,
        "rows_seen": trained.steps * settings.optimisation.batch_size,
        "dead_in_training": trained.dead_in_training,
        "warnings": doubts(settings, trained.steps),
    }
    if sae.architecture.activation == "batchtopk":
        info["threshold"] = float(sae.threshold)
    return info
