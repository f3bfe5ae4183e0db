"""Speed of span-wise attribution beside token-wise attribution on one kernel, growth in N and M, and a memory case.

``python benchmarks/speed.py`` prints tables; ``--memory`` runs the memory case alone, ``--peer`` compares with the package
``flashtrace`` when it is installed. Times are processor times of the process, best of several, without the forward pass.
Attention is the model's own (stored), so that the kernel alone is measured; recomputing its rows stands beside it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from icml26_plugin_flashtrace.capture import capture_blocks
from icml26_plugin_flashtrace.kernel import span_shares, token_shares
from icml26_plugin_flashtrace.measuring import measured
from icml26_plugin_flashtrace.task import Example
from icml26_plugin_flashtrace.tracing import trace

MIB = 2**20


def tiny_llama(width: int, heads: int, layers: int, vocabulary: int, context: int, seed: int = 0) -> Any:
    """A random Llama with as many key-value heads as query heads; sdpa attention."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        initializer_range=0.1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def ids_of(n: int, vocabulary: int) -> np.ndarray:
    """Random ids (n,)."""
    return np.random.default_rng(0).integers(3, vocabulary, size=n)


def best_of(work: Callable[[], Any], repeats: int = 9) -> float:
    """The smallest processor time in seconds, after one run to warm up."""
    work()
    found = []
    for _ in range(repeats):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found)


def slope(x: list[int], y: list[float]) -> float:
    """The slope of log y over log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def targets(sizes: tuple[int, ...], n: int = 512) -> None:
    """Span-wise against token-wise: d = 128, 4 heads, 2 layers; the brief's bars are for M = 256 of N = 512."""
    model = tiny_llama(128, 4, 2, 256, n)
    model.set_attn_implementation("eager")
    begun = time.process_time()
    stored = capture_blocks(model, ids_of(n, 256), recompute_attention=False)
    forward = time.process_time() - begun
    computed = capture_blocks(model, ids_of(n, 256))
    print(f"\nN = {n}, processor seconds of the attribution; forward pass with hooks {forward:.3f} s\n")
    print("| M | span-wise | with rows recomputed | token-wise, 32 at once | one by one | ratio | ratio, one by one |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    spans = {}
    for m in sizes:
        lo, hi = n - m, n - 1
        spans[m] = best_of(lambda lo=lo, hi=hi: span_shares(stored, lo, hi), 30)
        again = best_of(lambda lo=lo, hi=hi: span_shares(computed, lo, hi), 30)
        chunked = best_of(lambda lo=lo, hi=hi: token_shares(stored, lo, hi), 5)
        single = best_of(lambda lo=lo, hi=hi: token_shares(stored, lo, hi, sink_chunk=1), 5)
        ratios = f"{chunked / spans[m]:.0f} × | {single / spans[m]:.0f} ×"
        print(f"| {m} | {spans[m]:.5f} | {again:.5f} | {chunked:.4f} | {single:.4f} | {ratios} |")
    print(f"\nspan-wise, M = {sizes[-1]} over M = {sizes[0]}: {spans[sizes[-1]] / spans[sizes[0]]:.2f} ×")


def growth() -> None:
    """Span-wise time over N at M = 64, and over M at N = 2,048, with log-log slopes."""
    model = tiny_llama(128, 4, 2, 256, 4096)
    model.set_attn_implementation("eager")
    lengths = [256, 512, 1024, 2048, 4096]
    times = []
    for n in lengths:
        blocks = capture_blocks(model, ids_of(n, 256), recompute_attention=False)
        times.append(best_of(lambda b=blocks, n=n: span_shares(b, n - 64, n - 1)))
    print("\n| N (M = 64) | " + " | ".join(map(str, lengths)) + " |")
    print("| --- " * (len(lengths) + 1) + "|")
    print("| seconds | " + " | ".join(f"{t:.4f}" for t in times) + f" |\n\nslope over N: {slope(lengths, times):.2f}")
    blocks = capture_blocks(model, ids_of(2048, 256), recompute_attention=False)
    sizes = [8, 32, 128, 512, 1024]
    spans = [best_of(lambda m=m: span_shares(blocks, 2048 - m, 2047)) for m in sizes]
    few = sizes[:3]
    tokens = [best_of(lambda m=m: token_shares(blocks, 2048 - m, 2047), 1) for m in few]
    print("\n| M (N = 2048) | " + " | ".join(map(str, sizes)) + " |")
    print("| --- " * (len(sizes) + 1) + "|")
    print("| span-wise | " + " | ".join(f"{t:.4f}" for t in spans) + " |")
    print("| token-wise | " + " | ".join(f"{t:.3f}" for t in tokens) + " | – " * (len(sizes) - len(few)) + "|")
    print(f"\nslope over M: span-wise {slope(sizes, spans):.2f}, token-wise {slope(few, tokens):.2f}")
    print(f"span-wise, M = 512 over M = 8: {spans[3] / spans[0]:.2f} ×")


def memory() -> None:
    """4 layers, 8 heads, d = 512, vocabulary 1,024, N = 4,096, of which 1,024 are generated; peak above the loaded model."""
    n, n_prompt = 4096, 3072
    model = tiny_llama(512, 8, 4, 1024, n)
    ids = ids_of(n, 1024)
    example = Example("memory", tuple(f"t{i}" for i in ids), ids, n_prompt, (900, 1023), (0, 899))
    with measured() as cost:
        found = trace(example, model, hops=1)
    print(
        f"\nmemory case, N = {n}: peak {cost.peak_bytes / MIB:.0f} MiB above the model; seconds {_rounded(found.seconds)}"
    )


def peer() -> None:
    """The released package on the same tiny model, when it is installed."""
    try:
        import flashtrace
    except ImportError:
        print("\nthe peer package flashtrace is not installed: pip install --no-deps flashtrace")
        return
    from peer import compare

    compare(flashtrace, tiny_llama(128, 4, 2, 256, 1024))


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in seconds.items()}


def main() -> None:
    """Run what was asked for, everything without a flag."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--targets", action="store_true")
    parser.add_argument("--growth", action="store_true")
    chosen = parser.parse_args()
    every = not any(vars(chosen).values())
    torch.set_num_threads(1)
    if chosen.memory or every:
        memory()
    if chosen.targets or every:
        targets((8, 64, 256))
        targets((8, 64, 256), 2048)
    if chosen.growth or every:
        growth()
    if chosen.peer or every:
        peer()


if __name__ == "__main__":
    main()
