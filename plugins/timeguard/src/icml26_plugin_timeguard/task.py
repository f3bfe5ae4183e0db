"""Types of the task ``forecasting.backdoor-defense``; standard library and numpy only.

A defence is handed an untrusted training series and returns a forecaster. What the attacker did stands in the truth, which only
metrics see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np


class Forecaster(Protocol):
    """What a defence returns: forecasts in the units of the data."""

    def predict(self, history: np.ndarray) -> np.ndarray:
        """Forecasts (n, L_out, C) of histories (n, L_in, C)."""


@dataclass(frozen=True)
class CleanWindows:
    """A small trusted set of windows for defences that need one: ``history`` (n, L_in, C), ``future`` (n, L_out, C)."""

    history: np.ndarray
    future: np.ndarray


@dataclass(frozen=True)
class Inputs:
    """What a defence may see.

    ``train`` (T, C) float64, untrusted, physical units; ``val`` (T_val, C), the part after it, for model selection;
    ``channels`` names; ``timestamps`` (T,) datetime64 of the training part or None; ``clean`` only with the word
    ``clean-subset``.
    """

    train: np.ndarray
    val: np.ndarray
    seq_len: int
    pred_len: int
    channels: tuple[str, ...]
    timestamps: np.ndarray | None = None
    clean: CleanWindows | None = None


@dataclass(frozen=True)
class Attack:
    """What the attacker planted, and what it wants at test time.

    ``channels`` (k,) attacked ids; ``starts`` first trigger steps in the training part; ``pattern`` (P,) physical;
    ``poisoned`` (C, N) bool, the poisoned training units; ``trigger`` (n, trigger steps, k) replaces the end of each test
    window's history on the attacked channels; ``target`` (n, P, k) is what the attacker wants forecast there.
    """

    name: str
    channels: np.ndarray
    starts: np.ndarray
    pattern: np.ndarray
    poisoned: np.ndarray
    trigger: np.ndarray
    target: np.ndarray

    def triggered(self, history: np.ndarray, windows: slice | np.ndarray = slice(None)) -> np.ndarray:
        """A copy of test histories (n, L_in, C) with the trigger of these ``windows`` at their end."""
        stamped = np.array(history)
        steps = self.trigger.shape[1]
        stamped[:, -steps:, self.channels] = self.trigger[windows]
        return stamped


@dataclass(frozen=True)
class Truth:
    """What metrics see: the ``test`` part (T_test, C), and, when an attack was planted, it and the clean training part."""

    test: np.ndarray
    seq_len: int
    pred_len: int
    clean_train: np.ndarray | None = None
    attack: Attack | None = None


@dataclass(frozen=True)
class Pool:
    """Which training units (C, N) a defence trusted: ``initial`` after its first stage, ``final`` in the end.

    ``rejections`` (C, N) counts the selection rounds, out of ``rounds``, in which a unit was left out.
    """

    initial: np.ndarray
    final: np.ndarray
    rejections: np.ndarray
    rounds: int


@dataclass(frozen=True)
class Output:
    """A defended forecaster; ``pool`` for defences that select units; ``info`` JSON values for people to read."""

    forecaster: Forecaster
    pool: Pool | None = None
    info: dict[str, Any] = field(default_factory=dict)
