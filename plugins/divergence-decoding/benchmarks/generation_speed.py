"""What steering costs while generating: python benchmarks/generation_speed.py [--models FOLDER]

Random Llamas of the shapes of a base and its auxiliaries (with FOLDER, what smollm2.py left there for one seed), two prompts of
32 tokens, CPU time of one thread. Two bars of the brief:

- steered generation takes at most the base's own time + the two auxiliaries' own time + 10 %;
- with caches, 64 new tokens take at most a third of the time without.

All works are measured in turn, in paired rounds; a ratio is the median of the rounds' ratios. The auxiliaries' own time is that
of their plain cached ``generate`` of as many tokens, which contains a whole loop of ``generate`` round it, too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from icml26_plugin_divergence_decoding import DivergenceModel, Fusion
from icml26_plugin_divergence_decoding.storage import load_model
from transformers import LlamaConfig, LlamaForCausalLM


class Shape(NamedTuple):
    """Hidden width and layers of the base and of each auxiliary, and the size of the vocabulary."""

    width: int
    layers: int
    small_width: int
    small_layers: int
    vocab: int


SHAPES = {
    "mini-tofu": Shape(96, 2, 48, 2, 470),
    "384x8": Shape(384, 8, 192, 2, 16_000),
    "512x12": Shape(512, 12, 256, 3, 16_000),
}


def llama(width: int, layers: int, vocab: int, seed: int) -> LlamaForCausalLM:
    """A random Llama whose end mark never ends anything."""
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=max(4, width // 64),
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def models_of(shape: Shape) -> dict[str, Any]:
    """Random target, forget and retain models of a shape."""
    small = {
        name: llama(shape.small_width, shape.small_layers, shape.vocab, i)
        for i, name in enumerate(("forget", "retain"), 1)
    }
    return {"target": llama(shape.width, shape.layers, shape.vocab, 0)} | small


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call: other work on the machine does not count."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def measure(name: str, parts: dict[str, Any], new_tokens: int, rounds: int) -> None:
    """Measure one set of models and print what holds."""
    target, forget, retain = parts["target"], parts["forget"], parts["retain"]
    target.generation_config.eos_token_id = None
    vocab = target.config.vocab_size
    prompts = torch.randint(3, vocab, (2, 32), generator=torch.Generator().manual_seed(0))
    how = {
        "max_new_tokens": new_tokens,
        "do_sample": False,
        "attention_mask": torch.ones_like(prompts),
        "pad_token_id": 0,
    }
    for model in (forget, retain):
        model.generation_config.eos_token_id = None
    linear = DivergenceModel(target, forget, retain, Fusion(1.5))
    rank = DivergenceModel(target, forget, retain, Fusion(0.0, rank_k=20))
    works: dict[str, Callable[[], object]] = {
        "base": lambda: target.generate(prompts, **how),
        "p": lambda: forget.generate(prompts, **how),
        "q": lambda: retain.generate(prompts, **how),
        "linear": lambda: linear.generate(prompts, **how),
        "rank 20": lambda: rank.generate(prompts, **how),
        "base, no caches": lambda: target.generate(prompts, use_cache=False, **how),
        "linear, no caches": lambda: linear.generate(prompts, use_cache=False, **how),
    }
    short = how | {"max_new_tokens": 4}
    for model in (target, forget, retain, linear, rank):
        model.generate(prompts, **short)
    times: dict[str, list[float]] = {work: [] for work in works}
    for _ in range(rounds):
        for work, once in works.items():
            times[work].append(seconds(once))

    def ratio(of: str, *over: str) -> float:
        totals = [sum(times[x][i] for x in over) for i in range(rounds)]
        return statistics.median(a / b for a, b in zip(times[of], totals, strict=True))

    cells = [f"{statistics.median(times[work]):.2f}" for work in works]
    alone = ("base", "p", "q")
    found = [f"{ratio('linear', *alone):.2f}", f"{ratio('rank 20', *alone):.2f}"]
    found += [f"{ratio('linear, no caches', 'linear'):.2f}", f"{ratio('base, no caches', 'base'):.2f}"]
    print(f"| {name} | {' | '.join(cells + found)} |", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", choices=SHAPES, default=list(SHAPES))
    parser.add_argument(
        "--models", type=Path, help="a stored steered model, such as seed-0/auxiliaries-* of smollm2.py"
    )
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| seconds of CPU | base | p | q | linear | rank 20 | base, no caches | linear, no caches "
          "| linear / alone | rank / alone | linear: caches gain | base: caches gain |")  # fmt: skip
    print("| --- " * 12 + "|")
    for name in options.shapes:
        measure(name, models_of(SHAPES[name]), options.new_tokens, options.rounds)
    if options.models is not None:
        measure(options.models.name, load_model(options.models).parts(), options.new_tokens, options.rounds)


if __name__ == "__main__":
    main()
