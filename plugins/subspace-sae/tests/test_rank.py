"""Rank: closed forms, agreement with the full SVD, invariances, and what is refused (checks 3, 11, 12)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from icml26.errors import InputError
from icml26_plugin_subspace_sae.heads import head_attribution, squared_cosines
from icml26_plugin_subspace_sae.rank import (
    StreamingCovariance,
    blocks_of,
    covariance_of,
    effective_rank,
    participation_ratio,
    rank_report,
    spectrum_of_scatter,
    variance_directions,
)


def rows(n: int = 400, d: int = 12, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) * np.exp(-0.4 * np.arange(d))) @ rng.standard_normal((d, d))


def test_effective_rank_of_known_spectra() -> None:
    assert effective_rank(np.ones(7)) == pytest.approx(7)
    assert effective_rank(np.array([3.0, 0, 0])) == 1
    assert effective_rank(np.array([5.0, 5.0, 0])) == pytest.approx(2)
    # p = (1/2, 1/4, 1/4): exp(3/2 ln 2).
    assert effective_rank(np.array([2.0, 1.0, 1.0])) == pytest.approx(2**1.5)


def test_identity_covariance_has_full_rank_and_a_rank_one_matrix_rank_one() -> None:
    assert effective_rank(spectrum_of_scatter(np.eye(9), count=100).singular_values) == pytest.approx(9)
    direction = np.arange(1.0, 10.0)
    line = np.outer(np.random.default_rng(0).standard_normal(50), direction)
    spectrum = covariance_of([line]).spectrum()
    report = rank_report(spectrum)
    assert report.effective_rank == pytest.approx(1, abs=1e-6)
    assert report.directions_99 == 1 and report.participation_ratio == pytest.approx(1)
    assert abs(spectrum.top(1)[:, 0] @ direction) == pytest.approx(np.linalg.norm(direction))


def test_variance_directions_and_participation_ratio_of_known_spectra() -> None:
    s = np.sqrt(np.array([98.0, 1.0, 0.5, 0.5]))
    assert variance_directions(s) == 2  # 98 + 1 of 100, exactly 99 %
    assert variance_directions(s, 0.98) == 1
    assert variance_directions(s, 0.992) == 3
    assert variance_directions(s, 1.0) == 4
    assert participation_ratio(np.sqrt(np.array([2.0, 1.0, 1.0]))) == pytest.approx(16 / 6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(1e-6, 1e6))
def test_measures_do_not_change_under_rotation_and_scale(seed: int, scale: float) -> None:
    x = rows(seed=seed)
    turn = np.linalg.qr(np.random.default_rng(seed + 1).standard_normal((12, 12)))[0]
    first, second = (rank_report(covariance_of([y]).spectrum()) for y in (x, scale * x @ turn))
    assert second.effective_rank == pytest.approx(first.effective_rank, rel=1e-6)
    assert second.participation_ratio == pytest.approx(first.participation_ratio, rel=1e-6)
    assert second.directions_99 == first.directions_99


def test_streaming_agrees_with_the_svd_of_the_whole_matrix() -> None:
    x = rows() + 30.0
    spectrum = covariance_of(blocks_of(x, 37)).spectrum()
    centred = torch.from_numpy(x - x.mean(axis=0))
    _, values, turned = torch.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(spectrum.singular_values, values.numpy(), rtol=1e-6)
    for r in (1, 3, 7):
        assert squared_cosines(spectrum.top(r), turned[:r].T.numpy()).min() > 1 - 1e-9
    np.testing.assert_allclose(spectrum.mean, x.mean(axis=0), rtol=1e-12)


def test_a_large_constant_offset_leaves_the_span_alone() -> None:
    x = rows(n=2000)
    x[:, 6:] = 0
    offset = np.full(12, 1e5)
    plain, shifted = (covariance_of(blocks_of(y, 100)).spectrum() for y in (x, x + offset))
    cosines = squared_cosines(plain.top(6), shifted.top(6))
    assert np.arccos(np.sqrt(cosines.clip(0, 1))).max() < 1e-3
    np.testing.assert_allclose(plain.singular_values, shifted.singular_values, rtol=1e-6, atol=1e-3)


def test_covariances_merge_in_any_split() -> None:
    x = rows() + np.arange(12)
    whole = covariance_of([x])
    np.testing.assert_allclose(whole.covariance(), np.cov(x.T), rtol=1e-10)
    left, right = covariance_of([x[:10], x[10:11]]), covariance_of([x[11:]])
    left.merge(right)
    left.merge(StreamingCovariance(12))
    left.update(np.empty((0, 12)))
    assert left.count == 400
    np.testing.assert_allclose(left.scatter, whole.scatter, rtol=1e-9)


def test_float16_rows_do_not_overflow_in_the_covariance() -> None:
    x = (rows() / np.abs(rows()).max() * 60_000).astype(np.float16)
    found = covariance_of([x]).covariance()
    np.testing.assert_allclose(found, np.cov(x.astype(np.float64).T), rtol=1e-9)


def test_projection_keeps_the_top_directions_and_the_mean() -> None:
    x = rows() + 5.0
    spectrum = covariance_of([x]).spectrum()
    residual = x - spectrum.project(x, 4)
    left = (spectrum.singular_values[4:] ** 2).sum()
    assert (residual**2).sum() == pytest.approx(left)
    np.testing.assert_allclose(spectrum.project(x, 12), x, atol=1e-9)


def test_few_rows_are_warned_about() -> None:
    assert "119 rows for 12 dimensions" in rank_report(covariance_of([rows(119)]).spectrum()).warnings[0]
    assert rank_report(covariance_of([rows(120)]).spectrum()).warnings == ()


@pytest.mark.parametrize(
    ("x", "named"),
    [
        (np.ones(5), r"shape \(rows, dimensions\), not \(5,\)"),
        (np.ones((5, 2)), "constant"),
        (np.ones((1, 2)), "1 rows have no spread"),
        (np.array([["a", "b"]]), "not real numbers"),
        (np.ones((3, 2), dtype=complex), "complex128"),
        (np.array([[1.0, 2], [3, np.nan]]), "row 1, dimension 1"),
        (np.array([[1.0, 2], [3, np.inf]], dtype=np.float16), "float16 overflows"),
        (np.array([[1e200, 2], [-1e200, 3]]), "squares overflow"),
    ],
)
def test_rows_that_have_no_rank_are_refused(x: np.ndarray, named: str) -> None:
    with pytest.raises(InputError, match=named):
        covariance_of([x]).spectrum()


def test_empty_streams_and_other_widths_are_refused() -> None:
    with pytest.raises(InputError, match="empty"):
        covariance_of([])
    with pytest.raises(InputError, match="3 dimensions where 2"):
        covariance_of([np.ones((2, 2)), np.ones((2, 3))])
    with pytest.raises(InputError, match="3 dimensions"):
        StreamingCovariance(2).merge(StreamingCovariance(3, "others"))
    with pytest.raises(InputError, match="in row 2, dimension 0"):
        covariance_of([np.eye(2), np.array([[np.nan, 0]])])


def test_heads_that_write_apart_do_not_overlap_and_heads_that_write_together_do() -> None:
    # Two heads of two dimensions each, d = 4, white head outputs.
    apart = head_attribution(np.eye(4), np.eye(4), 2)
    assert (apart.before, apart.projection, apart.after) == pytest.approx((4, 4, 4))
    assert apart.per_head == pytest.approx([2, 2])
    assert apart.overlap == pytest.approx(0) and apart.mean_squared_cosine == pytest.approx(0)
    assert apart.chance_squared_cosine == pytest.approx(0.5)
    same = np.zeros((4, 4))
    same[:2, :2] = same[:2, 2:] = np.eye(2)
    together = head_attribution(np.eye(4), same, 2)
    assert together.before == pytest.approx(4)
    assert together.projection == pytest.approx(2) and together.after == pytest.approx(2)
    assert together.overlap == pytest.approx(0.5) and together.mean_squared_cosine == pytest.approx(1)


def test_attribution_is_that_of_the_outputs_themselves() -> None:
    rng = np.random.default_rng(3)
    heads = rng.standard_normal((500, 12)) @ rng.standard_normal((12, 12))
    w_o = rng.standard_normal((8, 12))
    found = head_attribution(covariance_of([heads]).scatter, w_o, 3)
    outputs = covariance_of([heads @ w_o.T + 7.0]).spectrum()
    assert found.after == pytest.approx(effective_rank(outputs.singular_values))
    one = covariance_of([heads[:, 4:8] @ w_o[:, 4:8].T]).spectrum()
    assert found.per_head[1] == pytest.approx(effective_rank(one.singular_values))
    assert found.as_json()["after_w_o_share"] == pytest.approx(found.after / 8)


@pytest.mark.parametrize(("w_o", "heads", "named"), [(np.eye(3), 2, "does not fit"), (np.eye(4), 3, "n_heads=3")])
def test_heads_that_do_not_fit_are_refused(w_o: np.ndarray, heads: int, named: str) -> None:
    with pytest.raises(InputError, match=named):
        head_attribution(np.eye(4), w_o, heads)
