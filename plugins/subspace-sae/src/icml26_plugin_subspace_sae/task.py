"""Types of the task ``dictionaries.activations``; standard library and numpy only.

A method is handed activations (and, for a transcoder, targets) and returns a sparse dictionary: an object that encodes rows to
sparse non-negative codes and decodes those again. What only metrics may see stands in the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class ActivationSource(Protocol):
    """Activations too large for memory: memory-mapped, or computed by a model while they are read.

    Every call of :meth:`blocks` starts from the beginning and gives the same rows in the same order.
    """

    @property
    def width(self) -> int:
        """Number of dimensions d of a row."""

    @property
    def rows(self) -> int | None:
        """Number of rows n, or None while it is not known."""

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Blocks (≤ size, d) float32 in order; none is empty."""


class Dictionary(Protocol):
    """What a method returns. Raw activations go in and come out: any normalisation is folded in or done inside."""

    @property
    def decoder(self) -> np.ndarray:
        """Feature directions (m, d) float32, not normalised."""

    def encode(self, x: np.ndarray) -> np.ndarray:
        """Codes (n, m) float32, non-negative, of raw rows (n, d). Callers pass blocks of a few thousand rows at most."""

    def decode(self, z: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        """Reconstructions (n, d) float32, in raw units, of codes (n, m).

        ``x`` (n, d) are the rows that the codes came from: pass them where they are at hand. Dictionaries that normalise every
        row by itself need them, all others ignore them.
        """


@dataclass(frozen=True)
class Inputs:
    """What a method may see.

    ``activations`` (n, d) float32, or an :class:`ActivationSource`; ``targets`` of the same kind and length, or None when the
    activations themselves are to be reconstructed; ``name`` of the data; ``source_info`` JSON values for people to read
    (model, hook point, rows dropped and why).
    """

    activations: np.ndarray | ActivationSource
    targets: np.ndarray | ActivationSource | None = None
    name: str = "activations"
    source_info: dict[str, Any] = field(default_factory=dict)


class LossProbe(Protocol):
    """How much of a model's next-token loss survives the replacement of its activations.

    ``original`` and ``ablated`` (zeroed activations) are the two ends, mean cross entropy in nats.
    """

    @property
    def original(self) -> float:
        """Loss of the model as it is."""

    @property
    def ablated(self) -> float:
        """Loss with the activations set to zero."""

    def loss(self, replace: Callable[[np.ndarray], np.ndarray], /) -> float:
        """Loss with raw rows (n, d) replaced by ``replace(rows)`` of the same shape."""


@dataclass(frozen=True)
class Truth:
    """What metrics see.

    ``activations`` (n_test, d) float32 held-out rows; ``targets`` (n_test, d_out) for a transcoder; ``features`` (n_f, d) true
    directions (word ``true-features``); ``basis`` (d, r) orthonormal basis of the subspace that the data live in, when known;
    ``loss_probe`` with the word ``model``.
    """

    activations: np.ndarray
    targets: np.ndarray | None = None
    features: np.ndarray | None = None
    basis: np.ndarray | None = None
    loss_probe: LossProbe | None = None


@dataclass(frozen=True)
class History:
    """Curves of one training; all arrays (n_logged,) float64 but ``step``.

    ``step`` int64 optimiser steps done; ``loss`` training loss in normalised units; ``fvu`` fraction of variance unexplained of
    the batch; ``l0`` mean active features a row; ``dead`` share of features silent for ``dead_threshold`` rows; ``lr``.
    """

    step: np.ndarray
    loss: np.ndarray
    fvu: np.ndarray
    l0: np.ndarray
    dead: np.ndarray
    lr: np.ndarray


@dataclass(frozen=True)
class Output:
    """A dictionary; ``info`` JSON values for people; ``history`` where the method trains.

    ``initial_decoder`` (m, d) float32, the decoder before the first step in raw units, when the method keeps it (reports on
    which features died need it).
    """

    sae: Dictionary
    info: dict[str, Any] = field(default_factory=dict)
    history: History | None = None
    initial_decoder: np.ndarray | None = None
