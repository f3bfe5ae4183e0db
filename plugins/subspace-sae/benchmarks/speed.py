"""Time of a training step beside SAELens's and sparsify's top-k autoencoders, of decoding, and of initialisation.

Usage: ``python benchmarks/speed.py [--pairs 7] [--sizes small wide]`` in an environment with sae-lens and eai-sparsify
(set OMP_NUM_THREADS=1). In one process, on the same rows: one step of ours, one of the peer's, in turn; CPU seconds, the ratio is
the median over pairs. Each step is forward, backward, optimiser, schedule and the count of dead features, as each library's
trainer does it; SAELens also clips gradients, as its trainer always does, so we do, too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from icml26_plugin_subspace_sae import Dictionary, Initialisation, Optimisation, Trainer, TrainingSettings
from icml26_plugin_subspace_sae.autoencoder import Architecture, SparseAutoencoder
from icml26_plugin_subspace_sae.batches import ArrayBatches
from icml26_plugin_subspace_sae.codes import sparse_decode

# d, m, k, rows of a batch
SIZES = {"small": (64, 2048, 4, 256), "smollm2": (576, 9216, 32, 512), "wide": (576, 16384, 32, 4096)}
LR = 4e-4


def rows_of(d: int, count: int) -> np.ndarray:
    """Low-rank rows (count, d)."""
    rng = np.random.default_rng(0)
    half = max(d // 2, 1)
    rows = rng.standard_normal((count, half)) @ rng.standard_normal((half, d)) + 0.1 * rng.standard_normal((count, d))
    return rows.astype(np.float32)


def ours(rows: np.ndarray, m: int, k: int, batch: int, optimizer: str, clip: float | None) -> Callable[[], object]:
    """A step of our trainer; ``adam`` is the baseline without the paper's parts, ``sparseadam`` the method."""
    settings = TrainingSettings(
        Dictionary(n_features=m, k=k),
        Initialisation(subspace="init" if optimizer == "sparseadam" else "none", q="0.5d"),
        Optimisation(optimizer=optimizer, lr=LR, batch_size=batch, steps=1000, warmup=0.05, clip=clip),  # type: ignore[arg-type]
    )
    return Trainer(ArrayBatches(rows, None, batch, 0), settings).step


def sae_lens(rows: np.ndarray, m: int, k: int, batch: int, sparse: bool) -> Callable[[], object]:
    """A step of SAELens's own trainer, with dense or sparse activations."""
    from sae_lens import LoggingConfig, SAETrainer, TopKTrainingSAE, TopKTrainingSAEConfig
    from sae_lens.config import SAETrainerConfig

    config = TopKTrainingSAEConfig(d_in=rows.shape[1], d_sae=m, k=k, use_sparse_activations=sparse)
    options = SAETrainerConfig(
        n_checkpoints=0,
        checkpoint_path=None,
        save_final_checkpoint=False,
        total_training_samples=1000 * batch,
        device="cpu",
        autocast=False,
        lr=LR,
        lr_end=LR / 10,
        lr_scheduler_name="constant",
        lr_warm_up_steps=50,
        adam_beta1=0.9,
        adam_beta2=0.999,
        lr_decay_steps=200,
        n_restart_cycles=1,
        train_batch_size_samples=batch,
        dead_feature_window=1000,
        feature_sampling_window=2000,
        logger=LoggingConfig(log_to_wandb=False),
    )
    data = batches(rows, batch)
    trainer = SAETrainer(cfg=options, sae=TopKTrainingSAE(config), data_provider=data)
    return lambda: trainer._train_step(trainer.sae, next(data)) and None


def sparsify(rows: np.ndarray, m: int, k: int, batch: int) -> Callable[[], object]:
    """A step as sparsify's trainer makes it with Adam, without AuxK."""
    from sparsify import SparseCoder, SparseCoderConfig

    sae = SparseCoder(rows.shape[1], SparseCoderConfig(num_latents=m, k=k, normalize_decoder=True), device="cpu")
    optimizer = torch.optim.Adam(sae.parameters(), lr=LR)
    fired = torch.zeros(m, dtype=torch.bool)
    data = batches(rows, batch)

    def step() -> None:
        x = next(data)
        out = sae(x)
        fired[out.latent_indices.flatten()] = True
        out.fvu.backward()
        sae.remove_gradient_parallel_to_decoder_directions()
        optimizer.step()
        optimizer.zero_grad()
        sae.set_decoder_norm_to_unit_norm()

    return step


def batches(rows: np.ndarray, size: int) -> Iterator[torch.Tensor]:
    """Endless shuffled batches."""
    source = ArrayBatches(rows, None, size, 0)
    while True:
        yield torch.from_numpy(source.next().x)


def seconds(step: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    begun = time.process_time()
    step()
    return time.process_time() - begun


def compare(name: str, mine: Callable[[], object], theirs: Callable[[], object], pairs: int) -> None:
    """Steps in turn; the first two of each warm up."""
    for _ in range(2):
        mine(), theirs()
    times = [(seconds(mine), seconds(theirs)) for _ in range(pairs)]
    ratio = statistics.median(a / b for a, b in times)
    a, b = (statistics.median(t[i] for t in times) for i in (0, 1))
    print(f"  {name:<46} {a * 1e3:9.1f} ms {b * 1e3:9.1f} ms   {ratio:.2f} x", flush=True)


def decoding(d: int, m: int, k: int, batch: int, repeats: int = 7) -> None:
    """Decoding top-k codes by gathering and by the dense product."""
    sae = SparseAutoencoder(Architecture(d, d, m, k=k), generator=torch.Generator().manual_seed(0))
    codes = sae.select(torch.from_numpy(rows_of(d, batch)))
    dense = codes.dense()
    with torch.no_grad():
        times = [
            (
                seconds(lambda: sparse_decode(codes.values, sae.W_dec, codes)),
                seconds(lambda: dense @ sae.W_dec),
            )
            for _ in range(repeats)
        ]
    a, b = (statistics.median(t[i] for t in times) for i in (0, 1))
    print(f"  decode, k/m = {k / m:.2%}: gathered against dense {a * 1e3:12.1f} ms {b * 1e3:9.1f} ms   {a / b:.2f} x")


def initialisation(rows: np.ndarray, m: int, k: int, batch: int) -> None:
    """Share of initialisation in a training of 1,000 steps."""
    settings = TrainingSettings(
        Dictionary(n_features=m, k=k),
        Initialisation(q="0.5d"),
        Optimisation(batch_size=batch, steps=1000, warmup=0.05),
    )

    def begin() -> Trainer:
        return Trainer(ArrayBatches(rows, None, batch, 0), settings)

    begin()
    spent = statistics.median(seconds(begin) for _ in range(3))
    bare = replace(settings, initialisation=Initialisation(subspace="none", norm_search=False))
    trainer = Trainer(ArrayBatches(rows, None, batch, 0), bare)
    trainer.step()
    step = statistics.median(seconds(trainer.step) for _ in range(3))
    print(f"  initialisation {spent:.2f} s, {spent / (1000 * step):.1%} of 1,000 steps")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--sizes", nargs="+", choices=sorted(SIZES), default=list(SIZES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name in options.sizes:
        d, m, k, batch = SIZES[name]
        rows = rows_of(d, max(4 * batch, 10 * d))
        print(
            f"{name}: d={d} m={m} k={k} batch={batch}; ours, peer, median ratio of {options.pairs} pairs of CPU seconds"
        )
        lens = {"dense": sae_lens(rows, m, k, batch, False), "sparse": sae_lens(rows, m, k, batch, True)}
        for kind, theirs in lens.items():
            try:
                theirs()
            except NotImplementedError as error:
                print(f"  SAELens, {kind} activations: does not run here ({str(error).splitlines()[0][:90]})")
                continue
            for optimizer in ("sparseadam", "adam"):
                mine = ours(rows, m, k, batch, optimizer, 1.0)
                compare(f"{optimizer}, clipped : SAELens, {kind} activations", mine, theirs, options.pairs)
        for optimizer in ("sparseadam", "adam"):
            peer = sparsify(rows, m, k, batch)
            compare(f"{optimizer} : sparsify", ours(rows, m, k, batch, optimizer, None), peer, options.pairs)
        decoding(d, m, k, batch)
        initialisation(rows, m, k, batch)


if __name__ == "__main__":
    main()
