"""Train a tiny Llama on the symbolic grammar: a causal language model that really tracks variables, made offline in minutes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icml26_plugin_flashtrace.symbols import EOS, PAD, VOCABULARY, Grammar, draw, draw_lessons

CONTEXT = 128


@dataclass(frozen=True)
class TinyTraining:
    """Size and training of the tiny model; ``steps`` at most, it stops early at ``stop_at`` exact generations.

    The first ``lessons`` of the steps ask for every chain of a prompt in turn, which teaches much faster; the rest, at most,
    train on the sequences as they are used, with one question and the end of sequence.
    """

    width: int = 64
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 32
    steps: int = 2000
    lessons: float = 0.8
    batch_size: int = 32
    learning_rate: float = 3e-3
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
        # Half of a head's dimensions turn fast with position and cannot compare symbols: 16 would leave too few.
        head_dim=training.head_width,
        max_position_embeddings=CONTEXT,
        pad_token_id=VOCABULARY.index(PAD),
        eos_token_id=VOCABULARY.index(EOS),
        bos_token_id=None,
        # transformers' 0.02 suits wide models; at this width attention would hardly begin to differ from uniform.
        initializer_range=training.width**-0.5,
        tie_word_embeddings=True,  # copying a symbol, all that this grammar asks for, is then easy to learn
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
    progress: Callable[[range], Iterable[int]] = lambda steps: steps,
) -> Trained:
    """Train by next-token prediction on the generation only (the prompt is random); all randomness from ``rng``."""
    model = build(training, int(rng.integers(2**31)))
    optimiser = torch.optim.AdamW(model.parameters(), lr=training.learning_rate, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, training))
    accuracy, step = 0.0, 0
    model.train()
    for step in progress(range(1, training.steps + 1)):
        if step <= training.lessons * training.steps:
            lesson = easier(grammar, rng)
            ids, learnt = (torch.from_numpy(x) for x in draw_lessons(rng, lesson, training.batch_size))
        else:
            ids = with_eos(draw(rng, grammar, training.batch_size).ids)
            learnt = torch.zeros_like(ids, dtype=torch.bool)
            learnt[:, grammar.n_prompt :] = True
        loss = lesson_loss(model, ids, learnt)
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


def easier(grammar: Grammar, rng: np.random.Generator) -> Grammar:
    """A grammar with at most as many chains and statements: short problems teach the look-up that long ones need."""
    hops, chains = int(rng.integers(1, grammar.hops + 1)), int(rng.integers(min(2, grammar.chains), grammar.chains + 1))
    return dataclasses.replace(grammar, hops=hops, chains=chains)


def with_eos(ids: np.ndarray) -> torch.Tensor:
    """Ids (B, N) closed by EOS, as a tensor."""
    return torch.from_numpy(np.concatenate([ids, np.full((len(ids), 1), VOCABULARY.index(EOS))], axis=1))


def lesson_loss(model: Any, ids: torch.Tensor, learnt: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy (nats) of the tokens marked in ``learnt`` (B, L), each predicted from those before it."""
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    wanted = learnt[:, 1:]
    return torch.nn.functional.cross_entropy(logits[wanted], ids[:, 1:][wanted])


def is_exact(model: Any, ids: np.ndarray, n_prompt: int) -> np.ndarray:
    """(B,) bool: every generated token of ids (B, N) is the model's first choice.

    With the right tokens before it at each place, which for a whole right sequence is the same as greedy decoding (the end
    of sequence aside).
    """
    tensor = torch.from_numpy(ids)
    with torch.no_grad():
        guess = model(input_ids=tensor, use_cache=False).logits[:, n_prompt - 1 : -1].argmax(-1)
    return (guess == tensor[:, n_prompt:]).all(dim=1).numpy()


def exact_share(model: Any, grammar: Grammar, rng: np.random.Generator, size: int = 256) -> float:
    """The share of fresh sequences that are exact."""
    was_training = model.training
    model.eval()
    share = float(is_exact(model, draw(rng, grammar, size).ids, grammar.n_prompt).mean())
    model.train(was_training)
    return share


def save(trained: Trained, folder: Path) -> None:
    """Weights as safetensors, and how well the model does."""
    import json

    from safetensors.torch import save_file

    save_file(_own_tensors(trained.model), folder / "weights.safetensors")
    (folder / "trained.json").write_text(json.dumps({"accuracy": trained.accuracy, "steps": trained.steps}))


def load(training: TinyTraining, folder: Path) -> Trained:
    """What ``save`` wrote."""
    import json

    from safetensors.torch import load_file

    model = build(training, 0)
    model.load_state_dict(load_file(folder / "weights.safetensors"), strict=False)
    model.tie_weights()
    model.eval()
    model.requires_grad_(False)
    return Trained(model, **json.loads((folder / "trained.json").read_text()))


def _own_tensors(model: Any) -> dict[str, torch.Tensor]:
    """The state without the head, which is the embedding (safetensors stores no tensor twice)."""
    return {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}


def _rate(step: int, training: TinyTraining) -> float:
    if step < training.warmup:
        return (step + 1) / training.warmup
    done = (step - training.warmup) / max(1, training.steps - training.warmup)
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done))) + 1e-3
