from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icml26_plugin_timeguard import neighbours
from icml26_plugin_timeguard.criteria import highest, neighbourhood_diversity_filter
from icml26_plugin_timeguard.embedding import Metric, embed, embed_channel, forecast_weights
from icml26_plugin_timeguard.isolation import Isolation
from icml26_plugin_timeguard.neighbours import exact_score, knn_graph, neighbourhood_score


def walk(n_steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=n_steps).cumsum()


def brute(embedded: np.ndarray, k: int, reference: np.ndarray, metric: Metric) -> np.ndarray:
    """S by all pairs in float64; fewer than k others: mean of those, none: inf."""
    u = embedded.astype(np.float64)
    squared = ((u[:, None] - u[None]) ** 2).sum(-1)
    distances = np.sqrt(squared) if metric == "euclidean" else squared / 2
    np.fill_diagonal(distances, np.inf)
    distances[:, ~reference] = np.inf
    ordered = np.sort(distances, axis=1)[:, :k]
    return np.array([row[np.isfinite(row)].mean() if np.isfinite(row).any() else np.inf for row in ordered])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**16), st.floats(0.02, 1.0), st.sampled_from(["euclidean", "one_minus_r"]), st.integers(1, 12))
def test_scores_equal_brute_force_with_any_reference(seed: int, share: float, metric: Metric, k: int) -> None:
    embedded = embed_channel(walk(140, seed), 12, 12, 2.0, metric)
    reference = np.random.default_rng(seed).random(len(embedded)) < share
    graph = knn_graph(embedded, 16, metric)
    expected = brute(embedded, k, reference, metric)
    found = neighbourhood_score(graph, k, reference, embedded=embedded, metric=metric)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    np.testing.assert_allclose(exact_score(embedded, reference, k, metric), expected, atol=2e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**16), st.integers(1, 9), st.integers(1, 700), st.booleans())
def test_the_slab_search_finds_the_smallest_entries_also_with_ties(seed: int, k: int, n: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 5, (3, n)).astype(np.float32) if ties else rng.normal(size=(3, n)).astype(np.float32)
    values[0, : n // 2] = np.inf
    columns = neighbours._nearest(values, k)
    assert all(len(set(row)) == min(k, n) for row in columns.tolist())
    found = np.sort(np.take_along_axis(values, columns, axis=1), axis=1)
    np.testing.assert_array_equal(found, np.sort(values, axis=1)[:, :k])


def test_full_reference_equals_scikit_learn_minus_self() -> None:
    sklearn = pytest.importorskip("sklearn.neighbors")
    embedded = embed_channel(walk(400), 12, 12, 2.0, "euclidean")
    distances, _ = sklearn.NearestNeighbors(n_neighbors=21, algorithm="brute").fit(embedded).kneighbors(embedded)
    score = neighbourhood_score(knn_graph(embedded, 64), 20)
    np.testing.assert_allclose(score, distances[:, 1:].mean(axis=1), atol=1e-6)


def test_small_blocks_give_the_same_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    embedded = embed_channel(walk(300), 12, 12, 2.0, "euclidean")
    whole = knn_graph(embedded, 8)
    monkeypatch.setattr(neighbours, "BLOCK_BYTES", 1)
    parts = knn_graph(embedded, 8)
    np.testing.assert_array_equal(whole.indices, parts.indices)
    np.testing.assert_allclose(whole.distances, parts.distances, atol=1e-7)


def test_a_graph_never_holds_the_unit_itself_even_among_duplicates() -> None:
    embedded = embed(np.tile(np.sin(np.arange(24.0)), (30, 1)), forecast_weights(12, 12))
    graph = knn_graph(embedded, 10)
    assert (graph.indices != np.arange(30)[:, None]).all()
    np.testing.assert_array_equal(graph.distances, 0.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**16), st.floats(0.05, 0.95), st.floats(0.1, 1.0), st.sampled_from(["euclidean", "one_minus_r"]))
def test_a_gate_lets_the_same_units_pass_as_exact_scores(seed: int, share: float, gate: float, metric: Metric) -> None:
    embedded = embed_channel(walk(300, seed), 12, 12, 2.0, metric)
    # Rejects are neighbours in time, as in training, so that many units have few of them near.
    reference = np.sin(np.arange(277) / 9.0 + seed) > np.cos(np.pi * share)
    graph, size = knn_graph(embedded, 12, metric), int(277 * gate)
    exact = neighbourhood_score(graph, 8, reference, embedded=embedded, metric=metric)
    gated = neighbourhood_score(graph, 8, reference, embedded=embedded, metric=metric, gate=size)
    assert (gated <= exact * (1 + 1e-5)).all()
    np.testing.assert_array_equal(highest(exact[None], size), highest(gated[None], size))


def test_a_gate_spares_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    embedded = embed_channel(walk(600), 12, 12, 2.0, "euclidean")
    reference = np.arange(577) % 97 < 40
    graph = knn_graph(embedded, 16)
    searched: list[int] = []
    search = neighbours._rows_score
    monkeypatch.setattr(
        neighbours, "_rows_score", lambda e, rows, *rest: (searched.append(len(rows)), search(e, rows, *rest))[1]
    )
    for gate in (None, 450):
        neighbourhood_score(graph, 8, reference, embedded=embedded, gate=gate)
    assert 0 <= searched[1] < 0.5 * searched[0]


def test_inf_fallback_averages_survivors_and_gives_inf_without_any() -> None:
    embedded = embed_channel(walk(120), 12, 12, 2.0, "euclidean")
    graph = knn_graph(embedded, 5)
    reference = np.zeros(len(embedded), dtype=bool)
    reference[graph.indices[0, 3]] = True
    score = neighbourhood_score(graph, 4, reference, fallback="inf")
    assert score[0] == pytest.approx(graph.distances[0, 3])
    untouched = ~reference[graph.indices].any(axis=1)
    assert untouched.any() and np.isinf(score[untouched]).all()
    exact = neighbourhood_score(graph, 4, reference, fallback="exact", embedded=embedded)
    assert np.isfinite(exact[untouched & ~reference]).all()


def test_a_planted_cluster_never_counts_as_diverse() -> None:
    """1 channel, 1000 random-walk windows, 60 of them replaced by one shape with 1 % noise."""
    rng = np.random.default_rng(3)
    units = rng.normal(size=(1000, 24)).cumsum(axis=1)
    planted = rng.choice(1000, 60, replace=False)
    shape = np.sin(np.linspace(0, 5, 24))
    units[planted] = shape + 0.01 * rng.normal(size=(60, 24))
    graph = knn_graph(embed(units, forecast_weights(12, 12)), 64)
    diverse = neighbourhood_diversity_filter(neighbourhood_score(graph, 20)[None], 0.2)[0]
    assert diverse.sum() == 200
    assert not diverse[planted].any()


@pytest.mark.parametrize("fallback", ["exact", "inf"])
def test_a_memory_limit_changes_no_score(fallback: str) -> None:
    series = np.stack([walk(200, seed) for seed in range(3)], axis=1)
    options = {"k": 5, "k_max": 12, "fallback": fallback}
    whole = Isolation(series, 12, 12, **options)  # type: ignore[arg-type]
    one_graph = 177 * (8 * 12 + 4 * 25) / 2**20
    capped = Isolation(series, 12, 12, max_graph_mb=1.5 * one_graph, **options)  # type: ignore[arg-type]
    assert (whole.kept, capped.kept) == (3, 1)
    reference = np.random.default_rng(0).random((3, 177)) < 0.1
    for chosen in (None, reference):
        np.testing.assert_array_equal(whole.score(chosen), capped.score(chosen))
