"""Compiled rank-one updates of Cholesky factors: the paper's way to the losses of all thresholds of a node.

Walking a feature's rows in ascending order, each row moves from the right side to the left one: the left factor takes
a rank-one update, the right factor a downdate, both O(k^2), and a loss needs one triangular solve. The children
inherit their factors. No factorisation is done below the root, except where a downdate would lose positive
definiteness and the factor is made anew from the remaining rows.
"""

# mypy: disable-error-code="no-untyped-def"
# The compiler infers the types of these functions.

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_compile: Any = njit(nogil=True, cache=True, error_model="numpy")

LOST = 1e-10  # a downdate that leaves less than this share of a pivot is not trusted


@_compile
def update(factor, x):
    """Lower Cholesky factor C (k, k) of A to that of A + x x', in place by Givens rotations; x (k,) is overwritten."""
    k = x.size
    for j in range(k):
        r = np.hypot(factor[j, j], x[j])
        if r == 0.0:
            continue
        c = factor[j, j] / r
        s = x[j] / r
        factor[j, j] = r
        for i in range(j + 1, k):
            old = factor[i, j]
            factor[i, j] = c * old + s * x[i]
            x[i] = c * x[i] - s * old


@_compile
def downdate(factor, x):
    """Factor of A to that of A - x x' by hyperbolic rotations.

    False, with `factor` and x spoilt, when too little of a pivot is left.
    """
    k = x.size
    for j in range(k):
        square = factor[j, j] * factor[j, j]
        rest = square - x[j] * x[j]
        if rest <= LOST * square:
            if x[j] == 0.0 and factor[j, j] == 0.0:
                continue
            return False
        r = np.sqrt(rest)
        c = r / factor[j, j]
        s = x[j] / factor[j, j]
        factor[j, j] = r
        for i in range(j + 1, k):
            factor[i, j] = (factor[i, j] - s * x[i]) / c
            x[i] = c * x[i] - s * factor[i, j]
    return True


@_compile
def factorize(design, target, rows, ridge, factor, cross):
    """Factor of ``A'A + diag(jitter, kappa', ...)`` of the rows into `factor`, A'y into `cross`; returns y'y.

    A column that depends on those before it (possible without a ridge) gets a zero column: it is left out.
    """
    k = design.shape[1]
    factor[:] = 0.0
    cross[:] = 0.0
    squares = 0.0
    for r in rows:
        for i in range(k):
            for j in range(i + 1):
                factor[i, j] += design[r, i] * design[r, j]
            cross[i] += design[r, i] * target[r]
        squares += target[r] * target[r]
    for j in range(k):
        floor = ridge[1] if j == 0 else ridge[0]
        diagonal = factor[j, j] + floor
        rest = diagonal
        for m in range(j):
            rest -= factor[j, m] * factor[j, m]
        rest = max(rest, floor)
        kept = rest > ridge[2] * diagonal
        factor[j, j] = np.sqrt(rest) if kept else 0.0
        for i in range(j + 1, k):
            value = factor[i, j]
            for m in range(j):
                value -= factor[i, m] * factor[j, m]
            factor[i, j] = value / factor[j, j] if kept else 0.0
    return squares


@_compile
def loss_of(factor, cross, squares, dependent, solution):
    """``y'y - ||C^-1 b||^2`` by one triangular solve, never negative; `solution` (k,) is scratch."""
    k = cross.size
    loss = squares
    for j in range(k):
        value = cross[j]
        diagonal = factor[j, j] * factor[j, j]
        for m in range(j):
            value -= factor[j, m] * solution[m]
            diagonal += factor[j, m] * factor[j, m]
        pivot = factor[j, j]
        solution[j] = value / pivot if pivot * pivot > dependent * diagonal else 0.0
        loss -= solution[j] * solution[j]
    return max(loss, 0.0)


@_compile
def order_by_code(codes, rows, feature, n_bins):
    """Rows in ascending order of their bin, and the number of rows up to each bin."""
    ends = np.zeros(n_bins, dtype=np.int64)
    for r in rows:
        ends[codes[r, feature]] += 1
    places = np.empty(n_bins, dtype=np.int64)
    total = 0
    for b in range(n_bins):
        places[b] = total
        total += ends[b]
        ends[b] = total
    order = np.empty(rows.size, dtype=np.int32)
    for r in rows:
        b = codes[r, feature]
        order[places[b]] = r
        places[b] += 1
    return order, ends


@_compile
def _move(design, target, order, start, stop, ridge, left, right, x):
    """Move the rows ``order[start:stop]`` from the right state (factor, cross, squares) to the left one."""
    left_factor, left_cross, left_squares = left
    right_factor, right_cross, right_squares = right
    sound = True
    for i in range(start, stop):
        r = order[i]
        y = target[r]
        for j in range(x.size):
            x[j] = design[r, j]
        left_cross += x * y
        left_squares[0] += y * y
        right_cross -= x * y
        right_squares[0] -= y * y
        update(left_factor, x)
        if sound:
            for j in range(x.size):
                x[j] = design[r, j]
            sound = downdate(right_factor, x)
    if not sound:
        right_squares[0] = factorize(design, target, order[stop:], ridge, right_factor, right_cross)


@_compile
def _start_walk(state, k, ridge):
    """Left and right states at the start of a walk: the ridge prior, and a copy of the node's state."""
    factor, cross, squares = state
    left_factor = np.zeros((k, k))
    for j in range(k):
        left_factor[j, j] = np.sqrt(ridge[1] if j == 0 else ridge[0])
    left = (left_factor, np.zeros(k), np.zeros(1))
    return left, (factor.copy(), cross.copy(), squares.copy())


@_compile
def scan(design, target, codes, n_bins, rows, state, ridge, min_leaf, tie, left_best, right_best, losses, cut):
    """Best legal cut of a node, first of equals; the states of its two sides go to `left_best` and `right_best`.

    Fills `losses` (3,) with sum, left, right and `cut` (2,) with feature (-1 when no cut is legal) and bin.
    """
    k = design.shape[1]
    x = np.empty(k)
    losses[0] = np.inf
    cut[0] = -1
    for feature in range(n_bins.size):
        order, ends = order_by_code(codes, rows, feature, n_bins[feature])
        left, right = _start_walk(state, k, ridge)
        done = 0
        for b in range(n_bins[feature] - 1):
            n = ends[b]
            if rows.size - n < min_leaf:
                break
            if n == done or n < min_leaf:
                continue
            if n_bins[feature] == 2:  # a binary feature: both sides anew, the one cut does not repay a walk
                left[2][0] = factorize(design, target, order[:n], ridge, left[0], left[1])
                right[2][0] = factorize(design, target, order[n:], ridge, right[0], right[1])
            else:
                _move(design, target, order, done, n, ridge, left, right, x)
            done = n
            left_loss = loss_of(left[0], left[1], left[2][0], ridge[2], x)
            right_loss = loss_of(right[0], right[1], right[2][0], ridge[2], x)
            if left_loss + right_loss < losses[0] - tie:
                losses[0], losses[1], losses[2] = left_loss + right_loss, left_loss, right_loss
                cut[0], cut[1] = feature, b
                left_best[0][:], left_best[1][:], left_best[2][:] = left[0], left[1], left[2]
                right_best[0][:], right_best[1][:], right_best[2][:] = right[0], right[1], right[2]


@_compile
def complete(design, target, codes, n_bins, rows, factor, cross, squares, loss, depth, ridge, min_leaf, lambdas, tie):
    """Greedy completion G of a box for every lambda, (lambdas,), downwards in heap order (slot i has children 2i, 2i + 1)."""
    k = design.shape[1]
    n_slots = 2 << depth
    factors = np.zeros((n_slots, k, k))
    crosses = np.zeros((n_slots, k))
    squared = np.zeros((n_slots, 1))
    losses = np.zeros(n_slots)
    first = np.zeros(n_slots, dtype=np.int64)
    last = np.zeros(n_slots, dtype=np.int64)
    is_cut = np.zeros(n_slots, dtype=np.bool_)
    order = rows.copy()  # a slot's rows lie in order[first:last]
    found = np.zeros(3)
    cut = np.zeros(2, dtype=np.int64)
    factors[1], crosses[1], squared[1, 0] = factor, cross, squares
    losses[1], last[1] = loss, rows.size
    for slot in range(1, 1 << depth):
        if slot > 1 and not is_cut[slot >> 1]:
            continue
        inside = order[first[slot] : last[slot]]
        if losses[slot] <= lambdas.min() or inside.size < 2 * min_leaf:
            continue
        left, right = 2 * slot, 2 * slot + 1
        scan(
            design,
            target,
            codes,
            n_bins,
            inside,
            (factors[slot], crosses[slot], squared[slot]),
            ridge,
            min_leaf,
            tie,
            (factors[left], crosses[left], squared[left]),
            (factors[right], crosses[right], squared[right]),
            found,
            cut,
        )
        if cut[0] < 0:
            continue
        is_cut[slot] = True
        losses[left], losses[right] = found[1], found[2]
        goes_left = np.empty(inside.size, dtype=np.bool_)
        for i in range(inside.size):
            goes_left[i] = codes[inside[i], cut[0]] <= cut[1]
        parted = np.concatenate((inside[goes_left], inside[~goes_left]))
        inside[:] = parted
        middle = first[slot] + goes_left.sum()
        first[left], last[left] = first[slot], middle
        first[right], last[right] = middle, last[slot]
    value = np.zeros((n_slots, lambdas.size))
    for slot in range(n_slots - 1, 0, -1):
        if slot > 1 and not is_cut[slot >> 1]:
            continue
        for i in range(lambdas.size):
            value[slot, i] = losses[slot] + lambdas[i]
            if is_cut[slot]:
                value[slot, i] = min(value[slot, i], value[2 * slot, i] + value[2 * slot + 1, i])
    return value[1].copy()


@_compile
def sweep(
    design,
    target,
    codes,
    n_bins,
    rows,
    factor,
    cross,
    squares,
    feature,
    wanted,
    ridge,
    min_leaf,
    lambdas,
    tie,
    depth,
    stop,
    scores,
):
    """Greedy completions of both sides of every wanted cut of one feature: `scores` (bins - 1, lambdas) is filled there."""
    k = design.shape[1]
    x = np.empty(k)
    order, ends = order_by_code(codes, rows, feature, n_bins[feature])
    left, right = _start_walk((factor, cross, squares), k, ridge)
    done = 0
    for b in range(n_bins[feature] - 1):
        if not wanted[b]:
            continue
        if stop[0] != 0:
            return
        n = ends[b]
        _move(design, target, order, done, n, ridge, left, right, x)
        done = n
        for side in range(2):
            state = left if side == 0 else right
            inside = order[:n] if side == 0 else order[n:]
            loss = loss_of(state[0], state[1], state[2][0], ridge[2], x)
            value = complete(
                design,
                target,
                codes,
                n_bins,
                inside,
                state[0],
                state[1],
                state[2][0],
                loss,
                depth,
                ridge,
                min_leaf,
                lambdas,
                tie,
            )
            if side == 0:
                scores[b] = value
            else:
                scores[b] += value
