"""K-nearest-neighbour graphs over embedded units, and neighbourhood scores against a reference set.

The score S(t; R) is the mean distance from unit t to its K nearest units in R, itself excluded: large means isolated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from icml26_plugin_timeguard.embedding import Metric

Fallback = Literal["exact", "inf"]

# Rows are searched in blocks that stay in the processor's cache; larger ones are slower, smaller ones pay more overhead.
BLOCK_BYTES = 2**20


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


def _nearest(values: np.ndarray, k: int) -> np.ndarray:
    """Column indices (m, k) of the k smallest entries of each row (m, n), in no order; all columns when k >= n.

    A row is cut into slabs; only columns whose minimum over the slabs is among the k smallest minima can hold one of the k
    smallest entries, since each of those k minima is at most as large as anything in the other columns. That leaves about
    2 sqrt(n k) entries to partition in place of n.
    """
    m, n = values.shape
    if k >= n:
        return np.broadcast_to(np.arange(n), values.shape)
    slabs = round((n / k) ** 0.5)
    if n <= 8 * k or slabs < 2:
        return np.argpartition(values, k - 1, axis=1)[:, :k]
    width = n // slabs
    body = values[:, : slabs * width].reshape(m, slabs, width)
    columns = _nearest(body.min(axis=1), k)
    inside = (columns[:, None, :] + width * np.arange(slabs)[:, None]).reshape(m, -1)
    # The remainder that does not fill a slab is looked at whole: fewer than `slabs` columns.
    rest = np.broadcast_to(np.arange(slabs * width, n), (m, n - slabs * width))
    candidates = np.concatenate([inside, rest], axis=1)
    chosen = _nearest(_take(values, candidates), k)
    return _take(candidates, chosen)


def _take(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """values[i, columns[i, j]], (m, k); np.take on the flat array, since take_along_axis is two to three times slower."""
    offsets = np.arange(len(values))[:, None] * values.shape[1]
    return np.take(np.ascontiguousarray(values), columns + offsets)


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
    step = max(32, BLOCK_BYTES // (4 * max(1, len(columns))))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        gap = half_norms - embedded[block] @ reference.T
        own = position[block]
        present = np.flatnonzero(own >= 0)
        gap[present, own[present]] = np.inf
        found = _nearest(gap, k)
        exact = _distances(embedded[block], np.take(reference, found, axis=0), metric)
        exact[np.isinf(_take(gap, found))] = np.inf
        order = np.argsort(exact, axis=1, kind="stable")
        exact = _take(exact, order)
        nearest = np.take(columns, _take(found, order))
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
    gate: int | None = None,
) -> np.ndarray:
    """S(t; R) of every unit (N,) from the graph; ``reference`` (N,) bool marks R, None means all units.

    A unit with fewer than k of its K_max neighbours in R: ``exact`` searches R for it (needs ``embedded``); ``inf``
    averages those it has and gives +inf when there is none, as the authors' code does. When only the ``gate`` largest scores
    matter, units that surely belong to them keep a lower bound instead of being searched; those ``gate`` stay the same units.
    """
    if reference is None:
        return mean_of_nearest(graph.distances, k)
    count, total = _survivors(graph, k, reference)
    score = np.where(count > 0, total / np.maximum(count, 1), np.inf)
    short = np.flatnonzero(count < k)
    if fallback == "inf" or len(short) == 0:
        return score
    if embedded is None:
        raise ValueError("fallback='exact' needs the embedded units")
    if gate is not None and reference.sum() > k:
        # The neighbours beyond the graph are at least as far as its last one.
        lower = (total[short] + (k - count[short]) * graph.distances[short, -1]) / k
        sure = lower > _surely_above(score[count >= k], gate - len(short))
        score[short[sure]] = lower[sure]
        short = short[~sure]
    score[short] = _rows_score(embedded, short, np.flatnonzero(reference), k, metric)
    return score


def _survivors(graph: Graph, k: int, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many (at most k) of each unit's neighbours are in R, and the sum of the distances of the nearest k of them."""
    inside = np.take(reference, graph.indices, mode="wrap")
    rank = np.cumsum(inside, axis=1, dtype=np.int16)
    use = inside & (rank <= k) & (graph.indices >= 0)
    return np.minimum(rank[:, -1], k), np.einsum("nk,nk->n", use, graph.distances, dtype=np.float64)


def _surely_above(complete: np.ndarray, rank: int) -> float:
    """What a unit must exceed to be in the gate even if every unit of unknown score is; inf when they fill it alone."""
    if rank <= 0 or rank > len(complete):
        return np.inf if rank <= 0 else -np.inf
    # The margin covers that a search rounds its distances otherwise than the graph did.
    return float(np.partition(complete, len(complete) - rank)[len(complete) - rank]) * (1 + 1e-5)
