"""Speed of the neighbour graph beside scikit-learn, of a selection round, and of TimeGuard beside plain training.

Usage: ``python benchmarks/speed.py [--large]`` (needs scikit-learn; one thread: set OMP_NUM_THREADS=1 for CPU figures).
Each pair is measured in this one process, in turn; medians of CPU seconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from icml26_plugin_timeguard.embedding import embed_channel
from icml26_plugin_timeguard.neighbours import knn_graph
from icml26_plugin_timeguard.session import Session
from icml26_plugin_timeguard.settings import PoolSettings, Training
from icml26_plugin_timeguard.synthetic import synthetic_traffic
from icml26_plugin_timeguard.timeguard import PoolTraining, train_plainly
from sklearn.neighbors import NearestNeighbors

TRAINING = Training(lr=1e-3, model_selection="last", epochs=20)


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call, and what it returned."""
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


def graph_beside_scikit_learn(n: int, channels: int = 10, k_max: int = 64, repeats: int = 3) -> None:
    """The K_max graph of all channels, ours and brute force, with equal distances."""
    series = synthetic_traffic(np.random.default_rng(0), n + 23, channels)
    embedded = [embed_channel(series[:, c], 12, 12, 2.0, "euclidean") for c in range(channels)]

    def ours() -> list[np.ndarray]:
        return [knn_graph(u, k_max).distances for u in embedded]

    def theirs() -> list[np.ndarray]:
        fitted = [NearestNeighbors(n_neighbors=k_max + 1, algorithm="brute").fit(u) for u in embedded]
        return [f.kneighbors(u)[0][:, 1:] for f, u in zip(fitted, embedded, strict=True)]

    pairs = [(seconds(ours), seconds(theirs)) for _ in range(repeats)]
    gap = max(float(np.abs(a - b).max()) for a, b in zip(pairs[0][0][1], pairs[0][1][1], strict=True))
    own, other = (statistics.median(pair[side][0] for pair in pairs) for side in (0, 1))
    print(
        f"graph C={channels} N={n} K_max={k_max}: {own:.2f} s, scikit-learn brute {other:.2f} s, largest gap {gap:.1e}"
    )


def selection_round_beside_an_epoch(n: int, rounds: int) -> None:
    """A selection (losses, scores, DRLS) as a share of the epoch that follows it, under the default settings."""
    series = synthetic_traffic(np.random.default_rng(0), n + 23, 10)
    session = Session.open(series, None, 12, 12, TRAINING, seed=0)
    for beta, k in ((0.5, 20), (0.8, 10)):
        stages = PoolTraining(session, PoolSettings(beta=beta, k=k, pi=1.1, rounds=rounds))
        isolation, trainer = stages.isolation(), session.trainer()
        rng = np.random.default_rng(0)
        pool = rng.random((10, n)) < 0.2
        select, epoch = [], []
        for index in range(rounds):
            spent, pool = seconds(partial(stages.select, trainer, isolation, pool, index))
            select.append(spent)
            epoch.append(seconds(partial(trainer.epoch, pool))[0])
        share = statistics.median(select) / statistics.median(epoch)
        print(
            f"round N={n} beta={beta} K={k}: select {statistics.median(select):.3f} s, epoch {statistics.median(epoch):.3f} s, "
            f"share {share:.0%}"
        )


def timeguard_beside_plain_training(n: int, epochs: int) -> None:
    """Both stages at as many forecaster epochs as plain training, the graph and the backcaster counted apart."""
    series = synthetic_traffic(np.random.default_rng(0), n + 23, 10)
    session = Session.open(series, None, 12, 12, Training(lr=1e-3, model_selection="last", epochs=epochs), seed=0)
    plain, _ = seconds(lambda: train_plainly(session))
    warm = epochs // 10
    stages = PoolTraining(session, PoolSettings(warmup_epochs=warm, rounds=epochs - warm))
    graph, isolation = seconds(stages.isolation)
    first, pool = seconds(lambda: stages.initial_pool(isolation))
    trainer = session.trainer()
    keeper = session.keeper(trainer)

    def rest() -> None:
        current = pool
        stages.warm_up(trainer, keeper, current)
        for index in range(epochs - warm):
            current = stages.round(trainer, keeper, isolation, current, index)

    spent, _ = seconds(rest)
    print(
        f"whole N={n}, {epochs} epochs: none {plain:.1f} s; TimeGuard {first + spent:.1f} s beside the graph ({graph:.1f} s): "
        f"{(first + spent) / plain:.2f} x (backcaster and Stage I {first:.1f} s)"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also N = 15,000")
    large = parser.parse_args().large
    torch.set_num_threads(1)
    for n, repeats in ((2000, 3), *(((15_000, 1),) if large else ())):
        graph_beside_scikit_learn(n, repeats=repeats)
        selection_round_beside_an_epoch(n, rounds=7 if n < 10_000 else 3)
    timeguard_beside_plain_training(2000, epochs=30)


if __name__ == "__main__":
    main()
