"""Training with the ordinary ``Trainer`` of transformers, which seeds globally and prints: here it does neither."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from icml26.errors import InputError
from icml26.fingerprints import fingerprint

from icml26_plugin_divergence_decoding.encoding import Encoded, collate
from icml26_plugin_divergence_decoding.loading import without_progress_bars

Loss = Callable[[Any, dict[str, torch.Tensor]], torch.Tensor]
Log = Callable[[str, float, int | None], None]


@dataclass(frozen=True)
class Training:
    """How the Trainer trains: AdamW from ``lr`` down to 0 in a cosine, after ``warmup`` (share of the steps) of rising.

    ``max_steps`` 0 means ``epochs`` decide. ``bf16``: mixed precision. ``checkpoints``: folder in which each training has
    one of its own, by all that decides it: each epoch is written to it, and a stopped run resumed from it.
    """

    lr: float = 5e-5
    epochs: int = 10
    batch_size: int = 32
    accumulation: int = 1
    warmup: float = 0.0
    weight_decay: float = 0.01
    max_steps: int = 0
    bf16: bool = False
    checkpoints: Path | None = None


@contextlib.contextmanager
def global_state_restored() -> Iterator[None]:
    """Leave the global generators of Python, numpy and torch, and the environment, as they were."""
    python, environment = random.getstate(), dict(os.environ)
    numpy_state = np.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy_state)
            for name in set(os.environ) - set(environment):
                del os.environ[name]
            os.environ.update(environment)


def train(
    model: Any,
    rows: Sequence[Any],
    training: Training,
    *,
    seed: int,
    batch: Callable[[list[Any]], dict[str, torch.Tensor]],
    loss: Loss | None = None,
    device: str = "cpu",
    log: Log | None = None,
    label: str = "loss",
    identity: Any = None,
) -> None:
    """Train ``model`` in place on ``rows``, which ``batch`` puts together; it is left in evaluation mode.

    ``loss`` of (model, batch) replaces the model's own next-token loss; ``identity`` is what decides it beyond model, rows
    and recipe. The order of rows comes from ``seed``. Raises InputError when there is no row, the folder of checkpoints
    cannot be written, or the weights end up not finite.
    """
    if not rows:
        raise InputError("There is nothing to train on: no rows were given.")
    if training.checkpoints is not None:
        folder = _own_folder(training, model, rows, (seed, device, label, identity))
        training = replace(training, checkpoints=folder)
    with global_state_restored():  # round the first import as well: libraries of the Trainer draw while they load
        _train(model, rows, training, seed, batch, loss, device, log, label)
    model.eval()
    if not all(bool(torch.isfinite(p).all()) for p in model.parameters()):
        raise InputError(f"Training ended in weights that are not finite: lower lr={training.lr}.")


def _train(
    model: Any,
    rows: Sequence[Any],
    training: Training,
    seed: int,
    batch: Callable[[list[Any]], dict[str, torch.Tensor]],
    loss: Loss | None,
    device: str,
    log: Log | None,
    label: str,
) -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_callback import PrinterCallback

    class OwnLoss(Trainer):  # type: ignore[misc, unused-ignore]
        def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
            if loss is None:
                return super().compute_loss(model, inputs, *arguments, **options)
            return loss(
                model, inputs
            )  # the Trainer itself divides by the accumulated steps when batches have no "labels"

    class Curve(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if log is not None and "loss" in (logs or {}):
                log(label, float(logs["loss"]), state.global_step)

    with tempfile.TemporaryDirectory() as scratch:
        steps = training.max_steps or _steps(len(rows), training)
        arguments = TrainingArguments(
            output_dir=str(training.checkpoints or scratch),
            per_device_train_batch_size=training.batch_size,
            gradient_accumulation_steps=training.accumulation,
            learning_rate=training.lr,
            lr_scheduler_type="cosine",
            warmup_steps=round(training.warmup * steps),
            weight_decay=training.weight_decay,
            num_train_epochs=training.epochs,
            max_steps=training.max_steps or -1,
            bf16=training.bf16,
            use_cpu=device == "cpu",
            seed=seed % 2**32,
            data_seed=seed % 2**32,
            save_strategy="no" if training.checkpoints is None else "epoch",
            save_total_limit=1,
            logging_strategy="epoch",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_pin_memory=device != "cpu",
            label_names=["labels"],
        )
        trainer = OwnLoss(model, arguments, data_collator=batch, train_dataset=list(rows), callbacks=[Curve()])
        trainer.remove_callback(PrinterCallback)
        with without_progress_bars():
            trainer.train(resume_from_checkpoint=_last(training.checkpoints))


def fine_tune(
    model: Any,
    sequences: Sequence[Encoded] | Sequence[list[Encoded]],
    training: Training,
    *,
    seed: int,
    pad: int = 0,
    device: str = "cpu",
    log: Log | None = None,
    label: str = "loss",
) -> None:
    """Train ``model`` in place to continue ``sequences`` from where their answers start.

    An element may be a list of sequences, which then come in one step and count as one of ``training.batch_size``.
    """

    def batch(rows: list[Any]) -> dict[str, torch.Tensor]:
        made = collate([s for row in rows for s in (row if isinstance(row, list) else [row])], pad=pad)
        return {"input_ids": made.ids, "attention_mask": made.mask, "labels": made.labels}

    train(model, sequences, training, seed=seed, batch=batch, device=device, log=log, label=label)


def _steps(rows: int, training: Training) -> int:
    return max(1, -(-rows // (training.batch_size * training.accumulation)) * training.epochs)


def _own_folder(training: Training, model: Any, rows: Sequence[Any], others: Any) -> Path:
    """A folder of this training alone: another recipe, seed or data set must not go on from its checkpoints."""
    assert training.checkpoints is not None
    plain = [[tuple(s) for s in row] if isinstance(row, list) else tuple(row) for row in rows]
    key = fingerprint((model, plain, asdict(replace(training, checkpoints=None)), others))
    folder = training.checkpoints / hashlib.sha256(key.encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"checkpoints={training.checkpoints} cannot be written: {error}") from error
    return folder


def _last(folder: Path | None) -> str | None:
    """The last checkpoint that was written to its end: the Trainer's state is what it writes last."""
    if folder is None:
        return None
    found = [(int(path.name.rpartition("-")[2]), path) for path in folder.glob("checkpoint-[0-9]*") if _complete(path)]
    return str(max(found)[1]) if found else None


def _complete(checkpoint: Path) -> bool:
    try:
        state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(state, dict) and f"checkpoint-{state.get('global_step')}" == checkpoint.name
