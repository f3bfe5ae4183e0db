"""What a model's next-token loss becomes when an activation is replaced: the measure of reconstructions and of rank."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from icml26.errors import InputError
from torch.nn import functional

from icml26_plugin_subspace_sae.hooks import HookPoint, replaced, resolve_hook
from icml26_plugin_subspace_sae.model_rows import Windows, check_fits
from icml26_plugin_subspace_sae.rank import Spectrum
from icml26_plugin_subspace_sae.scores import loss_recovered

Replace = Callable[[np.ndarray], np.ndarray]


class ModelLossProbe:
    """Mean next-token cross entropy of a model on held-out windows, with one activation replaced at the rows' positions.

    ``load`` gives the model; it is called when the first loss is asked for. Positions that give no rows (special tokens, the
    first of a window) keep their activations.
    """

    def __init__(self, load: Callable[[], Any], windows: Windows, hook: str, *, batch_size: int = 8) -> None:
        self._load, self._windows, self._name, self._batch_size = load, windows, hook, batch_size

    @cached_property
    def _model(self) -> Any:
        model = self._load()
        if model.get_output_embeddings() is None:
            raise InputError(f"{type(model).__name__} has no language-model head, so there is no loss to measure.")
        check_fits(model, self._windows)
        return model

    @cached_property
    def _hook(self) -> HookPoint:
        return resolve_hook(self._model, self._name)

    @cached_property
    def original(self) -> float:
        """Loss of the model as it is, nats a token."""
        return self._mean_loss(None)

    @cached_property
    def ablated(self) -> float:
        """Loss with the activation set to zero."""
        return self.loss(np.zeros_like)

    def loss(self, replace: Replace) -> float:
        """Loss with rows (n, d) float32 replaced by ``replace(rows)`` of the same shape."""
        return self._mean_loss(replace)

    @torch.inference_mode()
    def _mean_loss(self, replace: Replace | None) -> float:
        device = next(self._model.parameters()).device
        total, count = 0.0, 0
        for ids, kept in self._windows.batches(self._batch_size):
            tokens = torch.from_numpy(ids).to(device)
            mask = torch.from_numpy(kept).to(device)
            if replace is None:
                logits = self._model(input_ids=tokens, use_cache=False).logits
            else:
                with replaced(self._hook, lambda value, mask=mask: _exchanged(value, mask, replace)):  # type: ignore[misc]
                    logits = self._model(input_ids=tokens, use_cache=False).logits
            flat = logits[:, :-1].float().reshape(-1, logits.shape[-1])
            total += float(functional.cross_entropy(flat, tokens[:, 1:].reshape(-1), reduction="sum"))
            count += flat.shape[0]
        return total / count


def _exchanged(value: torch.Tensor, mask: torch.Tensor, replace: Replace) -> torch.Tensor:
    rows = value[mask].to(torch.float32).cpu().numpy()
    new = np.ascontiguousarray(replace(rows), dtype=np.float32)
    if new.shape != rows.shape:
        raise InputError(f"the replacement gave {new.shape} for rows of shape {rows.shape}.")
    changed = value.clone()
    changed[mask] = torch.from_numpy(new).to(device=value.device, dtype=value.dtype)
    return changed


def loss_by_rank(probe: Any, spectrum: Spectrum, ranks: list[int]) -> list[tuple[int, float]]:
    """Share of the loss that survives when rows are projected on the mean and their top r directions, for each r of ``ranks``.

    1 is the model as it is, 0 is zero ablation (section 7, recovered(r)).
    """
    found = []
    for r in ranks:
        if not 0 <= r <= spectrum.width:
            raise InputError(f"rank {r} must be between 0 and d={spectrum.width}.")
        loss = probe.loss(lambda rows, r=r: spectrum.project(rows, r))
        found.append((r, loss_recovered(loss, original=probe.original, ablated=probe.ablated)))
    return found
