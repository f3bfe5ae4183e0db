"""A checkpoint file that is replaced as a whole, read without unpickling code, and refused for another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from icml26.errors import EnvironmentError_, InputError


class Checkpoint:
    """``path`` of the file; ``identity`` of data, seed and settings; written every ``every`` steps and at the end."""

    def __init__(self, path: Path, identity: str, every: int = 1000) -> None:
        if every < 1:
            raise InputError(f"checkpoint_every={every} must be at least 1.")
        self.path, self.identity, self.every = path, identity, every
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._part.touch()
            self._part.unlink()
        except OSError as error:
            raise EnvironmentError_(f"{path} cannot be written: {error}.") from None

    @property
    def _part(self) -> Path:
        return self.path.with_name(self.path.name + ".part")

    def due(self, step: int, steps: int) -> bool:
        """Whether to write after this step."""
        return step % self.every == 0 or step == steps

    def write(self, state: dict[str, Any]) -> None:
        """Store ``state`` (tensors, arrays, numbers, strings, lists and dicts of these)."""
        torch.save({"identity": self.identity, "state": _tensors(state)}, self._part)
        self._part.replace(self.path)

    def read(self) -> dict[str, Any] | None:
        """The stored state, None when there is no file; InputError for a damaged one or one of another run."""
        if not self.path.exists():
            return None
        try:
            stored = torch.load(self.path, map_location="cpu", weights_only=True)
            found, state = stored["identity"], dict(stored["state"])
        except Exception as error:  # noqa: BLE001 - torch raises many kinds for a damaged archive
            raise InputError(
                f"The checkpoint {self.path} cannot be read ({type(error).__name__}): delete it to start anew."
            ) from None
        if found != self.identity:
            raise InputError(
                f"The checkpoint {self.path} belongs to another run (data, seed or options differ): delete it or name another."
            )
        return state


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, dict):
        return {k: _tensors(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_tensors(v) for v in value]
    return value
