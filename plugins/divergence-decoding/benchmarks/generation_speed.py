"""What steering costs while generating: python benchmarks/generation_speed.py

Random Llamas of the shapes of a base and its auxiliaries, two prompts, CPU time of one thread. Two bars of the brief:

- steered generation takes at most the base's own time + the two auxiliaries' own time + 10 %;
- with caches, 64 new tokens take at most a third of the time without.

Every figure is the median of paired rounds in this process (one round without caches). The auxiliaries' own time is
that of their plain cached ``generate`` of as many tokens, which contains a whole loop of ``generate`` round it, too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from icml26_plugin_divergence_decoding import DivergenceModel, Fusion
from transformers import LlamaConfig, LlamaForCausalLM


def llama(width: int, layers: int, vocab: int, seed: int) -> LlamaForCausalLM:
    """A random Llama whose end mark never ends anything."""
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call: other work on the machine does not count."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=384, help="hidden width of the base")
    parser.add_argument("--layers", type=int, default=8, help="layers of the base")
    parser.add_argument("--small-width", type=int, default=192, help="hidden width of each auxiliary")
    parser.add_argument("--small-layers", type=int, default=2, help="layers of each auxiliary")
    parser.add_argument("--vocab", type=int, default=16_000, help="tokens")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    target = llama(options.width, options.layers, options.vocab, 0)
    forget, retain = (llama(options.small_width, options.small_layers, options.vocab, seed) for seed in (1, 2))
    prompts = torch.randint(3, options.vocab, (2, 32), generator=torch.Generator().manual_seed(0))
    how = {"max_new_tokens": options.new_tokens, "do_sample": False, "attention_mask": torch.ones_like(prompts)}
    models = {
        "linear": DivergenceModel(target, forget, retain, Fusion(1.5)),
        "rank 20": DivergenceModel(target, forget, retain, Fusion(0.0, rank_k=20)),
    }
    work: dict[str, Callable[[], object]] = {
        "base": lambda: target.generate(prompts, **how),
        "auxiliary p": lambda: forget.generate(prompts, **how),
        "auxiliary q": lambda: retain.generate(prompts, **how),
        **{name: (lambda m=model: m.generate(prompts, **how)) for name, model in models.items()},
        "linear, no caches": lambda: models["linear"].generate(prompts, use_cache=False, **how),
    }
    slow = "linear, no caches"
    times: dict[str, list[float]] = {name: [] for name in work}
    for count in range(-1, options.rounds):  # the first round is for warming up
        for name, once in work.items():
            if count >= 0 and name != slow:
                times[name].append(seconds(once))
            elif count < 0 and name != slow:
                once()
    times[slow].append(seconds(work[slow]))
    for name, found in times.items():
        print(f"{name:20s} {statistics.median(found):8.3f} s   {[round(t, 3) for t in found]}")
    for name in models:
        ratios = [
            t / (base + p + q)
            for t, base, p, q in zip(
                times[name], *(times[x] for x in ("base", "auxiliary p", "auxiliary q")), strict=True
            )
        ]
        ratio = statistics.median(ratios)
        print(f"{name}: {ratio:.3f} x (base + auxiliaries); bar 1.10: {'holds' if ratio <= 1.10 else 'DOES NOT HOLD'}")
    gain = times[slow][0] / statistics.median(times["linear"])
    print(
        f"caches: {gain:.1f} x faster at {options.new_tokens} tokens; bar 3: {'holds' if gain >= 3 else 'DOES NOT HOLD'}"
    )


if __name__ == "__main__":
    main()
