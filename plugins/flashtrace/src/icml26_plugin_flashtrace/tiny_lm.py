"""Train a tiny Llama on the symbolic grammar: a causal language model that really tracks variables, made offline in minutes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icml26_plugin_flashtrace.symbols import EOS, PAD, VOCABULARY, Grammar, draw

CONTEXT = 128


@dataclass(frozen=True)
class TinyTraining:
    """Size and training of the tiny model; ``steps`` at most, it stops early at ``stop_at`` exact generations."""

    width: int = 64
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    steps: int = 3000
    batch_size: int = 64
    learning_rate: float = 2e-3
    warmup: int = 100
    check_every: int = 100
    stop_at: float = 0.98


@dataclass(frozen=True)
class Trained:
    """The model, the share of fresh prompts whose reasoning and answer are all right, and the steps that were taken."""

    model: Any
    accuracy: float
    steps: int


def build(training: TinyTraining, generator_seed: int) -> Any:
    """The untrained model; the global generator is left as it was."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=training.width,
        intermediate_size=2 * training.width,
        num_hidden_layers=training.layers,
        num_attention_heads=training.heads,
        num_key_value_heads=training.kv_heads,
        max_position_embeddings=CONTEXT,
        pad_token_id=VOCABULARY.index(PAD),
        eos_token_id=VOCABULARY.index(EOS),
        bos_token_id=None,
        attn_implementation="eager",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator_seed)
        return LlamaForCausalLM(config)


def train(
    grammar: Grammar,
    training: TinyTraining,
    rng: np.random.Generator,
    *,
    log: Callable[[str, float, int], None] = lambda name, value, step: None,
) -> Trained:
    """Train by next-token prediction on the generation only (the prompt is random); all randomness from ``rng``."""
    model = build(training, int(rng.integers(2**31)))
    optimiser = torch.optim.AdamW(model.parameters(), lr=training.learning_rate, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, training))
    accuracy, step = 0.0, 0
    model.train()
    for step in range(1, training.steps + 1):
        ids = with_eos(draw(rng, grammar, training.batch_size).ids)
        loss = generation_loss(model, ids, grammar.n_prompt)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % training.check_every == 0 or step == training.steps:
            accuracy = exact_share(model, grammar, rng)
            log("loss", float(loss.detach()), step)
            log("exact", accuracy, step)
            if accuracy >= training.stop_at:
                break
    model.eval()
    model.requires_grad_(False)
    return Trained(model, accuracy, step)


def with_eos(ids: np.ndarray) -> torch.Tensor:
    """Ids (B, N) closed by EOS, as a tensor."""
    return torch.from_numpy(np.concatenate([ids, np.full((len(ids), 1), VOCABULARY.index(EOS))], axis=1))


def generation_loss(model: Any, ids: torch.Tensor, n_prompt: int) -> torch.Tensor:
    """Mean cross-entropy (nats) of the tokens after the prompt."""
    logits = model(input_ids=ids, use_cache=False).logits[:, n_prompt - 1 : -1]
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, n_prompt:].reshape(-1))


def exact_share(model: Any, grammar: Grammar, rng: np.random.Generator, size: int = 256) -> float:
    """The share of fresh sequences of which every generated token is the model's first choice.

    With the right tokens before it at each place, which for a whole right sequence is the same as greedy decoding.
    """
    ids = with_eos(draw(rng, grammar, size).ids)
    was_training = model.training
    model.eval()
    with torch.no_grad():
        guess = model(input_ids=ids, use_cache=False).logits[:, grammar.n_prompt - 1 : -1].argmax(-1)
    model.train(was_training)
    return float((guess == ids[:, grammar.n_prompt :]).all(dim=1).double().mean())


def save(trained: Trained, folder: Path) -> None:
    """Weights as safetensors, and how well the model does."""
    import json

    from safetensors.torch import save_file

    save_file({k: v.contiguous() for k, v in trained.model.state_dict().items()}, folder / "weights.safetensors")
    (folder / "trained.json").write_text(json.dumps({"accuracy": trained.accuracy, "steps": trained.steps}))


def load(training: TinyTraining, folder: Path) -> Trained:
    """What ``save`` wrote."""
    import json

    from safetensors.torch import load_file

    model = build(training, 0)
    model.load_state_dict(load_file(folder / "weights.safetensors"))
    model.eval()
    model.requires_grad_(False)
    return Trained(model, **json.loads((folder / "trained.json").read_text()))


def _rate(step: int, training: TinyTraining) -> float:
    if step < training.warmup:
        return (step + 1) / training.warmup
    done = (step - training.warmup) / max(1, training.steps - training.warmup)
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done))) + 1e-3
