"""A trained autoencoder as the task takes it: arrays in, arrays out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from icml26.errors import InputError

from icml26_plugin_subspace_sae.autoencoder import SparseAutoencoder


@dataclass(frozen=True)
class FittedDictionary:
    """``module``, a :class:`.SparseAutoencoder` for raw rows, behind arrays of float32."""

    module: SparseAutoencoder

    @property
    def decoder(self) -> np.ndarray:
        """Feature directions (m, d)."""
        rows: np.ndarray = self.module.W_dec.detach().float().cpu().numpy()
        return rows

    def _tensor(self, rows: np.ndarray) -> torch.Tensor:
        array = np.ascontiguousarray(rows, dtype=np.float32)
        if array.ndim != 2:
            raise InputError(f"rows must have shape (n, d), not {array.shape}.")
        return torch.from_numpy(array).to(self.module.W_dec)

    @torch.no_grad()
    def encode(self, x: np.ndarray) -> np.ndarray:
        """Codes (n, m) of raw rows (n, d_in); InputError for another width."""
        rows = self._tensor(x)
        width = self.module.architecture.d_in
        if rows.shape[1] != width:
            raise InputError(f"This dictionary takes rows of {width} dimensions, not {rows.shape[1]}.")
        codes: np.ndarray = self.module.encode(rows).float().cpu().numpy()
        return codes

    @torch.no_grad()
    def decode(self, z: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        """Reconstructions (n, d_out) of codes (n, m); ``x`` (n, d_in) under row scaling."""
        codes = self._tensor(z)
        rows: np.ndarray = self.module.decode(codes, None if x is None else self._tensor(x)).float().cpu().numpy()
        return rows

    @torch.no_grad()
    def reconstruct(self, x: np.ndarray) -> np.ndarray:
        """Reconstructions (n, d_out) of raw rows (n, d_in) without dense codes, for any number of rows."""
        parts = [self.module.reconstruct(block).float().cpu().numpy() for block in self._tensor(x).split(2048)]
        rows: np.ndarray = np.concatenate(parts)
        return rows
