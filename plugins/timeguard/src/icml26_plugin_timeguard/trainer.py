"""Training epochs over a WindowSet under a pool mask, by indexing tensors: no dataset object is rebuilt between rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from icml26_plugin_timeguard.loss import masked_mean, unit_loss
from icml26_plugin_timeguard.windows import WindowSet

BatchLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# Names of the random streams. An epoch's randomness depends on (seed, stream, epoch) alone, so that a run can resume at any
# round, and so that two methods with one seed see the same initial weights and batches.
FORECASTER, BACKCASTER = 0, 1


def stream_seed(seed: int, stream: int, step: int) -> int:
    """A 63-bit seed for one step of one stream; step 0 is the initial weights, epoch e uses step e + 1."""
    return int(np.random.SeedSequence((seed, stream, step)).generate_state(1, "uint64")[0] >> 1)


@dataclass(frozen=True)
class Optimisation:
    """How epochs are run: Adam with ``lr``, ``batch_size`` windows a step, optional mixed precision on CUDA."""

    lr: float = 1e-4
    batch_size: int = 64
    amp: bool = False
    eval_batch_size: int = 1024


def adam(model: nn.Module, lr: float) -> torch.optim.Adam:
    """A fresh Adam; fused because the networks are small and the per-tensor loop would dominate the step."""
    return torch.optim.Adam(model.parameters(), lr=lr, fused=True)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Dropout draws from the global RNG: seed it here and give the caller's state back."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


class Trainer:
    """A forecaster, its windows and its optimiser; each call of :meth:`epoch` is one pass over the windows."""

    def __init__(
        self, model: nn.Module, windows: WindowSet, options: Optimisation, *, seed: int, stream: int = FORECASTER
    ):
        self.model, self.windows, self.options = model, windows, options
        self.seed, self.stream = seed, stream
        self.epochs_done = 0
        self.optimizer = adam(model, options.lr)

    def reset_optimizer(self, lr: float) -> None:
        """Start Adam anew (moments zero) with another learning rate."""
        self.optimizer = adam(self.model, lr)

    def set_lr(self, lr: float) -> None:
        """Change the learning rate and keep the moments."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def forecast(self, history: torch.Tensor) -> torch.Tensor:
        """Physical forecast of normalised histories (B, L_in, C), with gradients."""
        amp = self.options.amp and history.device.type == "cuda"
        with torch.autocast(history.device.type, dtype=torch.bfloat16, enabled=amp):
            output = self.model(history)
        return output.to(history.dtype) * self.windows.std + self.windows.mean

    def epoch(self, mask: np.ndarray | None = None, batch_loss: BatchLoss | None = None) -> float:
        """Train one shuffled pass over the windows; returns the mean loss of the batches.

        The loss is L_def under ``mask`` (C, N) bool, None selects all; ``batch_loss`` replaces it by a function of the batch's
        unit losses (B, C) and window indices (B,).
        """
        windows, device = self.windows, self.windows.history.device
        seed = stream_seed(self.seed, self.stream, self.epochs_done + 1)
        order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(seed)).to(device)
        selected = self._mask(mask)
        total, batches = torch.zeros((), device=device), 0
        self.model.train()
        with _seeded(seed, device):
            for index in order.split(self.options.batch_size):
                losses = unit_loss(self.forecast(windows.history[index]), windows.future[index])
                loss = masked_mean(losses, selected[index]) if batch_loss is None else batch_loss(losses, index)
                self.step(loss)
                total += loss.detach()
                batches += 1
        self.epochs_done += 1
        return float(total) / batches

    def step(self, loss: torch.Tensor) -> None:
        """One optimiser step on a loss."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def _mask(self, mask: np.ndarray | None) -> torch.Tensor:
        history = self.windows.history
        if mask is None:
            return history.new_ones((len(self.windows), self.windows.n_channels))
        return torch.from_numpy(np.ascontiguousarray(mask.T)).to(device=history.device, dtype=history.dtype)

    @torch.no_grad()
    def unit_losses(self) -> np.ndarray:
        """Eval-mode loss of every unit, (C, N) float64."""
        self.model.eval()
        batches = torch.arange(len(self.windows), device=self.windows.history.device).split(
            self.options.eval_batch_size
        )
        losses = [unit_loss(self.forecast(self.windows.history[i]), self.windows.future[i]) for i in batches]
        return torch.cat(losses).T.cpu().double().numpy()

    def state(self) -> dict[str, Any]:
        """Weights, optimiser and epoch counter, for a checkpoint."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epochs_done": self.epochs_done,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`; later epochs are those of the uninterrupted run."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epochs_done = int(state["epochs_done"])
