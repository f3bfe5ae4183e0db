"""Training (section 4): normalise, initialise, then one pass over shuffled batches with the paper's schedules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from icml26.errors import InputError

from icml26_plugin_subspace_sae.autoencoder import Architecture, Pass, SparseAutoencoder, row_scale
from icml26_plugin_subspace_sae.batches import Batches
from icml26_plugin_subspace_sae.checkpoint import Checkpoint
from icml26_plugin_subspace_sae.dead import FiringRecord, resample
from icml26_plugin_subspace_sae.initialisation import InitialisationReport, initialise
from icml26_plugin_subspace_sae.losses import auxk_loss, pre_activation_loss, reconstruction_loss, sparsity_loss
from icml26_plugin_subspace_sae.normalisation import BATCHES, dataset_scale, row_scaling
from icml26_plugin_subspace_sae.optimizers import SparseAdam
from icml26_plugin_subspace_sae.resources import check_memory, checked_device, checked_seed
from icml26_plugin_subspace_sae.schedules import annealed_k, lr_factor, n_steps_of
from icml26_plugin_subspace_sae.settings import Log, Progress, TrainingSettings, forget, silent
from icml26_plugin_subspace_sae.subspace import ActiveSubspace, active_subspace
from icml26_plugin_subspace_sae.task import History

# Random streams beside those of the batches.
_WEIGHTS, _RESAMPLING = 3, 4
_CURVES = ("step", "loss", "fvu", "l0", "dead", "lr")


@dataclass(frozen=True)
class Trained:
    """A trained autoencoder that takes raw rows, with the decoder (m, d) that it began with, in raw units too."""

    sae: SparseAutoencoder
    initial_decoder: np.ndarray
    history: History
    report: InitialisationReport
    steps: int
    dead_in_training: float


def _seed(*stream: int) -> int:
    return int(np.random.SeedSequence(stream).generate_state(1, "uint64")[0] >> np.uint64(1))


class Trainer:
    """A sparse autoencoder in training: :meth:`step` by :meth:`step`, or all of it by :meth:`run`.

    Construction normalises and initialises: it reads a sample of the data. Everything random comes from ``seed``, so that on one
    machine the same seed gives the same weights, also when a run is stopped and resumed from a checkpoint.
    """

    def __init__(self, batches: Batches, settings: TrainingSettings, *, seed: int = 0, device: str = "cpu") -> None:
        settings.check(batches.d_in, batches.d_out)
        self.batches, self.settings, self.seed = batches, settings, checked_seed(seed)
        self.device = checked_device(device)
        self.dtype = torch.float64 if settings.optimisation.dtype == "float64" else torch.float32
        n_features = settings.dictionary.features(batches.d_out)
        check_memory(n_features, batches.d_in + batches.d_out, self.dtype.itemsize, self.device)
        self.n_steps = settings.optimisation.n_steps(batches.rows)
        self.step_done = 0
        self._curves: dict[str, list[float]] = {name: [] for name in _CURVES}
        self._prepare()

    # Before the first step.

    def _prepare(self) -> None:
        s, d = self.settings, self.settings.dictionary
        width_out = self.batches.d_out
        sample = self.batches.sample(self._sample_rows())
        x, y = self._tensor(sample.x), self._tensor(sample.y)
        _check_varies(y)
        self.scaling = row_scaling(d.normalisation)
        self.scale_in = self.scale_out = 1.0
        if d.normalisation == "dataset":
            first = slice(0, BATCHES * s.optimisation.batch_size)
            self.scale_in = dataset_scale(x[first])
            self.scale_out = self.scale_in if sample.y is sample.x else dataset_scale(y[first], "targets")
        x, y = self._normalised(x, y)
        active: ActiveSubspace | None = None
        if s.initialisation.subspace != "none":
            active = active_subspace(y.double().cpu().numpy(), s.initialisation.q)
        self._basis: torch.Tensor | None = None
        self._outside: torch.Tensor | None = None
        coordinates = y
        if s.initialisation.subspace == "hard":
            assert active is not None
            # The decoder is C U_qᵀ all along: train C on the targets' coordinates, the part outside never changes.
            self._basis = torch.from_numpy(active.basis).to(device=self.device, dtype=self.dtype)
            mean = y.mean(0)
            self._outside = mean - self._basis @ (self._basis.T @ mean)
            coordinates, width_out = y @ self._basis, active.q
        architecture = Architecture(
            d_in=self.batches.d_in,
            d_out=width_out,
            n_features=d.features(self.batches.d_out),
            activation=d.activation,
            k=d.k,
            gate_by_decoder_norm=d.gate_by_decoder_norm,
            bandwidth=d.bandwidth,
            row_scaling=self.scaling,
        )
        self.sae = SparseAutoencoder(
            architecture,
            generator=torch.Generator().manual_seed(_seed(self.seed, _WEIGHTS)),
            dtype=self.dtype,
            device=self.device,
            initial_threshold=d.initial_threshold,
        )
        report = initialise(
            self.sae, x, coordinates, s.initialisation, k=self._k(0), active=active, hard_basis=self._basis
        )
        self.report = InitialisationReport(active, report.norm, report.norms, report.losses)
        self._initial_decoder = self._raw_decoder(self.sae.W_dec)
        self.optimizer = self._make_optimizer()
        self.firing = FiringRecord(architecture.n_features, s.optimisation.dead_threshold, self.device)

    def _sample_rows(self) -> int:
        wanted = self.settings.initialisation.rows
        if wanted is not None:
            return wanted
        size = self.settings.optimisation.batch_size
        return max(10 * self.batches.d_out, size, min(BATCHES * size, 65_536))

    def _make_optimizer(self) -> torch.optim.Optimizer:
        o = self.settings.optimisation
        groups: list[dict[str, Any]] = [{"params": [self.sae.encoder, self.sae.b_enc, self.sae.W_dec, self.sae.b_dec]}]
        groups[0]["factor"] = 1.0
        if self.sae.architecture.activation == "jumprelu":
            groups.append({"params": [self.sae.log_threshold], "factor": o.threshold_lr_factor})
        if o.optimizer == "adam":
            return torch.optim.Adam(
                groups, lr=o.lr, betas=o.betas, eps=o.eps, fused=self.device.type in ("cpu", "cuda")
            )
        self.sae.sparse_gradients = self.sae.architecture.activation in ("topk", "batchtopk")
        return SparseAdam(groups, lr=o.lr, betas=o.betas, eps=o.eps)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device=self.device, dtype=self.dtype)

    def _normalised(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows and targets scaled; under row scaling both by the factor of the input row, which inference knows."""
        if self.scaling == "none":
            return x * self.scale_in, (y if y is not x else x) * self.scale_out
        scale = row_scale(x, self.scaling)
        return x * scale, y * scale

    # One step.

    def _k(self, step: int) -> int:
        o, k = self.settings.optimisation, self.settings.dictionary.k
        initial = k if o.initial_k is None else o.initial_k
        warmup = n_steps_of(o.k_warmup, self.n_steps)
        return annealed_k(step, k=k, initial_k=initial, warmup=warmup, schedule=o.k_schedule)

    def learning_rate(self, step: int) -> float:
        """lr_t at step t, from 0."""
        o = self.settings.optimisation
        warmup, cooldown = n_steps_of(o.warmup, self.n_steps), n_steps_of(o.cooldown, self.n_steps)
        return o.lr * lr_factor(step, self.n_steps, warmup=warmup, cooldown=cooldown, final=o.final_lr)

    def step(self) -> dict[str, float]:
        """One optimiser step; returns loss, fvu and l0 of its batch (before the step), and the learning rate."""
        batch = self.batches.next()
        x = self._tensor(batch.x)
        x, y = self._normalised(x, x if batch.y is batch.x else self._tensor(batch.y))
        if self._basis is not None:
            y = y @ self._basis
        o, t = self.settings.optimisation, self.step_done
        rate = self.learning_rate(t)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        self.optimizer.zero_grad(set_to_none=True)
        result = self.sae.forward_pass(x, self._k(t), amp=torch.bfloat16 if o.amp == "bfloat16" else None)
        reconstruction = reconstruction_loss(result.reconstruction, y)
        loss = self._total_loss(reconstruction, result, x, y)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise InputError(
                f"The loss is {value} at step {t + 1}: lower lr={o.lr}, or look for rows of enormous norm in the data."
            )
        loss.backward()
        if o.clip is not None:
            clip_gradients([self.sae.encoder, self.sae.b_enc, self.sae.W_dec, self.sae.b_dec], o.clip)
        self.optimizer.step()
        codes = result.codes
        self.firing.update(codes.transposed.features, len(x))
        self._maybe_resample(x, y)
        self.step_done += 1
        variance = float((y - y.mean(0)).square().sum()) / len(y) if self._logs(t) else math.nan
        fvu = float(reconstruction.detach()) / variance if variance > 0 else math.nan
        return {"loss": value, "fvu": fvu, "l0": len(codes.features) / len(x), "lr": rate}

    def _total_loss(self, reconstruction: torch.Tensor, result: Pass, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        s, loss = self.settings, reconstruction
        if s.dictionary.activation in ("relu", "jumprelu"):
            warmup = n_steps_of(s.sparsity.warmup, self.n_steps)
            weight = s.sparsity.coefficient * (min(1.0, (self.step_done + 1) / warmup) if warmup else 1.0)
            loss = loss + weight * sparsity_loss(self.sae, result, penalty=s.sparsity.penalty, p=s.sparsity.p)
            if s.dictionary.activation == "jumprelu" and s.sparsity.pre_activation > 0:
                loss = loss + s.sparsity.pre_activation * pre_activation_loss(self.sae, result)
        if s.revival.auxk > 0:
            k_aux = s.revival.k_aux or max(y.shape[1] // 2, 1)
            aux = auxk_loss(self.sae, x, y - result.reconstruction, self.firing.dead(), k_aux)
            if aux is not None:
                loss = loss + s.revival.auxk * aux
        return loss

    def _maybe_resample(self, x: torch.Tensor, y: torch.Tensor) -> None:
        r, done = self.settings.revival, self.step_done + 1
        if r.resample_every is None or done % r.resample_every or done > r.resample_until * self.n_steps:
            return
        dead = self.firing.dead()
        if len(dead):
            generator = torch.Generator().manual_seed(_seed(self.seed, _RESAMPLING, done))
            resample(self.sae, self.optimizer, dead, x, y, generator)
            self.firing.silent_for[dead] = 0

    # All steps.

    def _logs(self, step: int) -> bool:
        every = max(self.n_steps // self.settings.optimisation.log_points, 1)
        return step % every == 0 or step == self.n_steps - 1

    def run(
        self,
        *,
        progress: Progress = silent,
        log: Log = forget,
        checkpoint: Checkpoint | None = None,
        stop_after: int | None = None,
    ) -> Trained | None:
        """Train to the end, resuming from ``checkpoint`` if it holds this run; None if ``stop_after`` steps ended it before."""
        if checkpoint is not None and (state := checkpoint.read()) is not None:
            try:
                self.restore(state)
            except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
                raise InputError(
                    f"The checkpoint {checkpoint.path} is damaged ({type(error).__name__}): delete it to start anew."
                ) from error
        begun = self.step_done
        for step in progress(range(begun, self.n_steps), "step", self.n_steps - begun):
            values = self.step()
            if self._logs(step):
                self._note(step, values, log)
            if checkpoint is not None and checkpoint.due(self.step_done, self.n_steps):
                checkpoint.write(self.state())
            if stop_after is not None and self.step_done - begun >= stop_after and self.step_done < self.n_steps:
                return None
        return self.finish()

    def _note(self, step: int, values: dict[str, float], log: Log) -> None:
        values = {**values, "dead": self.firing.share(), "step": float(step + 1)}
        for name in _CURVES:
            self._curves[name].append(values[name])
            if name != "step":
                log(name, values[name], step + 1)

    # After the last step.

    @torch.no_grad()
    def finish(self) -> Trained:
        """The autoencoder for raw rows: threshold calibrated, hard subspace written out, normalisation folded in."""
        dead = self.firing.share()
        sae = self.sae
        if sae.architecture.activation == "batchtopk":
            sae.threshold.copy_(self._calibrated_threshold())
        sae = self._written_out()
        if self.scaling == "none":
            sae.fold(self.scale_in, self.scale_out)
        sae.sparse_gradients = False
        sae.requires_grad_(False).eval()
        arrays = {name: np.array(values) for name, values in self._curves.items()}
        arrays["step"] = arrays["step"].astype(np.int64)
        return Trained(sae, self._initial_decoder, History(**arrays), self.report, self.step_done, dead)

    def _calibrated_threshold(self) -> torch.Tensor:
        """Mean over batches of the smallest gated pre-activation that was kept."""
        smallest = []
        for _ in range(BATCHES):
            x = self._tensor(self.batches.next().x)
            x, _ = self._normalised(x, x)
            codes = self.sae.select(x)
            if len(codes.values):
                smallest.append((codes.values * self.sae.decoder_norms()[codes.features]).min())
        return torch.stack(smallest).mean() if smallest else self.sae.b_dec.new_zeros(())

    def _written_out(self) -> SparseAutoencoder:
        """Under the hard subspace, the same dictionary with W_D = C U_qᵀ in full coordinates."""
        if self._basis is None or self._outside is None:
            return self.sae
        a = self.sae.architecture
        full = SparseAutoencoder(
            Architecture(**{**a.as_json(), "d_out": len(self._basis)}),
            generator=torch.Generator().manual_seed(0),
            dtype=self.dtype,
            device=self.device,
        )
        state = self.sae.state_dict()
        state["W_dec"] = state["W_dec"] @ self._basis.T
        state["b_dec"] = self._basis @ state["b_dec"] + self._outside
        full.load_state_dict(state)
        return full

    def _raw_decoder(self, W_dec: torch.Tensor) -> np.ndarray:
        rows = W_dec.detach() if self._basis is None else W_dec.detach() @ self._basis.T
        return np.array((rows * (self.scale_in / self.scale_out)).float().cpu().numpy())

    # Checkpoints.

    def state(self) -> dict[str, Any]:
        """All that the remaining steps depend on."""
        return {
            "step": self.step_done,
            "sae": self.sae.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "batches": self.batches.state(),
            "silent_for": self.firing.silent_for,
            "curves": self._curves,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`; the rest of the run is that of an uninterrupted one, bit for bit."""
        self.step_done = int(state["step"])
        self.sae.load_state_dict(state["sae"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.batches.restore(state["batches"])
        self.firing.silent_for.copy_(state["silent_for"])
        self._curves = {name: list(values) for name, values in state["curves"].items()}


def _check_varies(targets: torch.Tensor) -> None:
    if bool((targets == targets[0]).all()):
        raise InputError("All rows of the activations are equal: there is nothing to explain.")


@torch.no_grad()
def clip_gradients(parameters: list[torch.nn.Parameter], most: float) -> float:
    """Scale gradients, dense or sparse, so that their common L2 norm is at most ``most``; returns the norm before."""
    values = []
    for parameter in parameters:
        if parameter.grad is not None:
            if parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
                values.append(parameter.grad.values())
            else:
                values.append(parameter.grad)
    norm = math.sqrt(sum(float(v.double().square().sum()) for v in values))
    if norm > most:
        for v in values:
            v.mul_(most / norm)
    return norm
