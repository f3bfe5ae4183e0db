"""Reference points and baselines as methods of the task."""

from __future__ import annotations

from typing import Any, ClassVar

from icml26 import Method, Problem, RunContext
from icml26.method import MethodConfig

from icml26_plugin_divergence_decoding.baseline_configs import (
    GradientAscentConfig,
    GradientDifferenceConfig,
    NpoConfig,
    UldConfig,
    WhpConfig,
)
from icml26_plugin_divergence_decoding.baselines import assistant, gradient, offset
from icml26_plugin_divergence_decoding.checks import checked_sequences
from icml26_plugin_divergence_decoding.encoding import Encoded, pad_id
from icml26_plugin_divergence_decoding.task import Inputs, Output, Truth


class ShownMethod(Method[Inputs, Output]):
    """What all share: the pictures."""

    def visualize(self, problem: Problem[Inputs, Truth], output: Output, ctx: RunContext) -> None:
        """Write answers before and after, and the method's place between forgetting and keeping."""
        from icml26_plugin_divergence_decoding.show import visualize

        visualize(problem, output, ctx)


class Target(Method[Inputs, Output]):
    """The target as it is."""

    class Config(MethodConfig):
        """No options."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """The target itself."""
        return Output(inputs.target)


class Retrain(Method[Inputs, Output]):
    """The target's base trained without what is to be forgotten: what unlearning tries to reach."""

    class Config(MethodConfig):
        """No options."""

    def run(self, inputs: Inputs, ctx: RunContext, truth: Truth) -> Output:  # type: ignore[override]
        """The truth's retrained model."""
        return Output(truth.retrain)


class GradientAscent(ShownMethod):
    """Gradient ascent."""

    objective: ClassVar[gradient.Objective] = "grad-ascent"

    class Config(GradientAscentConfig):
        """Options."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Train a copy of the target."""
        forget, retain = _sequences(inputs)
        model, losses = gradient.unlearn(
            inputs.target,
            forget,
            retain,
            self.config.unlearning(self.objective),
            ctx.torch_generator(),
            pad=pad_id(inputs.tokenizer),
            device=ctx.device,
        )
        for epoch, loss in enumerate(losses):
            ctx.log("unlearning-loss", loss, epoch)
        return Output(model, {"losses": losses})


class GradientDifference(GradientAscent):
    """Ascent on what is to be forgotten, descent on what is to be kept."""

    objective = "grad-diff"

    class Config(GradientDifferenceConfig):
        """Options."""


class Npo(GradientAscent):
    """Negative preference optimisation."""

    objective = "npo"

    class Config(NpoConfig):
        """Options."""


class Uld(ShownMethod):
    """Unlearning from logit difference."""

    class Config(UldConfig):
        """Options."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Train the assistant and subtract it."""
        config = self.config
        forget, retain = _sequences(inputs)
        layers = config.layers or max(1, _layer_count(inputs.target) // 4)
        helper = assistant.uld_assistant(
            inputs.target,
            forget,
            retain,
            config.training(),
            ctx.torch_generator(),
            layers=layers,
            rank=config.rank,
            retain_weight=config.retain_weight,
            pad=pad_id(inputs.tokenizer),
            device=ctx.device,
        )
        rule = offset.Offset("uld", config.strength, config.keep_below)
        return Output(offset.OffsetModel(inputs.target, helper, rule), {"assistant_layers": layers})


class Whp(ShownMethod):
    """Who's Harry Potter."""

    class Config(WhpConfig):
        """Options."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Train the reinforced model and go away from it."""
        forget, _ = _sequences(inputs)
        helper = assistant.reinforced(
            inputs.target,
            forget,
            self.config.training(),
            ctx.torch_generator(),
            pad=pad_id(inputs.tokenizer),
            device=ctx.device,
        )
        rule = offset.Offset("whp", self.config.strength)
        return Output(offset.OffsetModel(inputs.target, helper, rule))


def _sequences(inputs: Inputs) -> tuple[list[Encoded], list[Encoded]]:
    """What is to be forgotten, and what is to be kept with the background; checked."""
    forget, retain, background = checked_sequences(inputs)
    return forget, [*retain, *background]


def _layer_count(model: Any) -> int:
    config = model.config
    return int(getattr(config, "num_hidden_layers", None) or config.n_layer)
