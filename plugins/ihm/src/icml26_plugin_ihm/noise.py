"""Where randomness comes from: NumPy for experiments, OpenDP's samplers for releases that must withstand attack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from types import ModuleType

Array = NDArray[np.float64]


class NoiseSource(Protocol):
    """What a mechanism draws: standard normals, chi-squares, and Gaussian releases of a value."""

    def normal(self, shape: tuple[int, ...]) -> Array:
        """Independent N(0, 1) draws."""
        ...

    def chi_square(self, degrees: Array, repeats: int) -> Array:
        """Independent chi-square draws, shape (repeats, len(degrees)); `degrees` are positive integers."""
        ...

    def release(self, values: Array, sigma: float) -> Array:
        """`values` (R, m) plus independent N(0, sigma^2) noise."""
        ...


class NumpyNoise:
    """Draws of a NumPy generator: fast, vectorised and reproducible; floating-point noise, not hardened."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator

    def normal(self, shape: tuple[int, ...]) -> Array:
        return self.generator.standard_normal(shape)

    def chi_square(self, degrees: Array, repeats: int) -> Array:
        return self.generator.chisquare(degrees, size=(repeats, len(degrees)))

    def release(self, values: Array, sigma: float) -> Array:
        return values + sigma * self.generator.standard_normal(values.shape)


class SecureNoise:
    """Draws of OpenDP: a cryptographic generator and, in `release`, a sampler that is exact for floating point.

    Releases of values (eigenvalue, scores) are OpenDP measurements: their rounding is part of OpenDP's proof. The
    sketch's normals come from the same sampler, but the products that follow are ordinary float64 arithmetic.
    Needs the extra `secure`. It takes no seed.
    """

    def __init__(self) -> None:
        self._opendp = _opendp()

    def _gaussian(self, values: Array, sigma: float) -> Array:
        dp = self._opendp
        domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=float(sigma))
        return np.asarray(measurement([float(v) for v in values.ravel()]), dtype=np.float64).reshape(values.shape)

    def normal(self, shape: tuple[int, ...]) -> Array:
        return self._gaussian(np.zeros(shape), 1.0)

    def chi_square(self, degrees: Array, repeats: int) -> Array:
        columns = [np.square(self.normal((repeats, int(degree)))).sum(axis=1) for degree in degrees]
        return np.stack(columns, axis=1)

    def release(self, values: Array, sigma: float) -> Array:
        return values.copy() if sigma == 0 else self._gaussian(values, sigma)


def _opendp() -> ModuleType:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise ImportError(
            "secure=True needs OpenDP's samplers: pip install 'icml26-plugin-ihm[secure]' (opendp>=0.13)"
        ) from error
    dp.enable_features("contrib")
    return dp
