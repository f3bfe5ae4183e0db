"""BackTime (Lin et al., NeurIPS 2024): a trigger generator learnt against a surrogate forecaster.

A graph network over the attacked channels turns the last clean steps before an injection into a trigger; surrogate and
generator are trained in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from icml26_plugin_timeguard.attacks.injection import Layout, draw_places, write_blocks
from icml26_plugin_timeguard.forecasters import Build, build_seeded, factory
from icml26_plugin_timeguard.trainer import Optimisation, Trainer, stream_seed
from icml26_plugin_timeguard.windows import Scaler, WindowSet, forecast_windows

SURROGATE, GENERATOR = 3, 4
N_BINS = 200


@dataclass(frozen=True)
class BackTimeSettings:
    """The attacker's training: a surrogate (the authors take FEDformer), its schedule, and the generator's.

    ``warmup_epochs`` of the surrogate on clean data precede the choice of places.
    """

    eps: float = 0.2
    lam_norm: float = 0.05
    hidden: int = 64
    lr: float = 0.005
    surrogate: str = "mlp"
    surrogate_lr: float = 1e-4
    surrogate_epochs: int = 100
    warmup_epochs: int = 10
    batch_size: int = 64


def spectral_features(series: np.ndarray, n_bins: int = N_BINS) -> np.ndarray:
    """Amplitude, phase and frequency of each channel's strongest bins: (T, C) to (C, 3 * min(n_bins, T // 2)).

    Bins are ranked within the channel, strongest first (the authors' code takes the weakest of another channel by mistake).
    Amplitudes are relative to the channel's strongest, so that they share the range of the others.
    """
    centred = series - series.mean(axis=0)
    spectrum = np.fft.rfft(centred, axis=0)[1:].T
    frequency = np.fft.rfftfreq(len(series))[1:]
    amplitude = np.abs(spectrum)
    strongest = np.argsort(-amplitude, axis=1, kind="stable")[:, : min(n_bins, len(series) // 2)]
    kept = np.take_along_axis(amplitude, strongest, axis=1)
    phase = np.angle(np.take_along_axis(spectrum, strongest, axis=1))
    return np.concatenate([kept / np.maximum(kept[:, :1], 1e-12), phase, frequency[strongest]], axis=1)


class TriggerGenerator(nn.Module):
    """Normalised triggers (n, trigger steps, k) from the ``before`` normalised steps (n, before, k); within eps of the last.

    trigger = last + eps/2 tanh(bias) + eps/2 tanh(A relu(A h W1) W2), A a similarity graph of the attacked channels.
    """

    features: torch.Tensor

    def __init__(self, features: torch.Tensor, layout: Layout, hidden: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("features", features)
        self.similarity = nn.Sequential(nn.Linear(features.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.bias = nn.Sequential(nn.Linear(layout.before, hidden), nn.ReLU(), nn.Linear(hidden, layout.trigger))
        for layer in self.bias:
            if isinstance(layer, nn.Linear):
                nn.init.zeros_(layer.weight)
                nn.init.uniform_(layer.bias, -0.2, 0.2)
        self.first = nn.Parameter(nn.init.xavier_uniform_(torch.empty(layout.before, hidden)))
        self.second = nn.Parameter(nn.init.xavier_uniform_(torch.empty(hidden, layout.trigger)))

    def adjacency(self) -> torch.Tensor:
        """D^-1/2 A D^-1/2 (k, k) with A = relu(cosine) and a unit diagonal."""
        codes = nn.functional.normalize(self.similarity(self.features), dim=1)
        graph = torch.relu(codes @ codes.T)
        graph = (
            graph - torch.diag(torch.diagonal(graph)) + torch.eye(len(graph), device=graph.device, dtype=graph.dtype)
        )
        scale = graph.sum(dim=1).rsqrt()
        return scale[:, None] * graph * scale[None, :]

    def perturbation(self, before: torch.Tensor) -> torch.Tensor:
        """What is added to the last value, (n, trigger steps, k)."""
        graph = self.adjacency()
        constant = self.bias(before.new_zeros(before.shape[1]))
        nodes = before.transpose(1, 2)
        own = graph @ (torch.relu(graph @ (nodes @ self.first)) @ self.second)
        half = 0.5 * self.eps
        return (half * torch.tanh(own)).transpose(1, 2) + (half * torch.tanh(constant))[None, :, None]

    def forward(self, before: torch.Tensor) -> torch.Tensor:
        return before[:, -1:, :] + self.perturbation(before)


@dataclass(frozen=True)
class LearntTrigger:
    """A trained generator as a function of physical values."""

    generator: TriggerGenerator
    scaler: Scaler

    @torch.no_grad()
    def __call__(self, before: np.ndarray) -> np.ndarray:
        """Physical triggers (n, trigger steps, k) for the physical steps before them (n, before, k)."""
        normalised = torch.from_numpy(np.ascontiguousarray(self.scaler.normalize(before)))
        parameter = next(self.generator.parameters())
        triggers = self.generator(normalised.to(parameter.dtype).to(parameter.device)).cpu().double().numpy()
        return triggers * self.scaler.std + self.scaler.mean


class BackTime:
    """The attack on a clean training series; :meth:`run` gives starts and the trained trigger."""

    def __init__(
        self,
        train: np.ndarray,
        channels: np.ndarray,
        pattern: np.ndarray,
        seq_len: int,
        pred_len: int,
        settings: BackTimeSettings,
        *,
        layout: Layout | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.train, self.channels, self.pattern = train, channels, pattern
        self.lengths, self.settings, self.seed, self.device = (seq_len, pred_len), settings, seed, device
        self.layout = layout or Layout()
        self.scaler = Scaler.fit(train)
        build: Build = factory(settings.surrogate)
        surrogate = build_seeded(build, seq_len, pred_len, train.shape[1], stream_seed(seed, SURROGATE, 0)).to(device)
        options = Optimisation(lr=settings.surrogate_lr, batch_size=settings.batch_size)
        self.surrogate = Trainer(surrogate, self._windows(train), options, seed=seed, stream=SURROGATE)
        self.trigger = LearntTrigger(self._generator().to(device), self.scaler)

    def _windows(self, series: np.ndarray) -> WindowSet:
        return forecast_windows(series, self.scaler, *self.lengths, device=self.device)

    def _generator(self) -> TriggerGenerator:
        features = torch.from_numpy(spectral_features(self.train)[self.channels]).float()
        settings = self.settings
        with torch.random.fork_rng():
            torch.manual_seed(stream_seed(self.seed, GENERATOR, 0))
            return TriggerGenerator(features, self.layout, settings.hidden, settings.eps)

    def run(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, LearntTrigger]:
        """Choose ``count`` places where the warmed-up surrogate errs most, then train surrogate and generator in turn."""
        settings = self.settings
        for _ in range(settings.warmup_epochs):
            self.surrogate.epoch()
        starts = draw_places(rng, self._ranked_starts(), len(self.train), self.layout, count)
        optimizer = torch.optim.Adam(self.trigger.generator.parameters(), lr=settings.lr)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[20, 40], gamma=0.9)
        for epoch in range(settings.surrogate_epochs):
            self.surrogate.windows = self._windows(self.poison(starts))
            self.surrogate.epoch()
            self._generator_epoch(starts, optimizer, epoch)
            schedule.step()
        return starts, self.trigger

    def poison(self, starts: np.ndarray) -> np.ndarray:
        """The training series with the present trigger and the pattern at ``starts``."""
        steps = starts[:, None] + np.arange(-self.layout.before, 0)
        triggers = self.trigger(self.train[steps][:, :, self.channels])
        return write_blocks(self.train, starts, self.channels, triggers, self.pattern)

    def _ranked_starts(self) -> np.ndarray:
        """Starts whose pattern would begin where a window's future does, largest surrogate loss first."""
        loss = self.surrogate.unit_losses()[self.channels].mean(axis=0)
        return np.argsort(-loss, kind="stable") + self.lengths[0] - self.layout.trigger

    def _generator_epoch(self, starts: np.ndarray, optimizer: torch.optim.Optimizer, epoch: int) -> None:
        seq_len, pred_len = self.lengths
        lead, span = seq_len - self.layout.trigger, seq_len + pred_len + self.layout.pattern
        inside = starts[(starts >= lead) & (starts - lead + span <= len(self.train))]
        order = np.random.default_rng((stream_seed(self.seed, GENERATOR, epoch + 1),)).permutation(inside)
        model = self.surrogate.model.eval()
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        for begin in range(0, len(order), self.settings.batch_size):
            loss = self._generator_loss(order[begin : begin + self.settings.batch_size], lead, span)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        for parameter in model.parameters():
            parameter.requires_grad_(True)

    def _generator_loss(self, starts: np.ndarray, lead: int, span: int) -> torch.Tensor:
        """Soft identification: sum_i (P - i)/P MSE over the P windows that begin i steps later, plus lam_norm times the drift."""
        seq_len, pred_len = self.lengths
        layout, scaler = self.layout, self.scaler
        rows = starts[:, None] - lead + np.arange(span)
        slices = self._tensor(scaler.normalize(self.train[rows]))
        before = slices[:, lead - layout.before : lead, self.channels]
        perturbation = self.trigger.generator.perturbation(before)
        anchor = before[:, -1:, :]
        pattern = self._tensor(self.pattern / scaler.std)[None, :, None]
        block = torch.cat([anchor + perturbation, (anchor + pattern).expand(-1, layout.pattern, -1)], dim=1)
        slices = slices.index_put(
            (
                torch.arange(len(slices), device=self.device)[:, None, None],
                torch.arange(lead, lead + layout.block, device=self.device)[None, :, None],
                torch.from_numpy(self.channels).to(self.device)[None, None, :],
            ),
            block,
        )
        shifts = layout.pattern
        windows = slices.unfold(1, seq_len + pred_len, 1)[:, :shifts].permute(1, 0, 3, 2)
        history, future = windows[:, :, :seq_len], windows[:, :, seq_len:]
        forecast = self.surrogate.model(history.flatten(0, 1)).view(shifts, len(slices), pred_len, -1)
        error = (forecast - future)[..., self.channels].square().mean(dim=(1, 2, 3)) * float(scaler.std[0]) ** 2
        weights = torch.arange(shifts, 0, -1, device=self.device, dtype=error.dtype) / shifts
        return (weights * error).sum() + self.settings.lam_norm * perturbation.sum(dim=1).abs().mean()

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(torch.float32).to(self.device)


def save_attack(starts: np.ndarray, trigger: LearntTrigger, path: Path) -> None:
    """Write places and generator weights as an npz without objects."""
    arrays = {name: value.detach().cpu().numpy() for name, value in trigger.generator.state_dict().items()}
    with path.open("wb") as file:
        np.savez(file, starts=starts, **arrays)


def load_attack(attack: BackTime, path: Path) -> tuple[np.ndarray, LearntTrigger]:
    """Read what :func:`save_attack` wrote for the same attack."""
    with np.load(path, allow_pickle=False) as data:
        state = {name: torch.from_numpy(data[name]) for name in data.files if name != "starts"}
        starts = data["starts"]
    attack.trigger.generator.load_state_dict(state)
    return starts, attack.trigger
