"""Isolation scores of all units, channel by channel, within a memory budget."""

from __future__ import annotations

import numpy as np

from icml26_plugin_timeguard.embedding import Metric, embed_channel
from icml26_plugin_timeguard.neighbours import Fallback, Graph, knn_graph, neighbourhood_score
from icml26_plugin_timeguard.settings import Progress, silent


class Isolation:
    """S_c(t; R) for every unit of a physical series (T, C).

    Each channel's K_max graph and embedding are kept while all together stay below ``max_graph_mb``; the channels beyond it
    get theirs rebuilt whenever they are scored. Memory C N (8 K_max + 4 n) bytes, capped; time C N^2 n once.
    """

    def __init__(
        self,
        series: np.ndarray,
        seq_len: int,
        pred_len: int,
        *,
        k: int,
        k_max: int,
        sigma: float = 2.0,
        metric: Metric = "euclidean",
        fallback: Fallback = "exact",
        max_graph_mb: float = 2048.0,
        progress: Progress = silent,
    ) -> None:
        self.series, self.lengths = series, (seq_len, pred_len)
        self.k, self.k_max, self.sigma, self.metric, self.fallback = k, k_max, sigma, metric, fallback
        n = len(series) - seq_len - pred_len + 1
        per_channel = n * (8 * k_max + 4 * (seq_len + pred_len + 1))
        self.kept = min(series.shape[1], int(max_graph_mb * 2**20 // per_channel))
        self._channels = [self._channel(c) for c in progress(range(self.kept), "neighbour graph", self.kept)]

    def _channel(self, channel: int) -> tuple[np.ndarray, Graph]:
        embedded = embed_channel(self.series[:, channel], *self.lengths, self.sigma, self.metric)
        return embedded, knn_graph(embedded, self.k_max, self.metric)

    def score(self, reference: np.ndarray | None = None, *, gate: int | None = None) -> np.ndarray:
        """S (C, N) float64 against ``reference`` (C, N) bool, or against all units.

        With ``gate`` only which units of a channel have the ``gate`` largest scores is exact; it saves most searches.
        """
        rows = []
        for channel in range(self.series.shape[1]):
            embedded, graph = self._channels[channel] if channel < self.kept else self._channel(channel)
            rows.append(
                neighbourhood_score(
                    graph,
                    self.k,
                    None if reference is None else reference[channel],
                    fallback=self.fallback,
                    embedded=embedded,
                    metric=self.metric,
                    gate=gate,
                )
            )
        return np.stack(rows)
