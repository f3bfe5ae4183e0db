"""A checkpoint of Stage II after each round: weights, optimiser, pool, and what identifies the run."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from icml26.errors import EnvironmentError_, InputError

from icml26_plugin_timeguard.session import Session
from icml26_plugin_timeguard.settings import PoolSettings

FORMAT = 1


def run_identity(session: Session, settings: PoolSettings) -> str:
    """A hash of data, seed and all settings: a checkpoint of another run must not be continued."""
    sha = hashlib.sha256(session.train.tobytes())
    sha.update(b"" if session.val is None else session.val.tobytes())
    sizes = (session.train.shape, session.seq_len, session.pred_len, session.seed)
    sha.update(repr((FORMAT, sizes, asdict(session.training), asdict(settings))).encode())
    return sha.hexdigest()


def check_writable(path: Path) -> None:
    """Make the folder of ``path``; EnvironmentError_, before any training, when nothing can be written there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = path.with_name(path.name + ".part")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise EnvironmentError_(f"{path} cannot be written: {error}.") from None


@dataclass(frozen=True)
class Checkpoint:
    """A file that is replaced as a whole after each round; read without unpickling code."""

    path: Path

    def write(self, identity: str, state: dict[str, Any]) -> None:
        """Store ``state`` (tensors, arrays, numbers, strings) of the run ``identity``."""
        part = self.path.with_name(self.path.name + ".part")
        torch.save({"identity": identity, **_tensors(state)}, part)
        part.replace(self.path)

    def read(self, identity: str) -> dict[str, Any] | None:
        """The stored state, None when there is no file; InputError for a damaged one or one of another run."""
        if not self.path.exists():
            return None
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
            found = state.pop("identity")
        except Exception as error:  # noqa: BLE001 - torch raises many kinds for a damaged archive
            raise InputError(
                f"The checkpoint {self.path} cannot be read ({type(error).__name__}): delete it to start anew."
            ) from None
        if found != identity:
            raise InputError(
                f"The checkpoint {self.path} belongs to another run (data, seed or options differ): delete it or name another."
            )
        return dict(state)


def _tensors(state: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for name, v in state.items()}
