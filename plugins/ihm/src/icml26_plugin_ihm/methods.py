"""Adapters between the task `regression.tabular` and the native estimators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from icml26 import InputError, Method, MethodConfig, Problem, RunContext
from icml26.tasks.tabular import Inputs, Output, Truth
from pydantic import Field, model_validator

from icml26_plugin_ihm.bounds import check_bounds
from icml26_plugin_ihm.calibration import Accounting, DescentAccounting, Shift, linear_mixing_k
from icml26_plugin_ihm.estimators import AdaSSP as AdaSSPEstimator
from icml26_plugin_ihm.estimators import IterativeHessianMixing, NoisyGradientDescent
from icml26_plugin_ihm.estimators import LinearMixing as LinearMixingEstimator
from icml26_plugin_ihm.linear_model import PrivateLinearModel
from icml26_plugin_ihm.predictor import OneHot, linear_output, load_linear, save_linear
from icml26_plugin_ihm.report import PrivacyReport
from icml26_plugin_ihm.sketch import Sketch


class PrivateConfig(MethodConfig):
    """Budget, bounds and repetition, shared by every private method."""

    epsilon: float = Field(1.0, gt=0, allow_inf_nan=False, description="Privacy budget epsilon of one fit.")
    delta: float | None = Field(None, gt=0, lt=1, description="Privacy budget delta of one fit; None is 1/n^2.")
    x_bound: float | Literal["data"] = Field(
        1.0, description="Largest row norm, from public knowledge; 'data' reads it off the rows, which is not private."
    )
    y_bound: float | tuple[float, float] | Literal["data"] = Field(
        1.0, description="Largest |y| or (low, high), from public knowledge; 'data' reads it off the labels."
    )
    fit_intercept: bool = Field(False, description="Add a constant column; the paper has none.")
    clip_inputs: bool = Field(True, description="Scale rows into the ball and clip labels; false refuses such rows.")
    repeats: int = Field(
        1, ge=1, le=1_000_000, description="Independent fits to average metrics over: an experiment, not a release."
    )

    @model_validator(mode="after")
    def _bounds_are_possible(self) -> PrivateConfig:
        try:
            check_bounds(self.x_bound, self.y_bound)
        except TypeError as error:
            raise ValueError(str(error)) from error
        return self


class SketchConfig(PrivateConfig):
    """What every method with a Gaussian sketch has."""

    k: int | None = Field(None, ge=3, description="Rows of a sketch, at least d + 2; None follows k_factor.")
    varrho: float | None = Field(
        None, gt=0, lt=1, description="Failure probability of the utility bound; None: delta/10."
    )
    sketch: Sketch = Field("wishart", description="'wishart': the sketch's exact law; 'gaussian': multiplied out.")


class _Private(Method[Inputs, Output]):
    """Runs an estimator `repeats` times and hands its coefficients and report over."""

    estimator: ClassVar[type[PrivateLinearModel]]

    def _parameters(self, n: int, d: int) -> dict[str, Any]:
        """Parameters of the estimator beyond the shared ones; n rows, `d` encoded columns."""
        return {}

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        c = self.config
        if inputs.sample_weight is not None:
            raise InputError("private methods take no sample weights: a weighted row would exceed its sensitivity")
        encode = OneHot.of(inputs)
        if inputs.categorical:
            ctx.logger.warning("the number of codes of each category was read off the training rows; make it public")
        X = encode(inputs.X)
        shared = {
            name: getattr(c, name)
            for name in ("epsilon", "delta", "x_bound", "y_bound", "fit_intercept", "clip_inputs")
        }
        estimator = self.estimator(**shared, **self._parameters(*X.shape), random_state=ctx.rng)
        try:
            fits = estimator.simulate(X, inputs.y, c.repeats)
        except ValueError as error:
            raise InputError(str(error)) from error
        info = {"privacy": fits.report.to_dict(), "label_bound": fits.bounds.label_frame(c.fit_intercept)[1]}
        return linear_output(fits.coef, fits.intercept, encode, info)

    def visualize(self, problem: Problem[Inputs, Truth], output: Output, ctx: RunContext) -> None:
        """The privacy ledger as text, JSON and a picture."""
        from icml26_plugin_ihm.figures import draw_budget

        ledger = PrivacyReport.from_dict(output.info["privacy"])
        ctx.artifact("privacy.json").write_text(json.dumps(ledger.to_dict(), indent=1), encoding="utf-8")
        ctx.artifact("privacy.txt").write_text(f"{ledger}\n", encoding="utf-8")
        draw_budget(ledger, ctx.artifact("privacy-budget.svg"))

    def save(self, output: Output, folder: Path) -> None:
        save_linear(output, folder)

    @classmethod
    def load(cls, folder: Path) -> Output:
        return load_linear(folder)


class HessianMixing(_Private):
    """The paper's method."""

    class Config(SketchConfig):
        """Iterations, sketch and ledger."""

        iterations: Annotated[int, Field(ge=1, le=1000)] | Literal["auto"] = Field(
            3, description="Newton steps T; the paper uses 3. 'auto' follows epsilon alone."
        )
        k_factor: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["auto"] = Field(
            6.0, description="k = max(int(k_factor d), int(k_factor ln(4T/varrho))); 6 in the paper's code."
        )
        varrho: float | None = Field(
            None, gt=0, lt=1, description="Failure probability of the utility bound; None: delta/10."
        )
        accounting: Accounting = Field("paper", description="'joint': one Rényi ledger, about 0.6 times the noise.")
        tradeoff_repeats: int = Field(
            0,
            ge=0,
            le=10_000,
            description="Draw excess risk against epsilon for all methods from so many fits; 0: no figure.",
        )

    estimator = IterativeHessianMixing

    def _parameters(self, n: int, d: int) -> dict[str, Any]:
        c = self.config
        return {name: getattr(c, name) for name in ("iterations", "k", "k_factor", "varrho", "sketch", "accounting")}

    def visualize(self, problem: Problem[Inputs, Truth], output: Output, ctx: RunContext) -> None:
        """The ledger, and with `tradeoff_repeats` the trade-off of every method on these training rows."""
        super().visualize(problem, output, ctx)
        if self.config.tradeoff_repeats:
            from icml26_plugin_ihm.figures import draw_tradeoff
            from icml26_plugin_ihm.tradeoff import tradeoff

            encode = OneHot.of(problem.inputs)
            curves = tradeoff(
                encode(problem.truth.X_train), problem.truth.y_train, self.config, self.config.tradeoff_repeats, ctx.rng
            )
            draw_tradeoff(curves, ctx.artifact("excess-risk.svg"))


class OneStep(_Private):
    """The ablation: one Newton step with the sketch size of linear mixing."""

    class Config(SketchConfig):
        """Sketch and ledger."""

        k_factor: float = Field(
            2.5, gt=0, allow_inf_nan=False, description="k = max(int(k_factor d), int(k_factor ln(2/varrho)))."
        )
        varrho: float | None = Field(
            None, gt=0, lt=1, description="Failure probability of the utility bound; None: delta/10."
        )
        accounting: Accounting = Field("paper", description="'joint': one Rényi ledger.")

    estimator = IterativeHessianMixing

    def _parameters(self, n: int, d: int) -> dict[str, Any]:
        c = self.config
        varrho = c.varrho or (c.delta or 1.0 / n**2) / 10.0
        k = c.k or linear_mixing_k(d + int(c.fit_intercept), varrho, c.k_factor)
        return {"iterations": 1, "k": k, "varrho": varrho, "sketch": c.sketch, "accounting": c.accounting}


class AdaSSP(_Private):
    """Adaptive sufficient-statistics perturbation."""

    class Config(PrivateConfig):
        """Shift and ledger."""

        shift: Shift = Field(
            "wang", description="Lowering of the noisy eigenvalue: 'wang' s sqrt(ln(6/delta)), 'official' s^2."
        )
        varrho: float | None = Field(None, gt=0, lt=1, description="Failure probability of the ridge; None: delta/10.")
        accounting: Accounting = Field("paper", description="'joint': the three Gaussians as one.")

    estimator = AdaSSPEstimator

    def _parameters(self, n: int, d: int) -> dict[str, Any]:
        return {name: getattr(self.config, name) for name in ("shift", "varrho", "accounting")}


class OfficialAdaSSP(AdaSSP):
    """AdaSSP as in the code of the mixing paper."""

    class Config(AdaSSP.Config):
        """As AdaSSP, with the other shift."""

        shift: Shift = Field(
            "official", description="Lowering of the noisy eigenvalue: 'wang' s sqrt(ln(6/delta)), 'official' s^2."
        )


class LinearMixing(_Private):
    """One sketch of rows and labels."""

    class Config(SketchConfig):
        """Sketch."""

        k_factor: float = Field(
            2.5, gt=0, allow_inf_nan=False, description="k = max(int(k_factor d), int(k_factor ln(2/varrho)))."
        )
        varrho: float | None = Field(
            None, gt=0, lt=1, description="Failure probability of the utility bound; None: delta/10."
        )

    estimator = LinearMixingEstimator

    def _parameters(self, n: int, d: int) -> dict[str, Any]:
        return {name: getattr(self.config, name) for name in ("k", "k_factor", "varrho", "sketch")}


class GradientDescent(_Private):
    """Noisy full-batch gradient descent."""

    class Config(PrivateConfig):
        """Steps, step size and ledger."""

        steps: int = Field(10, ge=1, le=100_000, description="Gradient steps; 3 in the paper's code.")
        learning_rate: float | Literal["isotropic"] = Field(
            "isotropic",
            description="Step on the mean loss of bounded rows; 'isotropic' is d. 0.25 in the paper's code.",
        )
        accounting: DescentAccounting = Field(
            "gdp",
            description="'gdp' is exact; 'zcdp' looser; 'official' as in the paper's code, with replace-one sensitivity.",
        )

        @model_validator(mode="after")
        def _rate_is_positive(self) -> GradientDescent.Config:
            if self.learning_rate != "isotropic" and not 0 < float(self.learning_rate) < float("inf"):
                raise ValueError(f"learning_rate must be positive and finite or 'isotropic', got {self.learning_rate}")
            return self

    estimator = NoisyGradientDescent

    def _parameters(self, n: int, d: int) -> dict[str, Any]:
        return {name: getattr(self.config, name) for name in ("steps", "learning_rate", "accounting")}


class OfficialGradientDescent(GradientDescent):
    """Gradient descent with the paper's three short steps."""

    class Config(GradientDescent.Config):
        """As gradient descent, with the numbers of the paper's code."""

        steps: int = Field(3, ge=1, le=100_000, description="Gradient steps.")
        learning_rate: float | Literal["isotropic"] = Field(0.25, description="Step on the mean loss of bounded rows.")
        accounting: DescentAccounting = Field("official", description="zCDP with replace-one sensitivity.")


class LeastSquares(Method[Inputs, Output]):
    """Ordinary least squares without privacy: what every private method is measured against."""

    class Config(MethodConfig):
        """The model class."""

        fit_intercept: bool = Field(False, description="Fit a constant as well.")

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        encode = OneHot.of(inputs)
        X = encode(inputs.X)
        d = X.shape[1]
        design = np.column_stack([X, np.ones(len(X))]) if self.config.fit_intercept else X
        root = np.ones(len(X)) if inputs.sample_weight is None else np.sqrt(inputs.sample_weight)
        theta = np.linalg.lstsq(design * root[:, None], inputs.y * root, rcond=None)[0]
        return linear_output(theta[None, :d], theta[d:] if len(theta) > d else np.zeros(1), encode, {"private": False})

    def save(self, output: Output, folder: Path) -> None:
        save_linear(output, folder)

    @classmethod
    def load(cls, folder: Path) -> Output:
        return load_linear(folder)


class Null(Method[Inputs, Output]):
    """Predicts zero, whatever the data: perfectly private, and the least that a private method must beat."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        encode = OneHot.of(inputs)
        width = encode(inputs.X[:1]).shape[1]
        return linear_output(np.zeros((1, width)), np.zeros(1), encode, {"private": True})

    def save(self, output: Output, folder: Path) -> None:
        save_linear(output, folder)

    @classmethod
    def load(cls, folder: Path) -> Output:
        return load_linear(folder)
