"""The pool of candidate thresholds, bins, and column roles."""

from __future__ import annotations

import numpy as np
import pytest
from icml26_plugin_claritree.columns import Columns, find_columns
from icml26_plugin_claritree.problem import legal_cuts
from icml26_plugin_claritree.thresholds import bin_codes, candidate_thresholds, threshold_pool


def test_few_values_give_all_midpoints() -> None:
    assert candidate_thresholds(np.array([3.0, 1.0, 2.0, 2.0]), 2).tolist() == [1.5, 2.5]
    assert candidate_thresholds(np.array([3.0, 1.0, 2.0, 2.0]), 20).tolist() == [1.5, 2.5]


def test_a_constant_column_has_no_threshold() -> None:
    assert candidate_thresholds(np.full(5, 2.0), 3).size == 0


def test_many_values_give_linear_interpolated_quantiles() -> None:
    values = np.random.default_rng(0).normal(size=101)
    expected = [np.sort(values)[0] * 0 + np.quantile(values, j / 6) for j in range(1, 6)]
    assert candidate_thresholds(values, 5) == pytest.approx(expected, rel=1e-15)
    # position of a quantile q among sorted values is q * (n - 1): 101 values put sextiles at 16 2/3, 33 1/3, 50, …
    s = np.sort(values)
    assert candidate_thresholds(values, 5)[2] == s[50]
    assert candidate_thresholds(values, 5)[1] == pytest.approx(s[33] + (s[34] - s[33]) / 3)


def test_repeated_quantiles_count_once() -> None:
    values = np.concatenate([np.zeros(80), np.arange(1, 21)])
    pool = candidate_thresholds(values, 10)
    assert pool[0] == 0.0
    assert np.all(np.diff(pool) > 0)
    assert pool.size < 10


def test_uniform_thresholds_are_the_centres_of_equal_bins() -> None:
    values = np.concatenate([[0.0, 10.0], np.random.default_rng(0).uniform(0, 10, 50)])
    assert candidate_thresholds(values, 5, "uniform") == pytest.approx([1.0, 3.0, 5.0, 7.0, 9.0])


def test_neighbouring_floats_are_told_apart() -> None:
    a = 1.0
    b = np.nextafter(a, 2.0)
    assert candidate_thresholds(np.array([a, b]), 5).tolist() == [a]


def test_a_value_on_a_threshold_goes_left() -> None:
    columns = np.array([[0.9], [1.0], [1.1]])
    codes = bin_codes(columns, (np.array([1.0]),))
    assert (codes[:, 0] <= 0).tolist() == [True, True, False]


def test_binary_columns_split_at_a_half() -> None:
    pool = threshold_pool(np.array([[0.0, 5.0], [1.0, 6.0]]), (True, False), 20)
    assert [p.tolist() for p in pool] == [[0.5], [5.5]]


def test_column_roles() -> None:
    X = np.array([[0.0, 2.0, 0.5, 3.0], [1.0, 5.0, 0.1, 3.0], [1.0, 2.0, 0.2, 3.0]])
    columns = find_columns(X, categorical=[1])
    assert columns.continuous == (2, 3)
    assert columns.split_source == (0, 1, 1, 2, 3)
    assert columns.split_code == (None, 2.0, 5.0, None, None)
    assert columns.std[1] == 1.0  # constant
    assert columns.mean[0] == pytest.approx(X[:, 2].mean())
    assert columns.std[0] == pytest.approx(X[:, 2].std(ddof=0))
    assert columns.split_columns(X)[:, 1].tolist() == [1.0, 0.0, 1.0]
    assert find_columns(X, categorical=[1], one_hot=False).split_source == (0, 2, 3)
    again = Columns.from_json(columns.to_json())
    assert again.to_json() == columns.to_json()


def test_legal_cuts_leave_enough_rows_and_count_a_partition_once() -> None:
    codes = np.array([[0], [0], [2], [2], [2]], dtype=np.uint16)
    assert legal_cuts(codes, np.array([4]), 1).tolist() == [[0, 0]]  # bin 1 is empty: code 1 parts in the same way
    assert legal_cuts(codes, np.array([4]), 3).tolist() == []
