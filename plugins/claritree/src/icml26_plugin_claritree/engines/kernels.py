"""Compiled inner loops of the `binned` engine.

A row's moments are the packed lower triangle of the outer product of its augmented design ``a+ = [1, z, y]``: ``q =
(k + 1)(k + 2) / 2`` numbers that hold the count, the Gram matrix, the cross products and the squared target. Their
sum over a set of rows (a *box* of the tree) is all that the ridge loss of the box needs, and a histogram of them over
the bins of every feature is all that its splits need.

Slots. While one side of a first cut grows bin by bin, the greedy tree that completes it mostly keeps its cuts.
`complete` therefore keeps the histograms of that greedy tree in a heap of slots (1 is the grown box, 2i and 2i + 1
are the children of i) with the cut each was made by, and brings a slot up to date by the rows that arrived since.
Where a cut changes, the smaller child is summed anew and the larger one is the difference to the parent.
"""

# mypy: disable-error-code="no-untyped-def, call-arg"
# The compiler infers the types of these functions, and gives intrinsics their first argument.
#
# Rows are copied element by element: assigning a slice costs seconds of compilation, for the text of an error that cannot occur.

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from icml26_plugin_claritree.engines.simd import LANES, STRIDE, add_rows, eliminate

_compile: Any = njit(nogil=True, cache=True, error_model="numpy")


@_compile
def pack_moments(design, target):
    """Packed moments of every row: design (n, k), target (n,) -> (n, q padded to a multiple of `STRIDE`)."""
    n, k = design.shape
    q = (k + 1) * (k + 2) // 2
    moments = np.zeros((n, (q + STRIDE - 1) // STRIDE * STRIDE))
    augmented = np.empty(k + 1)
    for r in range(n):
        for i in range(k):
            augmented[i] = design[r, i]
        augmented[k] = target[r]
        at = 0
        for i in range(k + 1):
            for j in range(i + 1):
                moments[r, at] = augmented[i] * augmented[j]
                at += 1
    return moments


@_compile
def box_loss(moments, rows, k, ridge):
    """Ridge loss of the rows: one box, summed directly."""
    width = moments.shape[1]
    q = (k + 1) * (k + 2) // 2
    total = np.zeros(width)
    for r in rows:
        add_rows(total, 0, moments, r * width, width // STRIDE)
    lanes = np.zeros((q + k) * LANES)
    for e in range(q):
        lanes[e * LANES] = total[e]
    eliminate(lanes, k, ridge[0], ridge[1], ridge[2])
    return max(lanes[(q - 1) * LANES], 0.0)


@_compile
def _keep_best(lanes, filled, q, lane_cut, best, best_cut, tie):
    """Compare the eliminated lanes (left, right alternately) with the best cut so far, in the order in which they were filled."""
    last = (q - 1) * LANES
    for i in range(filled):
        left = max(lanes[last + 2 * i], 0.0)
        right = max(lanes[last + 2 * i + 1], 0.0)
        if left + right < best[0] - tie:
            best[0] = left + right
            best[1] = left
            best[2] = right
            for j in range(4):
                best_cut[j] = lane_cut[i, j]


@_compile
def scan(histogram, offsets, k, ridge, min_leaf, tie, work, lanes, lane_cut, best, best_cut):
    """Best legal cut of a box from its histogram (total bins, width), first of equals in order of feature and
    threshold.

    Fills `best` (3,) with the sum of the two losses, left, right, and `best_cut` (4,) with feature, bin, n left, n
    right; feature is -1 when no cut is legal. Sums run from both ends, so that no side is a difference.
    """
    width = histogram.shape[1]
    vectors = width // STRIDE
    q = (k + 1) * (k + 2) // 2
    best[0] = np.inf
    best_cut[0] = -1
    filled = 0
    for f in range(offsets.size - 1):
        start = offsets[f]
        n_bins = offsets[f + 1] - start
        if n_bins < 2:
            continue
        for e in range(width):
            work[n_bins - 1, e] = histogram[start + n_bins - 1, e]
        for b in range(n_bins - 2, 0, -1):
            for e in range(width):
                work[b, e] = work[b + 1, e]
            add_rows(work, b * width, histogram, (start + b) * width, vectors)
        work[0] = 0.0  # becomes the running sum from the left
        previous = 0.0
        for b in range(n_bins - 1):
            add_rows(work, 0, histogram, (start + b) * width, vectors)
            n_left = work[0, 0]
            n_right = work[b + 1, 0]
            if n_right < min_leaf:
                break
            if n_left == previous or n_left < min_leaf:
                continue
            previous = n_left
            lane_cut[filled, 0] = f
            lane_cut[filled, 1] = b
            lane_cut[filled, 2] = np.int64(n_left)
            lane_cut[filled, 3] = np.int64(n_right)
            at = 2 * filled
            for e in range(q):
                lanes[e * LANES + at] = work[0, e]
                lanes[e * LANES + at + 1] = work[b + 1, e]
            filled += 1
            if filled == LANES // 2:
                eliminate(lanes, k, ridge[0], ridge[1], ridge[2])
                _keep_best(lanes, filled, q, lane_cut, best, best_cut, tie)
                filled = 0
    if filled:
        eliminate(lanes, k, ridge[0], ridge[1], ridge[2])
        _keep_best(lanes, filled, q, lane_cut, best, best_cut, tie)


@_compile
def _inside(codes, r, slot, slot_cut):
    """Whether row r, known to lie in the grown box, lies in the box of the slot."""
    while slot > 1:
        parent = slot >> 1
        if (codes[r, slot_cut[parent, 0]] > slot_cut[parent, 1]) != (slot & 1):
            return False
        slot = parent
    return True


@_compile
def _grow(histogram, moments, codes, offsets, order, start, stop, slot, slot_cut):
    """Add those of the rows ``order[start:stop]`` that lie in the slot's box to its histogram."""
    width = moments.shape[1]
    vectors = width // STRIDE
    for i in range(start, stop):
        r = np.int64(order[i])
        if _inside(codes, r, slot, slot_cut):
            for f in range(codes.shape[1]):
                add_rows(histogram, (offsets[f] + np.int64(codes[r, f])) * width, moments, r * width, vectors)


@_compile
def _update_children(slots, fresh, moments, codes, offsets, order, n_rows, slot, slot_cut, needed, n_left, n_right):
    """Bring the histograms of the children that are needed (1 left, 2 right, 3 both) up to the first n_rows of `order`."""
    small, large = (2 * slot, 2 * slot + 1) if n_left <= n_right else (2 * slot + 1, 2 * slot)
    n_features = codes.shape[1]
    n_bins = slots.shape[1]
    need_small = (needed >> (small & 1)) & 1
    need_large = (needed >> (large & 1)) & 1
    known = fresh[large]
    arrived = (n_rows - known) * max(n_left, n_right) / max(n_left + n_right, 1)
    subtract = need_large and (known < 0 or (need_small and arrived * n_features > 2 * n_bins))
    if need_small or subtract:
        if fresh[small] < 0:
            slots[small] = 0.0
            fresh[small] = 0
        _grow(slots[small], moments, codes, offsets, order, fresh[small], n_rows, small, slot_cut)
        fresh[small] = n_rows
    if subtract:
        for b in range(n_bins):
            for e in range(slots.shape[2]):
                slots[large, b, e] = slots[slot, b, e] - slots[small, b, e]
        fresh[large] = n_rows
    elif need_large:
        _grow(slots[large], moments, codes, offsets, order, known, n_rows, large, slot_cut)
        fresh[large] = n_rows


@_compile
def _complete(
    depth,
    lambdas,
    value,
    count,
    loss,
    is_cut,
    slots,
    fresh,
    slot_cut,
    moments,
    codes,
    offsets,
    order,
    n_rows,
    k,
    ridge,
    min_leaf,
    tie,
    work,
    lanes,
    lane_cut,
    best,
    best_cut,
):
    """Greedy completion G of slot 1, whose `count`, `loss` and histogram are given, for every lambda at once: `value`
    (slots, lambdas).

    The greedy choice of a cut does not depend on lambda; what is pruned does, and stays per lambda. A box that no
    lambda can gain from (loss <= lambda for all) is not searched. Downwards in heap order instead of recursion, which
    Numba cannot cache on disk.
    """
    least = lambdas[0]
    for i in range(1, lambdas.size):
        least = min(least, lambdas[i])
    is_cut[:] = False
    for slot in range(1, 1 << depth):
        if slot > 1 and not is_cut[slot >> 1]:
            continue
        if loss[slot] <= least or count[slot] < 2 * min_leaf:
            continue
        scan(slots[slot], offsets, k, ridge, min_leaf, tie, work, lanes, lane_cut, best, best_cut)
        if best_cut[0] < 0:
            continue
        is_cut[slot] = True
        left, right = 2 * slot, 2 * slot + 1
        count[left], count[right] = best_cut[2], best_cut[3]
        loss[left], loss[right] = best[1], best[2]
        if left >= 1 << depth:
            continue
        if best_cut[0] != slot_cut[slot, 0] or best_cut[1] != slot_cut[slot, 1]:
            slot_cut[slot, 0] = best_cut[0]
            slot_cut[slot, 1] = best_cut[1]
            for child in (left, right):
                fresh[child] = -1
                slot_cut[child, 0] = -1
        needed = 0
        if loss[left] > least and count[left] >= 2 * min_leaf:
            needed += 1
        if loss[right] > least and count[right] >= 2 * min_leaf:
            needed += 2
        if needed:
            _update_children(
                slots, fresh, moments, codes, offsets, order, n_rows, slot, slot_cut, needed, count[left], count[right]
            )
    for slot in range((1 << (depth + 1)) - 1, 0, -1):
        if slot > 1 and not is_cut[slot >> 1]:
            continue
        for i in range(lambdas.size):
            value[slot, i] = loss[slot] + lambdas[i]
            if is_cut[slot]:
                value[slot, i] = min(value[slot, i], value[2 * slot, i] + value[2 * slot + 1, i])


@_compile
def _order_by_code(codes, rows, feature, n_bins, descending):
    """Counting sort of the rows by their bin of one feature: (order, end of each bin in the direction of the sweep)."""
    ends = np.zeros(n_bins, dtype=np.int64)
    for r in rows:
        ends[codes[r, feature]] += 1
    places = np.empty(n_bins, dtype=np.int64)
    total = 0
    for step in range(n_bins):
        b = n_bins - 1 - step if descending else step
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
def sweep(moments, codes, offsets, rows, feature, side, wanted, k, ridge, min_leaf, lambdas, tie, depth, stop, scores):
    """Greedy completions of one side (0 left, 1 right) of every wanted cut of one feature.

    The side grows bin by bin from its own end. `scores` (bins - 1, lambdas) is filled at the wanted cuts; the sweep
    ends early when ``stop[0]`` becomes nonzero, and leaves the rest as it was.
    """
    width = moments.shape[1]
    q = (k + 1) * (k + 2) // 2
    n_bins = offsets[feature + 1] - offsets[feature]
    order, ends = _order_by_code(codes, rows, feature, n_bins, side == 1)
    n_slots = 1 << max(depth, 1)
    slots = np.zeros((n_slots, offsets[-1], width))
    fresh = np.full(2 * n_slots, -1, dtype=np.int64)
    slot_cut = np.full((2 * n_slots, 2), -1, dtype=np.int64)
    value = np.zeros((2 << depth, lambdas.size))
    count = np.zeros(2 << depth, dtype=np.int64)
    loss = np.zeros(2 << depth)
    is_cut = np.zeros(2 << depth, dtype=np.bool_)
    widest = 0
    narrowest = 0
    for f in range(offsets.size - 1):
        widest = max(widest, offsets[f + 1] - offsets[f])
        if offsets[f + 1] - offsets[f] < offsets[narrowest + 1] - offsets[narrowest]:
            narrowest = f
    work = np.zeros((widest, width))
    lanes = np.zeros((q + k) * LANES)
    lane_cut = np.zeros((LANES // 2, 4), dtype=np.int64)
    best = np.zeros(3)
    best_cut = np.zeros(4, dtype=np.int64)
    fresh[1] = 0
    for step in range(n_bins - 1):
        b = n_bins - 1 - step if side == 1 else step
        cut = b - 1 if side == 1 else b
        n = ends[b]
        _grow(slots[1], moments, codes, offsets, order, fresh[1], n, 1, slot_cut)
        fresh[1] = n
        if not wanted[cut]:
            continue
        if stop[0] != 0:
            return
        work[0] = 0.0
        for i in range(offsets[narrowest], offsets[narrowest + 1]):
            add_rows(work, 0, slots[1], i * width, width // STRIDE)
        for e in range(q):
            lanes[e * LANES] = work[0, e]
        eliminate(lanes, k, ridge[0], ridge[1], ridge[2])
        count[1] = n
        loss[1] = max(lanes[(q - 1) * LANES], 0.0)
        _complete(
            depth,
            lambdas,
            value,
            count,
            loss,
            is_cut,
            slots,
            fresh,
            slot_cut,
            moments,
            codes,
            offsets,
            order,
            n,
            k,
            ridge,
            min_leaf,
            tie,
            work,
            lanes,
            lane_cut,
            best,
            best_cut,
        )
        for i in range(lambdas.size):
            scores[cut, i] = value[1, i]


@_compile
def best_cut(moments, codes, offsets, rows, k, ridge, min_leaf, tie):
    """Best legal cut of the rows: (losses: sum, left, right; cut: feature or -1, bin, n left, n right)."""
    width = moments.shape[1]
    q = (k + 1) * (k + 2) // 2
    histogram = np.zeros((offsets[-1], width))
    for r in rows:
        for f in range(codes.shape[1]):
            add_rows(histogram, (offsets[f] + np.int64(codes[r, f])) * width, moments, r * width, width // STRIDE)
    widest = 0
    for f in range(offsets.size - 1):
        widest = max(widest, offsets[f + 1] - offsets[f])
    losses = np.zeros(3)
    cut = np.zeros(4, dtype=np.int64)
    scan(
        histogram,
        offsets,
        k,
        ridge,
        min_leaf,
        tie,
        np.zeros((widest, width)),
        np.zeros((q + k) * LANES),
        np.zeros((LANES // 2, 4), dtype=np.int64),
        losses,
        cut,
    )
    return losses, cut
