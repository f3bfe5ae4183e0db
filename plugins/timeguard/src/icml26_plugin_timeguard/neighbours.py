"""K-nearest-neighbour graphs over embedded units, and neighbourhood scores against a reference set.

The score S(t; R) is the mean distance from unit t to its K nearest units in R, itself excluded: large means isolated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from icml26_plugin_timeguard.embedding import Metric

Fallback = Literal["exact", "inf"]

BLOCK_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Graph:
    """The K_max nearest neighbours of each unit of one channel, nearest first.

    ``indices`` (N, K_max) int32, ``distances`` (N, K_max) float32.
    """

    indices: np.ndarray
    distances: np.ndarray


def _distances(rows: np.ndarray, neighbours: np.ndarray, metric: Metric) -> np.ndarray:
    """Distances (m, k) between rows (m, d) and their neighbours (m, k, d), from differences.

    The Gram matrix picks the neighbours; the distance itself is recomputed, because sqrt(2 - 2r) in
    float32 loses half of its digits for near duplicates, which are what a planted cluster consists of.
    """
    difference = neighbours - rows[:, None, :]
    squared = np.einsum("mkd,mkd->mk", difference, difference)
    return np.sqrt(squared) if metric == "euclidean" else 0.5 * squared


def _nearest(gap: np.ndarray, k: int) -> np.ndarray:
    """Column indices (m, k) of the k smallest entries of each row, in no order."""
    if k >= gap.shape[1]:
        return np.broadcast_to(np.arange(gap.shape[1]), gap.shape)
    return np.argpartition(gap, k - 1, axis=1)[:, :k]


def _search(
    embedded: np.ndarray, rows: np.ndarray, columns: np.ndarray, k: int, metric: Metric
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of ``columns`` for each of ``rows`` (index arrays), itself excluded, nearest first.

    Where fewer than k others exist the tail has index -1 and distance inf.
    """
    reference = embedded[columns]
    half_norms = 0.5 * np.einsum("nd,nd->n", reference, reference)
    indices = np.full((len(rows), k), -1, dtype=np.int32)
    distances = np.full((len(rows), k), np.inf, dtype=np.float32)
    position = np.full(len(embedded), -1, dtype=np.int64)
    position[columns] = np.arange(len(columns))
    step = max(1, BLOCK_BYTES // (4 * max(1, len(columns), k * embedded.shape[1])))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        gap = half_norms - embedded[block] @ reference.T
        own = position[block]
        present = np.flatnonzero(own >= 0)
        gap[present, own[present]] = np.inf
        found = _nearest(gap, k)
        exact = _distances(embedded[block], reference[found], metric)
        exact[np.isinf(np.take_along_axis(gap, found, axis=1))] = np.inf
        order = np.argsort(exact, axis=1, kind="stable")
        exact = np.take_along_axis(exact, order, axis=1)
        nearest = columns[np.take_along_axis(found, order, axis=1)]
        width = found.shape[1]
        distances[start : start + step, :width] = exact
        indices[start : start + step, :width] = np.where(np.isinf(exact), -1, nearest)
    return indices, distances


def knn_graph(embedded: np.ndarray, k_max: int, metric: Metric = "euclidean") -> Graph:
    """Graph of the ``k_max`` nearest neighbours of each embedded unit (N, d), self excluded; k_max < N."""
    everything = np.arange(len(embedded))
    return Graph(*_search(embedded, everything, everything, k_max, metric))


def mean_of_nearest(distances: np.ndarray, k: int) -> np.ndarray:
    """Mean of the first k finite entries of each row of ascending distances; +inf where a row has none."""
    head = distances[:, :k]
    finite = np.isfinite(head)
    count = finite.sum(axis=1)
    total = np.where(finite, head, 0.0).sum(axis=1, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.inf)


def exact_score(embedded: np.ndarray, reference: np.ndarray, k: int, metric: Metric = "euclidean") -> np.ndarray:
    """S(t; R) of every unit against the boolean reference (N,), by a full search."""
    return _rows_score(embedded, np.arange(len(embedded)), np.flatnonzero(reference), k, metric)


def _rows_score(embedded: np.ndarray, rows: np.ndarray, columns: np.ndarray, k: int, metric: Metric) -> np.ndarray:
    if len(columns) == 0:
        return np.full(len(rows), np.inf)
    return mean_of_nearest(_search(embedded, rows, columns, k, metric)[1], k)


def neighbourhood_score(
    graph: Graph,
    k: int,
    reference: np.ndarray | None = None,
    *,
    fallback: Fallback = "exact",
    embedded: np.ndarray | None = None,
    metric: Metric = "euclidean",
) -> np.ndarray:
    """S(t; R) of every unit (N,) from the graph; ``reference`` (N,) bool marks R, None means all units.

    A unit with fewer than k of its K_max neighbours in R: ``exact`` searches R for it (needs ``embedded``); ``inf``
    averages those it has and gives +inf when there is none, as the authors' code does.
    """
    if reference is None:
        return mean_of_nearest(graph.distances, k)
    inside = reference[graph.indices] & (graph.indices >= 0)
    rank = np.cumsum(inside, axis=1)
    use = inside & (rank <= k)
    count = np.minimum(rank[:, -1], k)
    total = np.where(use, graph.distances, 0.0).sum(axis=1, dtype=np.float64)
    score = np.where(count > 0, total / np.maximum(count, 1), np.inf)
    if fallback == "exact":
        short = np.flatnonzero(count < k)
        if len(short):
            if embedded is None:
                raise ValueError("fallback='exact' needs the embedded units")
            score[short] = _rows_score(embedded, short, np.flatnonzero(reference), k, metric)
    return score
