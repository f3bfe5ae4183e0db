import numpy as np
import pytest
from data import bounded_problem
from hypothesis import given, settings
from hypothesis import strategies as st
from icml26_plugin_ihm.bounds import Bounds, PrivacyLeakWarning, check_bounds, resolve_bounds
from icml26_plugin_ihm.rows import BoundedRows


def stacked(rows):
    parts = list(rows.chunks())
    return np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])


def test_rows_within_bounds_are_only_rescaled():
    X, y = bounded_problem()
    bounded, labels = stacked(BoundedRows.from_arrays(5 * X, 3 * y, Bounds(5.0, -3.0, 3.0), chunk_rows=7))
    np.testing.assert_allclose(bounded, X, atol=1e-15)
    np.testing.assert_allclose(labels, y, atol=1e-15)


def test_rows_beyond_the_ball_keep_their_direction_and_lose_their_length():
    X = np.array([[3.0, 4.0], [0.1, 0.2], [1e200, 1e200], [1e-200, 0.0]])
    bounded, labels = stacked(BoundedRows.from_arrays(X, np.array([7.0, -0.5, -9.0, 0.0]), Bounds()))
    np.testing.assert_allclose(bounded[:3], [[0.6, 0.8], [0.1, 0.2], [0.5**0.5, 0.5**0.5]], rtol=1e-14)
    np.testing.assert_allclose(labels, [1.0, -0.5, -1.0, 0.0])


def test_intercept_column_keeps_rows_in_the_ball_and_centres_asymmetric_labels():
    X, y = bounded_problem()
    rows = BoundedRows.from_arrays(X, 10 + 2 * y, Bounds(1.0, 8.0, 12.0), intercept=True)
    bounded, labels = stacked(rows)
    assert rows.d == X.shape[1] + 1
    assert np.linalg.norm(bounded, axis=1).max() <= 1 + 1e-15
    np.testing.assert_allclose(bounded, np.column_stack([X, np.ones(len(X))]) / np.sqrt(2), atol=1e-15)
    np.testing.assert_allclose(labels, y, atol=1e-13)


def test_asymmetric_labels_without_intercept_keep_zero_at_zero():
    _, labels = stacked(BoundedRows.from_arrays(np.ones((2, 1)), np.array([0.0, 100.0]), Bounds(1.0, 0.0, 100.0)))
    np.testing.assert_allclose(labels, [0.0, 1.0])


def test_sums_equal_plain_products_whatever_the_chunks():
    X, y = bounded_problem(n=101)
    theta = 5 * np.random.default_rng(1).standard_normal((3, X.shape[1]))
    for chunk in (1, 10, 1000):
        rows = BoundedRows.from_arrays(X, y, chunk_rows=chunk)
        moments = rows.moments()
        np.testing.assert_allclose(moments.gram, X.T @ X, atol=1e-12)
        np.testing.assert_allclose(moments.correlation, X.T @ y, atol=1e-12)
        assert moments.label_square == pytest.approx(y @ y)
        assert (moments.n, moments.outside) == (101, 0)
        expected = [X.T @ np.clip(y - X @ t, -1, 1) for t in theta]
        np.testing.assert_allclose(rows.score(theta), expected, atol=1e-12)
        np.testing.assert_allclose(rows.clipped_fraction(theta), [(np.abs(y - X @ t) > 1).mean() for t in theta])


def test_batches_equal_arrays():
    X, y = bounded_problem(n=50)
    streamed = BoundedRows(lambda: ((X[i : i + 9], y[i : i + 9]) for i in range(0, 50, 9)), X.shape[1], Bounds())
    np.testing.assert_allclose(streamed.moments().gram, X.T @ X, atol=1e-13)


def test_data_is_never_changed():
    X, y = bounded_problem()
    X, y = 3 * X, 3 * y
    before = X.copy(), y.copy()
    rows = BoundedRows.from_arrays(X, y)
    rows.moments()
    rows.score(np.ones((2, X.shape[1])))
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 1e3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_one_row_moves_the_score_by_at_most_the_label_bound(seed, scale, intercept):
    """Sensitivity by brute force, for wild rows, labels and coefficients alike: clipping bounds every case."""
    rng = np.random.default_rng(seed)
    n, d = 12, 3
    X, y = scale * rng.standard_normal((n, d)), scale * rng.standard_normal(n)
    rows = BoundedRows.from_arrays(X, y, Bounds(), intercept=intercept)
    theta = 10 ** rng.uniform(-2, 3) * rng.standard_normal((4, rows.d))
    bounded, labels = stacked(rows)
    kept = np.arange(n) != rng.integers(n)
    without = BoundedRows.from_arrays(bounded[kept], labels[kept])
    change = rows.score(theta) - without.score(theta)
    assert np.linalg.norm(change, axis=1).max() <= 1 + 1e-12


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_one_row_moves_the_least_eigenvalue_by_at_most_one(seed):
    rng = np.random.default_rng(seed)
    X, _ = bounded_problem(n=30, d=3, seed=seed)
    v = rng.standard_normal(3)
    v /= np.linalg.norm(v)
    gram = X.T @ X + np.outer(v, v)
    assert 0 <= np.linalg.eigvalsh(gram)[0] - np.linalg.eigvalsh(gram - np.outer(v, v))[0] + 1e-12 <= 1 + 2e-12


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[0.0, 2.0]], [0.0], r"row 3 is out of bounds: its norm is 2"),
        ([[0.0, 0.5]], [1.5], r"its label 1.5"),
        ([[0.0, np.nan]], [0.0], r"row 3 of X holds a value that is not finite"),
        ([[0.0, np.inf]], [0.0], r"row 3 of X"),
        ([[0.0, 0.5]], [np.nan], r"y\[3\] is not finite"),
    ],
)
def test_bad_rows_are_refused_by_their_number(X, y, message):
    X, y = np.vstack([np.zeros((3, 2)), X]), np.concatenate([np.zeros(3), y])
    with pytest.raises(ValueError, match=message):
        BoundedRows.from_arrays(X, y, clip=False, chunk_rows=2).moments()


def test_wrong_shapes_in_a_batch_are_refused():
    with pytest.raises(ValueError, match=r"expected \(m, 3\)"):
        BoundedRows(lambda: [(np.zeros((2, 2)), np.zeros(2))], 3, Bounds()).moments()


@pytest.mark.parametrize(
    ("x_bound", "y_bound"),
    [
        (0, 1),
        (-1.0, 1),
        (np.inf, 1),
        (np.nan, 1),
        ("auto", 1),
        (True, 1),
        (None, 1),
        (1, 0),
        (1, (2.0, 1.0)),
        (1, (0.0, np.inf)),
        (1, (1.0, 2.0, 3.0)),
        (1, "auto"),
    ],
)
def test_wrong_bounds_are_refused(x_bound, y_bound):
    with pytest.raises((ValueError, TypeError), match="bound"):
        check_bounds(x_bound, y_bound)


def test_bounds_read_off_the_data_warn_and_are_marked():
    X, y = bounded_problem()
    with pytest.warns(PrivacyLeakWarning, match="computed from the private data"):
        bounds = resolve_bounds(4 * X, 2 * y, "data", 1.0)
    assert bounds == Bounds(np.linalg.norm(4 * X, axis=1).max(), -1.0, 1.0, from_data=True)
    with pytest.warns(PrivacyLeakWarning):
        assert resolve_bounds(X, 2 * y, 1.0, "data").y_high == np.abs(2 * y).max()
