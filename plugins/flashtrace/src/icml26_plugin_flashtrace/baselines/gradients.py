"""Gradients at the embedding layer: gradient × input, and integrated gradients with captum's or our own quadrature."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from icml26_plugin_flashtrace.likelihood import as_batch, generation_logits, token_log_probs
from icml26_plugin_flashtrace.models import exclusive


@contextmanager
def traced_embeddings(model: Any) -> Iterator[list[torch.Tensor]]:
    """Within the block each forward pass appends its token embeddings (B, N, d), as leaves that collect gradients."""
    found: list[torch.Tensor] = []

    def hook(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        leaf = output.detach().requires_grad_(True)
        found.append(leaf)
        return leaf

    with exclusive(model):
        handle = model.get_input_embeddings().register_forward_hook(hook)
        try:
            yield found
        finally:
            handle.remove()


def answer_objective(
    model: Any, ids: torch.Tensor, targets: torch.Tensor, n_prompt: int, weights: torch.Tensor, kind: str = "log-prob"
) -> torch.Tensor:
    """(B,) the weighted sum over generated ``targets`` (G,) of their log-probability, or of their ``logit``."""
    logits = generation_logits(model, ids, n_prompt)
    wanted = targets.expand(len(ids), -1)
    if kind == "logit":
        values = logits.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
    else:
        values = token_log_probs(logits, wanted)
    return (values * weights).sum(-1)


def input_gradient(
    model: Any, ids: np.ndarray, n_prompt: int, weights: np.ndarray, kind: str = "log-prob"
) -> tuple[torch.Tensor, torch.Tensor]:
    """The embeddings (N, d) of one sequence and the objective's gradient at them."""
    batch = as_batch(model, ids)
    with traced_embeddings(model) as found, torch.enable_grad():
        value = answer_objective(model, batch, batch[0, n_prompt:], n_prompt, _weights(weights, batch), kind)
        (gradient,) = torch.autograd.grad(value.sum(), found[0])
    return found[0].detach()[0], gradient[0]


def gradient_times_input(
    model: Any, ids: np.ndarray, n_prompt: int, weights: np.ndarray, kind: str = "log-prob"
) -> np.ndarray:
    """(N,) float64, signed: the sum over embedding dimensions of gradient × embedding."""
    embedding, gradient = input_gradient(model, ids, n_prompt, weights, kind)
    return (embedding.double() * gradient.double()).sum(-1).cpu().numpy()


def integrated_gradients(
    model: Any,
    ids: np.ndarray,
    n_prompt: int,
    weights: np.ndarray,
    *,
    baseline: int,
    steps: int = 20,
    batch_size: int = 8,
) -> np.ndarray:
    """(N,) float64: integrated gradients of the answer's log-probability from a sequence of ``baseline`` tokens.

    Prompt and generation are interpolated together, trapezoid rule with ``steps`` points, summed over embedding dimensions
    (captum's ``LayerIntegratedGradients``). Integrated gradients are linear in the objective, and a token's probability
    depends only on what precedes it, so that one run on the weighted sum equals the sum of one run a target token.
    """
    from captum.attr import LayerIntegratedGradients

    batch = as_batch(model, ids)
    targets, scale = batch[0, n_prompt:], _weights(weights, batch)

    def objective(rows: torch.Tensor) -> torch.Tensor:
        return answer_objective(model, rows, targets, n_prompt, scale)

    explainer = LayerIntegratedGradients(objective, model.get_input_embeddings())
    with torch.enable_grad():
        found = explainer.attribute(
            batch,
            baselines=torch.full_like(batch, baseline),
            n_steps=steps,
            method="riemann_trapezoid",
            internal_batch_size=None if steps <= batch_size else max(2, batch_size),
        )
    return found[0].detach().double().sum(-1).cpu().numpy()


def _weights(weights: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(weights, dtype=torch.float32, device=like.device)
