"""AttnLRP (Achtibat et al. 2024): gradient × input with a modified backward pass, the forward pass left exactly as it is.

Rules: the scale of an RMS norm is a constant; an activation passes act(x)/x; a product (gate × up, attention × values,
queries × keys) gives each factor half. The rules are hooks that keep every value and replace gradients only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from icml26 import InputError

from icml26_plugin_flashtrace.baselines.gradients import gradient_times_input
from icml26_plugin_flashtrace.models import exclusive

#: ``model_type`` of the families whose modules are known: RMS norms, gated MLPs, separate q, k, v projections.
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
#: Activations a with a(x)/x → 1/2 at 0.
_ACTIVATIONS = ("silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh")


def attnlrp(model: Any, ids: np.ndarray, n_prompt: int, weights: np.ndarray, *, objective: str = "logit") -> np.ndarray:
    """(N,) float64, signed: the relevance of each token for the weighted sum of the targets' logits (or log-probs).

    One backward pass for a whole span is exact, since relevance is linear in the objective.
    """
    with attnlrp_rules(model):
        return gradient_times_input(model, ids, n_prompt, weights, objective)


@contextmanager
def attnlrp_rules(model: Any) -> Iterator[None]:
    """Within the block backward passes follow AttnLRP's rules; forward values are bit for bit the model's own.

    Raises InputError for a family whose modules are not known.
    """
    _check_family(model)
    with exclusive(model), ExitStack() as undo:
        for name, module in model.named_modules():
            for handle in _rules_for(name.rsplit(".", 1)[-1], module):
                undo.callback(handle.remove)
        yield


def _check_family(model: Any) -> None:
    config = model.config
    kind = getattr(config, "model_type", None)
    if kind not in FAMILIES:
        raise InputError(f"attnlrp knows the families {', '.join(FAMILIES)}; this model is {kind!r}")
    if config.hidden_act not in _ACTIVATIONS:
        raise InputError(
            f"attnlrp knows the activations {', '.join(_ACTIVATIONS)}; this model has {config.hidden_act!r}"
        )


def _rules_for(name: str, module: Any) -> list[Any]:
    if type(module).__name__.endswith("RMSNorm"):
        return [module.register_forward_hook(_norm_rule)]
    if name == "act_fn":
        return [module.register_forward_hook(_activation_rule)]
    if name == "down_proj":
        return [module.register_forward_pre_hook(lambda module, inputs: (scaled_gradient(inputs[0], 0.5),))]
    if name in ("q_proj", "k_proj"):
        return [module.register_forward_hook(_output_rule(0.25))]
    if name == "v_proj":
        return [module.register_forward_hook(_output_rule(0.5))]
    return []


def _norm_rule(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
    x = inputs[0]
    with torch.no_grad():
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + module.variance_epsilon)
        factor = (module.weight.float() * scale).to(x.dtype)
    return with_gradient(output, x, factor)


def _activation_rule(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
    x = inputs[0]
    with torch.no_grad():
        factor = torch.where(x.abs() > 1e-6, output / x, torch.full_like(x, 0.5))
    return with_gradient(output, x, factor)


def _output_rule(factor: float) -> Callable[[Any, Any, torch.Tensor], torch.Tensor]:
    return lambda module, inputs, output: scaled_gradient(output, factor)


class _WithGradient(torch.autograd.Function):
    """The identity on ``value``, whose gradient goes to ``x`` times ``factor``."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(factor)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor, None]:
        (factor,) = ctx.saved_tensors
        return None, gradient * factor, None


class _ScaledGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a number."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.factor, None


def with_gradient(value: torch.Tensor, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """``value``, of which autograd believes that its derivative by ``x`` is ``factor`` (elementwise)."""
    return _WithGradient.apply(value.detach(), x, factor)


def scaled_gradient(x: torch.Tensor, factor: float) -> torch.Tensor:
    """``x``, whose gradient is multiplied by ``factor``."""
    return _ScaledGradient.apply(x, factor)
