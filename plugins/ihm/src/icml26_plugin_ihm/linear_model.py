"""What every private linear model shares: checks, bounds, noise, the user's units, the report."""

from __future__ import annotations

import math
import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from icml26_plugin_ihm.bounds import Bounds, PrivacyLeakWarning, XBound, YBound, check_bounds, resolve_bounds
from icml26_plugin_ihm.noise import NoiseSource, NumpyNoise, SecureNoise
from icml26_plugin_ihm.report import Plan, PrivacyReport, privacy_report
from icml26_plugin_ihm.rows import Batches, BoundedRows, Moments

RandomState = int | np.random.Generator | np.random.RandomState | None


def as_generator(random_state: RandomState) -> np.random.Generator:
    """A NumPy generator from what scikit-learn calls a random state; None takes fresh entropy."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint32))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"random_state must be None, a non-negative integer, a Generator or a RandomState, got {random_state!r}"
        ) from error


#: Where the calibration is still checked; any budget beyond 20 or so says nothing about a person already.
LARGEST_EPSILON = 1e9


class Budget(NamedTuple):
    """A privacy budget."""

    epsilon: float
    delta: float


def check_budget(epsilon: float, delta: float | None, n: int) -> Budget:
    """The budget with delta defaulting to 1/n^2; `ValueError` when out of range, a warning when delta > 1/n."""
    if isinstance(epsilon, bool) or not (
        isinstance(epsilon, int | float | np.number) and math.isfinite(epsilon) and epsilon > 0
    ):
        raise ValueError(f"epsilon must be positive and finite, got {epsilon!r}")
    if epsilon > LARGEST_EPSILON:
        raise ValueError(f"epsilon={epsilon:g} is no privacy at all; at most {LARGEST_EPSILON:g} can be calibrated")
    delta = 1.0 / n**2 if delta is None else delta
    if not (isinstance(delta, int | float | np.number) and 0.0 < delta < 1.0):
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta!r}")
    if delta > 1.0 / n:
        warnings.warn(
            f"delta={delta:g} exceeds 1/n={1 / n:g}: a mechanism that publishes random rows would meet it", stacklevel=4
        )
    return Budget(float(epsilon), float(delta))


def check_count(value: object, name: str, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


class Releases(NamedTuple):
    """What a mechanism released: coefficients (R, d) of the bounded problem, and the plan they were released under."""

    theta: NDArray[np.float64]
    plan: Plan


class Simulation(NamedTuple):
    """R independent fits of the same rows, in the user's units."""

    coef: NDArray[np.float64]
    """Shape (R, d)."""
    intercept: NDArray[np.float64]
    """Shape (R,)."""
    bounds: Bounds
    report: PrivacyReport
    """The budget of one of them; publishing all of them spends R times as much."""


@dataclass(eq=False, repr=False)
class PrivateLinearModel(RegressorMixin, BaseEstimator):
    """What all private linear models share: parameters, bounds, noise, units, report. Subclasses say how theta is released.

    Each is a dataclass: that writes the `__init__` which scikit-learn reads parameters from, and which only stores them.
    """

    epsilon: float = 1.0
    delta: float | None = None
    _: KW_ONLY
    x_bound: XBound = 1.0
    y_bound: YBound = 1.0
    fit_intercept: bool = False
    clip_inputs: bool = True
    random_state: RandomState = None
    secure: bool = False
    chunk_rows: int | None = None
    diagnostics: bool = False

    def _release(
        self, rows: BoundedRows, moments: Moments, budget: Budget, noise: NoiseSource, repeats: int
    ) -> Releases:
        raise TypeError(f"{type(self).__name__} is a base class")

    def _check_parameters(self) -> None:
        check_bounds(self.x_bound, self.y_bound)
        for name in ("fit_intercept", "clip_inputs", "secure", "diagnostics"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.secure and self.random_state is not None:
            raise ValueError("secure=True draws from the operating system and takes no seed; leave random_state=None")
        if self.chunk_rows is not None:
            check_count(self.chunk_rows, "chunk_rows", 1)

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to X (n, d) and y (n,), n >= 2. Each call spends the budget (epsilon, delta) of these rows once more.

        Raises `ValueError` for values that are not finite, bad parameters, or, with `clip_inputs=False`, rows beyond
        the bounds.
        """
        return self._fit(*self._array_rows(X, y))

    def fit_stream(self, batches: Batches, n_features: int) -> Self:
        """Fit to rows that are never in memory at once.

        `batches()` is called once a pass and yields (X (m, n_features), y (m,)), the same rows each time. Bounds must be
        numbers.
        """
        self._check_parameters()
        check_count(n_features, "n_features", 1)
        if "data" in (self.x_bound, self.y_bound):
            raise ValueError("fit_stream needs x_bound and y_bound as numbers")
        if not callable(batches):
            raise ValueError("batches must be a function: it is called once a pass and yields (X, y) pairs each time")
        nothing = np.empty((0, n_features))
        self.n_features_in_ = n_features
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        bounds = resolve_bounds(nothing, nothing[:, 0], self.x_bound, self.y_bound)
        return self._fit(self._bounded(batches, n_features, bounds), bounds)

    def simulate(self, X: ArrayLike, y: ArrayLike, repeats: int) -> Simulation:
        """`repeats` independent fits of the same rows with the passes over them shared: for experiments on public data."""
        check_count(repeats, "repeats", 1)
        rows, bounds = self._array_rows(X, y)
        _, releases = self._draw(rows, repeats)
        return Simulation(*self._in_user_units(releases.theta, bounds), bounds, self._report(releases.plan, bounds))

    def _array_rows(self, X: ArrayLike, y: ArrayLike) -> tuple[BoundedRows, Bounds]:
        self._check_parameters()
        checked = validate_data(self, X, y, dtype=[np.float64, np.float32], y_numeric=True, ensure_min_samples=2)
        rows, labels = np.asarray(checked[0]), np.asarray(checked[1])
        bounds = resolve_bounds(rows, labels, self.x_bound, self.y_bound)
        return self._bounded(lambda: [(rows, labels)], rows.shape[1], bounds), bounds

    def _bounded(self, batches: Batches, n_features: int, bounds: Bounds) -> BoundedRows:
        return BoundedRows(
            batches,
            n_features,
            bounds,
            intercept=self.fit_intercept,
            clip=self.clip_inputs,
            chunk_rows=self.chunk_rows,
        )

    def _draw(self, rows: BoundedRows, repeats: int) -> tuple[Moments, Releases]:
        moments = rows.moments()
        if moments.n < 2:
            raise ValueError(f"n_samples = {moments.n}: at least 2 rows are needed")
        budget = check_budget(self.epsilon, self.delta, moments.n)
        if moments.n < rows.d:
            warnings.warn(
                f"{moments.n} rows for {rows.d} coefficients: still private, but the noise will dominate", stacklevel=4
            )
        noise: NoiseSource = SecureNoise() if self.secure else NumpyNoise(as_generator(self.random_state))
        return moments, self._release(rows, moments, budget, noise, repeats)

    def _fit(self, rows: BoundedRows, bounds: Bounds) -> Self:
        moments, releases = self._draw(rows, 1)
        self.plan_ = releases.plan
        self.privacy_report_: PrivacyReport = self._report(releases.plan, bounds)
        coef, intercept = self._in_user_units(releases.theta, bounds)
        self.coef_, self.intercept_ = coef[0], float(intercept[0])
        if self.diagnostics:
            self._diagnose(rows, moments, releases.theta)
        return self

    def _report(self, plan: Plan, bounds: Bounds) -> PrivacyReport:
        return privacy_report(
            plan,
            bounds_from_data=bounds.from_data,
            secure_noise=bool(self.secure),
            seeded_noise=self.random_state is not None,
        )

    def _in_user_units(
        self, theta: NDArray[np.float64], bounds: Bounds
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coefficients (R, d) and intercepts (R,) of the user's problem from those of the bounded one."""
        centre, half_width = bounds.label_frame(self.fit_intercept)
        if not self.fit_intercept:
            return half_width * theta / bounds.x, np.zeros(len(theta))
        scaled = half_width * math.sqrt(0.5) * theta
        return scaled[:, :-1] / bounds.x, centre + scaled[:, -1]

    def _diagnose(self, rows: BoundedRows, moments: Moments, theta: NDArray[np.float64]) -> None:
        warnings.warn("diagnostics_ is computed from private data: do not publish it", PrivacyLeakWarning, stacklevel=4)
        eigenvalues = np.linalg.eigvalsh(moments.gram)
        self.diagnostics_: dict[str, float] = {
            "least_eigenvalue": max(0.0, float(eigenvalues[0])),
            "largest_eigenvalue": float(eigenvalues[-1]),
            "clipped_rows": moments.outside / moments.n,
            "clipped_residuals": float(rows.clipped_fraction(theta)[0]),
        }

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predicted labels (n,) of X (n, d), in the units of y."""
        check_is_fitted(self, "coef_")
        rows = np.asarray(validate_data(self, X, reset=False, dtype=[np.float64, np.float32]))
        return np.asarray(rows @ self.coef_ + self.intercept_, dtype=np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The common tests fit tens of rows with unit bounds: noise rules there, as it must.
        tags.regressor_tags.poor_score = True
        return tags
