"""Every option of training, with the paper's defaults, and the progress and log callbacks that training takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal, Protocol, TypeVar, get_args, get_origin, get_type_hints

from icml26.errors import InputError

from icml26_plugin_subspace_sae.autoencoder import Activation
from icml26_plugin_subspace_sae.initialisation import Initialisation
from icml26_plugin_subspace_sae.normalisation import Normalisation

T = TypeVar("T")


class Progress(Protocol):
    """Wraps an iterable and reports how far it is."""

    def __call__(self, iterable: Iterable[T], label: str = "", total: int | None = None) -> Iterator[T]: ...


class Log(Protocol):
    """Takes one point of a curve."""

    def __call__(self, name: str, value: float, step: int | None = None) -> None: ...


def silent(iterable: Iterable[T], label: str = "", total: int | None = None) -> Iterator[T]:
    """Progress that shows nothing."""
    yield from iterable


def forget(name: str, value: float, step: int | None = None) -> None:
    """A log that keeps nothing."""


@dataclass(frozen=True)
class Dictionary:
    """The dictionary: ``n_features`` m, or ``expansion`` times the width when None; see :class:`.Architecture` for the rest.

    ``normalisation`` scales rows to a mean norm of sqrt(d), over the data set (frozen, folded into the weights at the end), row
    by row, or batch by batch.
    """

    n_features: int | None = None
    expansion: int = 32
    activation: Activation = "topk"
    k: int = 50
    gate_by_decoder_norm: bool = True
    normalisation: Normalisation = "dataset"
    bandwidth: float = 0.001
    initial_threshold: float = 0.001

    def features(self, d_out: int) -> int:
        """m for targets of ``d_out`` dimensions."""
        return self.n_features if self.n_features is not None else self.expansion * d_out


@dataclass(frozen=True)
class Sparsity:
    """Penalties of relu and jumprelu: ``coefficient`` lambda on the L_p norm (or ``tanh``) of z ‖W_D‖, warmed up linearly.

    ``pre_activation`` weighs the penalty relu(threshold - h) ‖W_D‖ of jumprelu, which pulls silent features towards firing.
    """

    coefficient: float = 8e-5
    penalty: Literal["norm", "tanh"] = "norm"
    p: float = 1.0
    warmup: float = 0.1
    pre_activation: float = 0.0


@dataclass(frozen=True)
class Revival:
    """Remedies for dead features beside the paper's: AuxK (``auxk`` its coefficient, 0 is off) and resampling.

    ``k_aux`` None is d/2; every ``resample_every`` steps dead features are drawn anew from badly reconstructed rows, until
    ``resample_until`` of all steps.
    """

    auxk: float = 0.0
    k_aux: int | None = None
    resample_every: int | None = None
    resample_until: float = 0.8


@dataclass(frozen=True)
class Optimisation:
    """How weights are learnt: ``steps``, or ``tokens`` rows, or ``epochs`` passes, in this order.

    ``warmup`` and ``cooldown`` are steps, or below 1 shares of all steps; the rate ends at ``final_lr`` times ``lr``.
    ``initial_k`` is annealed to k over ``k_warmup`` of all steps. ``threshold_lr_factor`` is for jumprelu's thresholds, which
    clipping leaves out. ``buffer`` batches are held for shuffling a stream. ``amp`` is the type of the large product, ``dtype``
    that of the weights.
    """

    optimizer: Literal["sparseadam", "adam"] = "sparseadam"
    lr: float = 4e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    batch_size: int = 4096
    steps: int | None = None
    tokens: int | None = None
    epochs: float = 1.0
    warmup: float = 5000
    cooldown: float = 0.2
    final_lr: float = 1 / 32
    clip: float | None = None
    initial_k: int | None = None
    k_warmup: float = 0.1
    k_schedule: Literal["linear", "exponential"] = "linear"
    threshold_lr_factor: float = 1.0
    dead_threshold: int = 10_000_000
    buffer: int = 8
    amp: Literal["none", "bfloat16"] = "none"
    dtype: Literal["float32", "float64"] = "float32"
    log_points: int = 100

    def n_steps(self, rows: int | None) -> int:
        """All steps T for data of ``rows`` rows, None if unknown."""
        if self.steps is not None:
            return self.steps
        if self.tokens is not None:
            return max(self.tokens // self.batch_size, 1)
        if rows is None:
            raise InputError("The number of rows of this source is not known: give steps or tokens instead of epochs.")
        return max(int(self.epochs * (rows // self.batch_size)), 1)


@dataclass(frozen=True)
class TrainingSettings:
    """All of it."""

    dictionary: Dictionary = field(default_factory=Dictionary)
    initialisation: Initialisation = field(default_factory=Initialisation)
    optimisation: Optimisation = field(default_factory=Optimisation)
    sparsity: Sparsity = field(default_factory=Sparsity)
    revival: Revival = field(default_factory=Revival)

    def check(self, d_in: int, d_out: int) -> None:
        """Raise InputError naming the option that makes no sense for these widths."""
        o, d, r = self.optimisation, self.dictionary, self.revival
        for part in (d, self.initialisation, o, self.sparsity, r):
            _check_types(part)
        m = d.features(d_out)
        for name, value, least in (
            ("batch_size", o.batch_size, 1),
            ("buffer", o.buffer, 2),
            ("steps", o.steps, 1),
            ("tokens", o.tokens, 1),
            ("initial_k", o.initial_k, d.k),
            ("k_aux", r.k_aux, 1),
            ("resample_every", r.resample_every, 1),
            ("dead_threshold", o.dead_threshold, 1),
            ("rows", self.initialisation.rows, 2),
            ("warmup", o.warmup, 0),
            ("cooldown", o.cooldown, 0),
        ):
            if value is not None and value < least:
                raise InputError(f"{name}={value} must be at least {least}.")
        for name, number in (("lr", o.lr), ("epochs", o.epochs), ("eps", o.eps)):
            if not (number > 0 and math.isfinite(number)):
                raise InputError(f"{name}={number} must be above 0.")
        if o.initial_k is not None and o.initial_k > m:
            raise InputError(f"initial_k={o.initial_k} exceeds the number of features, {m}.")
        if self.initialisation.subspace == "hard" and d.normalisation in ("token", "batch") and d_in != d_out:
            raise InputError("subspace='hard' of a transcoder between widths needs normalisation 'dataset' or 'none'.")


def _check_types(part: Any) -> None:
    """InputError for a word that is no choice (an ``else`` would take it for the other), a fraction as a count, and NaN."""
    for name, hint in get_type_hints(type(part)).items():
        value = getattr(part, name)
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise InputError(f"{name}={value!r} is unknown; there are {', '.join(map(str, get_args(hint)))}.")
        counts = hint is int or (hint == int | None and value is not None)
        if counts and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise InputError(f"{name}={value!r} must be a whole number.")
        if hint is float and (isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value)):
            raise InputError(f"{name}={value!r} must be a number.")
