"""Dictionaries without gradient descent: principal directions, frozen random atoms, scikit-learn's dictionary learning."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from icml26.errors import InputError

from icml26_plugin_subspace_sae.rank import Spectrum


def keep_top(values: np.ndarray, k: int) -> np.ndarray:
    """The ``k`` largest positive values of each row (n, m), all others 0; of equal values the ones further left stay."""
    kept = np.zeros_like(values)
    if k <= 0:
        return kept
    k = min(k, values.shape[1])
    edge = np.partition(values, values.shape[1] - k, axis=1)[:, -k][:, None]
    above = values > edge
    ties = (values == edge) & (np.cumsum(values == edge, axis=1) <= k - above.sum(axis=1, keepdims=True))
    chosen = (above | ties) & (values > 0)
    kept[chosen] = values[chosen]
    return kept


@dataclass(frozen=True)
class LinearDictionary:
    """Codes (x - bias) W_E, all of them or the ``k`` largest positive ones; reconstructions z W_D + bias.

    ``encoder`` (d, m), ``decoder`` (m, d) and ``bias`` (d,). Without ``k`` codes are signed and dense, as those of principal
    components are.
    """

    encoder: np.ndarray
    decoder: np.ndarray
    bias: np.ndarray
    k: int | None = None

    def encode(self, x: np.ndarray) -> np.ndarray:
        """Codes (n, m) float32."""
        codes = (np.asarray(x, dtype=np.float32) - self.bias.astype(np.float32)) @ self.encoder.astype(np.float32)
        return codes if self.k is None else keep_top(codes, self.k)

    def decode(self, z: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        """Reconstructions (n, d) float32."""
        rows: np.ndarray = z @ self.decoder.astype(np.float32) + self.bias.astype(np.float32)
        return rows


def principal_dictionary(spectrum: Spectrum, k: int) -> LinearDictionary:
    """The top ``k`` principal directions: no linear code of k numbers reconstructs better."""
    if not 1 <= k <= spectrum.width:
        raise InputError(f"k={k} must be between 1 and d={spectrum.width}: there are no more principal directions.")
    basis = spectrum.top(k).astype(np.float32)
    return LinearDictionary(basis, np.ascontiguousarray(basis.T), spectrum.mean.astype(np.float32))


def random_dictionary(rng: np.random.Generator, rows: np.ndarray, m: int, k: int) -> LinearDictionary:
    """Frozen random unit atoms with top-k correlations as codes, and the one gain that fits ``rows`` (n, d) best.

    Without the gain overlapping atoms add up to more than the row, and the baseline would be weaker than it has to be.
    """
    check_sizes(m, k)
    d = rows.shape[1]
    atoms = rng.standard_normal((m, d))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    atoms = atoms.astype(np.float32)
    bias = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    plain = LinearDictionary(np.ascontiguousarray(atoms.T), atoms, bias, k)
    centred = rows - bias
    guess = plain.decode(plain.encode(rows)) - bias
    power = float((guess.astype(np.float64) ** 2).sum())
    gain = float((guess.astype(np.float64) * centred).sum()) / power if power > 0 else 1.0
    return LinearDictionary(plain.encoder * np.float32(gain), atoms, bias, k)


def check_sizes(m: int, k: int) -> None:
    """Raise InputError unless 1 <= k <= m."""
    if not 1 <= k <= m:
        raise InputError(f"k={k} must be between 1 and the number of features, m={m}.")


@dataclass(frozen=True)
class PursuitDictionary:
    """Unit atoms (m, d) with codes by orthogonal matching pursuit: at most ``k`` signed non-zeros a row."""

    decoder: np.ndarray
    bias: np.ndarray
    k: int
    _gram: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_gram", self.decoder.astype(np.float64) @ self.decoder.astype(np.float64).T)

    def encode(self, x: np.ndarray) -> np.ndarray:
        """Codes (n, m) float32."""
        from sklearn.linear_model import orthogonal_mp_gram

        centred = np.asarray(x, dtype=np.float64) - self.bias
        with warnings.catch_warnings():
            # A row that fewer than k atoms reconstruct exactly ends the pursuit early, which is what is wanted.
            warnings.simplefilter("ignore", RuntimeWarning)
            codes = orthogonal_mp_gram(self._gram, self.decoder @ centred.T, n_nonzero_coefs=self.k)
        dense: np.ndarray = codes.reshape(len(self.decoder), -1).T.astype(np.float32)
        return dense

    def decode(self, z: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        """Reconstructions (n, d) float32."""
        rows: np.ndarray = z @ self.decoder + self.bias.astype(np.float32)
        return rows


def learned_dictionary(
    rows: np.ndarray, m: int, k: int, *, alpha: float, batch_size: int, max_iter: int, seed: int
) -> PursuitDictionary:
    """scikit-learn's MiniBatchDictionaryLearning on rows (n, d) about their mean, unit atoms, coded by pursuit of ``k``."""
    check_sizes(m, k)
    with _global_generators_kept():
        return _learned(rows, m, k, alpha=alpha, batch_size=batch_size, max_iter=max_iter, seed=seed)


@contextmanager
def _global_generators_kept() -> Iterator[None]:
    """scikit-learn moves the global generators when it is imported, and numpy's when it fits, whatever its random_state."""
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def _learned(
    rows: np.ndarray, m: int, k: int, *, alpha: float, batch_size: int, max_iter: int, seed: int
) -> PursuitDictionary:
    from sklearn.decomposition import MiniBatchDictionaryLearning
    from sklearn.exceptions import ConvergenceWarning

    mean = rows.mean(axis=0, dtype=np.float64)
    learner: Any = MiniBatchDictionaryLearning(
        n_components=m,
        alpha=alpha,
        batch_size=batch_size,
        max_iter=max_iter,
        fit_algorithm="cd",
        random_state=seed,
        n_jobs=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        learner.fit(np.asarray(rows, dtype=np.float64) - mean)
    atoms = learner.components_
    norm = np.linalg.norm(atoms, axis=1, keepdims=True)
    # An atom of length zero would never be chosen and would divide by zero.
    atoms = atoms / np.where(norm > 0, norm, 1.0)
    return PursuitDictionary(atoms.astype(np.float32), mean.astype(np.float32), k)
