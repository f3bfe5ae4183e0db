"""Train a tiny Llama on the symbolic grammar: a causal language model that really tracks variables, made offline in minutes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icml26_plugin_flashtrace.symbols import EOS, PAD, VOCABULARY, Grammar, draw, draw_lessons, draw_recall

CONTEXT = 128


class Stage(IntEnum):
    """What is learnt first, next and last; a stage is left when it is mastered."""

    RECALL = 0  #: each name's statement again: every third token is a look-up, and nothing else is asked
    LESSONS = 1  #: every chain of a prompt asked for in turn, walked back and answered
    AS_USED = 2  #: one question and the end of sequence


@dataclass(frozen=True)
class TinyTraining:
    """Size and training of the tiny model; ``steps`` at most, it stops early at ``stop_at`` exact generations.

    Looking a name up is what takes long to emerge and then comes at once; it needs many look-ups in a sequence, not many
    sequences in a batch. ``recalled`` (share of look-ups that are right) and ``learnt`` (share of exact generations) end the
    first two stages; in the last the learning rate falls for ``cooling`` steps.
    """

    width: int = 64
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 32
    steps: int = 2000
    batch_size: int = 16
    learning_rate: float = 4e-3
    warmup: int = 50
    cooling: int = 200
    check_every: int = 25
    recalled: float = 0.9
    learnt: float = 0.8
    stop_at: float = 0.97


@dataclass(frozen=True)
class Trained:
    """The model, the share of fresh prompts whose reasoning and answer are all right, and the steps that were taken.

    The share is measured on sequences of its own, not those that decided when to stop.
    """

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
    """Train by next-token prediction of what can be foreseen, stage by stage; all randomness from ``rng``."""
    model = build(training, int(rng.integers(2**31)))
    optimiser = torch.optim.AdamW(model.parameters(), lr=training.learning_rate, weight_decay=0.01, betas=(0.9, 0.98))
    stage, entered, step, rights = Stage.RECALL, 0, 0, []
    model.train()
    for step in progress(range(1, training.steps + 1)):
        for group in optimiser.param_groups:
            group["lr"] = training.learning_rate * _rate(training, stage, step, entered)
        loss, right = lesson_loss(model, *material(stage, grammar, training.batch_size, rng))
        rights.append(right)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % training.check_every:
            continue
        exact = 0.0 if stage == Stage.RECALL else exact_share(model, grammar, rng)
        for name, value in (("loss", float(loss.detach())), ("right", float(np.mean(rights))), ("exact", exact)):
            log(name, value, step)
        if stage == Stage.AS_USED and exact >= training.stop_at:
            break
        recalled = stage == Stage.RECALL and np.mean(rights) >= training.recalled
        if recalled or (stage == Stage.LESSONS and exact >= training.learnt):
            stage, entered = Stage(stage + 1), step
        rights = []
    model.eval()
    model.requires_grad_(False)
    return Trained(model, exact_share(model, grammar, rng, 1024), step)


def material(stage: Stage, grammar: Grammar, size: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Fresh ids (B, L) and which tokens (B, L) are to be learnt."""
    if stage == Stage.RECALL:
        ids, learnt = draw_recall(rng, recall_grammar(grammar), size)
    elif stage == Stage.LESSONS:
        ids, learnt = draw_lessons(rng, grammar, size)
    else:
        used = with_eos(draw(rng, grammar, 2 * size).ids)  # half as long as lessons, about
        return used, (torch.arange(used.shape[1]) >= grammar.n_prompt).expand_as(used)
    return torch.from_numpy(ids), torch.from_numpy(learnt)


def recall_grammar(grammar: Grammar) -> Grammar:
    """The same with at least two hops and twelve names.

    Fewer names are fewer look-ups. And with one hop no name is ever looked up, only values, which was learnt far more slowly.
    """
    hops = max(2, grammar.hops)
    return dataclasses.replace(grammar, hops=hops, chains=max(grammar.chains, -(-12 // hops)))


def with_eos(ids: np.ndarray) -> torch.Tensor:
    """Ids (B, N) closed by EOS, as a tensor."""
    return torch.from_numpy(np.concatenate([ids, np.full((len(ids), 1), VOCABULARY.index(EOS))], axis=1))


def lesson_loss(model: Any, ids: torch.Tensor, learnt: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Mean cross-entropy (nats) of the tokens marked in ``learnt`` (B, L), each predicted from those before it, and the
    share that is right."""
    wanted = learnt[:, 1:]
    states = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][wanted]
    logits, targets = model.lm_head(states), ids[:, 1:][wanted]
    right = (logits.detach().argmax(-1) == targets).float().mean()
    return torch.nn.functional.cross_entropy(logits, targets), float(right)


def is_exact(model: Any, ids: np.ndarray, n_prompt: int) -> np.ndarray:
    """(B,) bool: every generated token of ids (B, N) is the model's first choice.

    With the right tokens before it at each place, which for a whole right sequence is the same as greedy decoding (the end
    of sequence aside).
    """
    tensor = torch.from_numpy(ids)
    with torch.no_grad():
        guess = model(input_ids=tensor, use_cache=False).logits[:, n_prompt - 1 : -1].argmax(-1)
    return (guess == tensor[:, n_prompt:]).all(dim=1).numpy()


def exact_share(model: Any, grammar: Grammar, rng: np.random.Generator, size: int = 512) -> float:
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


def _rate(training: TinyTraining, stage: Stage, step: int, entered: int) -> float:
    """The share of the learning rate at a step of a stage that was entered after step ``entered``."""
    fall = (step - entered) / training.cooling if stage == Stage.AS_USED else 0.0
    return float(min(1.0, step / training.warmup) * max(0.05, 1.0 - fall))
