"""A trained forecaster that maps physical histories to physical forecasts, and its storage without pickle."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from icml26.errors import InputError
from torch import nn

from icml26_plugin_timeguard.forecasters import FORECASTERS, Build, factory
from icml26_plugin_timeguard.windows import Scaler

WEIGHTS, DESCRIPTION = "forecaster.safetensors", "forecaster.json"
SCHEMA = "icml26-timeguard.forecaster/1"


@dataclass
class FittedForecaster:
    """A network with its scaler. ``predict`` takes physical units; inference costs what the network costs.

    ``output_shift`` (normalised units) and ``stamp`` serve defences that change the input at inference (PDB); both None else.
    """

    module: nn.Module
    scaler: Scaler
    seq_len: int
    pred_len: int
    n_channels: int
    forecaster: str | None = None
    forecaster_options: dict[str, Any] = field(default_factory=dict)
    stamp: np.ndarray | None = None
    output_shift: float = 0.0
    batch_size: int = 1024

    @torch.no_grad()
    def predict(self, history: np.ndarray) -> np.ndarray:
        """Forecasts (n, L_out, C) float64 of histories (n, L_in, C), both in physical units."""
        values = np.asarray(history, dtype=np.float64)
        if values.ndim != 3 or values.shape[1:] != (self.seq_len, self.n_channels):
            raise InputError(
                f"predict expects histories of shape (n, {self.seq_len}, {self.n_channels}), not {values.shape}."
            )
        parameter = next(self.module.parameters())
        self.module.eval()
        outputs = [np.empty((0, self.pred_len, self.n_channels))]
        for start in range(0, len(values), self.batch_size):
            batch = self.scaler.normalize(values[start : start + self.batch_size])
            if self.stamp is not None:
                batch = batch.copy()
                batch[:, -len(self.stamp) :] += self.stamp
            tensor = torch.from_numpy(batch).to(parameter.dtype).to(parameter.device)
            output = self.module(tensor).cpu().double().numpy() - self.output_shift
            outputs.append(output * self.scaler.std + self.scaler.mean)
        return np.concatenate(outputs)

    def save(self, folder: Path) -> None:
        """Write ``forecaster.safetensors`` and ``forecaster.json``. Only built-in networks name what rebuilds them."""
        from safetensors.torch import save_file

        state = {name: value.detach().cpu().contiguous() for name, value in self.module.state_dict().items()}
        description = {
            "schema": SCHEMA,
            "forecaster": self.forecaster,
            "forecaster_options": self.forecaster_options,
            "seq_len": self.seq_len,
            "pred_len": self.pred_len,
            "n_channels": self.n_channels,
            "dtype": str(next(self.module.parameters()).dtype).removeprefix("torch."),
            "mean": self.scaler.mean.tolist(),
            "std": self.scaler.std.tolist(),
            "stamp": None if self.stamp is None else self.stamp.tolist(),
            "output_shift": self.output_shift,
        }
        weights, text = folder / WEIGHTS, folder / DESCRIPTION
        part = weights.with_suffix(".part")
        save_file(state, part)
        part.replace(weights)
        part = text.with_suffix(".part")
        part.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        part.replace(text)

    @classmethod
    def load(cls, folder: Path, build: Build | None = None) -> FittedForecaster:
        """Read what :meth:`save` wrote; ``build`` is needed only for a network that is not built in."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        folder = Path(folder)
        try:
            description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
            state = load_file(folder / WEIGHTS)
        except (OSError, ValueError, SafetensorError) as error:
            raise InputError(f"{folder} holds no readable forecaster ({DESCRIPTION}, {WEIGHTS}): {error}") from None
        if description.get("schema") != SCHEMA:
            raise InputError(f"{folder / DESCRIPTION} has schema {description.get('schema')!r}, expected {SCHEMA!r}.")
        name = description["forecaster"]
        if build is None:
            if name not in FORECASTERS:
                raise InputError(
                    f"{folder} holds a network of your own: pass its factory, FittedForecaster.load(folder, build=...)."
                )
            build = factory(name, description["forecaster_options"])
        sizes = (description["seq_len"], description["pred_len"], description["n_channels"])
        with torch.random.fork_rng():
            module = build(*sizes).to(dtype=getattr(torch, description["dtype"]))
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            raise InputError(f"{folder}: the weights do not fit the described network: {error}") from None
        stamp = description["stamp"]
        return cls(
            module,
            Scaler(np.array(description["mean"]), np.array(description["std"])),
            *sizes,
            forecaster=name,
            forecaster_options=description["forecaster_options"],
            stamp=None if stamp is None else np.array(stamp),
            output_shift=description["output_shift"],
        )
