"""Batches from arrays and streams: each row once a pass, bounded memory, resuming, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from icml26.errors import InputError
from icml26_plugin_subspace_sae.batches import ArrayBatches, StreamBatches, make_batches
from icml26_plugin_subspace_sae.task import ActivationSource


def numbered(n: int, d: int = 3) -> np.ndarray:
    """Row i begins with i."""
    rows = np.zeros((n, d), np.float32)
    rows[:, 0] = np.arange(n)
    return rows


class Source:
    """Rows in blocks whose sizes vary."""

    def __init__(self, array: np.ndarray, sizes: tuple[int, ...] = (5, 1, 9), known: bool = True) -> None:
        self.array, self.sizes, self.width = array, sizes, array.shape[1]
        self.rows = len(array) if known else None
        self.given = 0

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        at, i = 0, 0
        while at < len(self.array):
            step = min(self.sizes[i % len(self.sizes)], size)
            self.given += len(self.array[at : at + step])
            yield self.array[at : at + step]
            at, i = at + step, i + 1


def first_column(batches: Any, count: int) -> list[float]:
    return np.concatenate([batches.next().x[:, 0] for _ in range(count)]).tolist()


def test_a_pass_over_an_array_gives_each_row_once_and_passes_differ() -> None:
    batches = ArrayBatches(numbered(40), None, 10, seed=0)
    first, second = first_column(batches, 4), first_column(batches, 4)
    assert sorted(first) == sorted(second) == list(range(40)) and first != second
    assert first_column(ArrayBatches(numbered(40), None, 10, seed=1), 4) != first


def test_a_stream_gives_each_row_once_a_pass_and_mixes_within_its_buffer() -> None:
    source = Source(numbered(400))
    assert isinstance(source, ActivationSource)
    batches = StreamBatches(source, None, 10, seed=0, buffer=8)
    seen = first_column(batches, 80)
    assert {seen.count(i) for i in range(400)} <= {1, 2, 3} and len(set(seen)) == 400
    assert seen[:10] != list(range(10)) and max(seen[:10]) < 80
    # At most the buffer and one block beyond what was used.
    fresh = Source(numbered(400))
    StreamBatches(fresh, None, 10, seed=0, buffer=8).next()
    assert fresh.given <= 80 + 10


def test_the_sizes_of_blocks_change_nothing() -> None:
    seen = [
        first_column(StreamBatches(Source(numbered(200), sizes), None, 8, seed=3, buffer=4), 60)
        for sizes in ((1,), (7, 2), (500,))
    ]
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("make", [lambda: numbered(150), lambda: Source(numbered(150))])
@pytest.mark.parametrize("at", [1, 7, 40])
def test_batches_continue_from_their_state(make: Any, at: int) -> None:
    whole = first_column(make_batches(make(), None, 8, 5, buffer=4), at + 30)
    begun = make_batches(make(), None, 8, 5, buffer=4)
    first_column(begun, at)
    state = begun.state()
    resumed = make_batches(make(), None, 8, 5, buffer=4)
    resumed.restore(state)
    assert first_column(resumed, 30) == whole[at * 8 :]


def test_targets_stay_with_their_rows() -> None:
    x = numbered(120)
    y = np.concatenate([x[:, :1] * 2, x[:, :1] * 3], axis=1)
    for batches in (
        make_batches(x, y, 10, 0),
        make_batches(Source(x), Source(y, sizes=(4, 11)), 10, 0, buffer=3),
    ):
        assert batches.d_in == 3 and batches.d_out == 2
        for _ in range(30):
            batch = batches.next()
            assert np.array_equal(batch.y[:, 0], 2 * batch.x[:, 0])
        sample = batches.sample(50)
        assert len(sample.x) == 50 and np.array_equal(sample.y[:, 1], 3 * sample.x[:, 0])


def test_sampling_does_not_change_the_batches() -> None:
    for make in (lambda: numbered(60), lambda: Source(numbered(60))):
        plain, sampled = make_batches(make(), None, 6, 0), make_batches(make(), None, 6, 0)
        sampled.sample(30)
        assert first_column(plain, 12) == first_column(sampled, 12)


def spoilt(value: float, row: int = 33) -> np.ndarray:
    rows = numbered(60)
    rows[row, 2] = value
    return rows


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (np.zeros(8, np.float32), None, "one-dimensional"),
        (np.zeros((2, 3, 4), np.float32), None, r"shape \(rows, dimensions\)"),
        (np.zeros((1, 4), np.float32), None, "at least 2"),
        (np.zeros((60, 0), np.float32), None, "shape"),
        (np.zeros((60, 4), np.int64), None, "int64"),
        (np.zeros((60, 4), complex), None, "complex"),
        (numbered(60), numbered(59), "60 rows of activations and 59 of targets"),
        (numbered(60), numbered(60).astype(np.float16), "float32 and targets float16"),
        (numbered(5), None, "batch_size=6 exceeds the 5 rows"),
        (numbered(60), Source(numbered(60)), "both be arrays or both be sources"),
        (Source(numbered(60)), Source(numbered(59)), "60 rows of activations and 59"),
        (Source(numbered(5)), None, "batch_size=6 exceeds the 5 rows of the source"),
        (numbered(60).tolist(), None, "list"),
    ],
)
def test_data_that_cannot_be_trained_on_are_refused(x: Any, y: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_batches(x, y, 6, 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_named_by_row(value: float) -> None:
    for x in (spoilt(value), Source(spoilt(value))):
        batches = make_batches(x, None, 6, 0)
        with pytest.raises(InputError, match="row 33, dimension 2"):
            first_column(batches, 10)


def test_float64_beyond_float32_is_no_finite_value() -> None:
    batches = make_batches(spoilt(1.0).astype(np.float64) * 1e38 * 10, None, 6, 0)
    with pytest.raises(InputError, match="not finite"):
        first_column(batches, 10)


def test_large_finite_values_are_fine() -> None:
    assert len(first_column(make_batches(np.full((60, 4), 3e38, np.float32), None, 6, 0), 10)) == 60


class Odd(Source):
    """A source that changes its mind on the second block."""

    def __init__(self, kind: str) -> None:
        super().__init__(numbered(60), known=False)
        self.kind = kind

    def blocks(self, size: int) -> Iterator[Any]:
        if self.kind == "empty":
            return
        for i, block in enumerate(super().blocks(size)):
            if i == 0 or self.kind == "fine":
                yield block
            elif self.kind == "dtype":
                yield block.astype(np.float16)
            elif self.kind == "integers":
                yield block.astype(np.int32)
            elif self.kind == "width":
                yield block[:, :2]
            elif self.kind == "list":
                yield block.tolist()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("empty", "no rows"),
        ("dtype", "changed from float32 to float16"),
        ("integers", "int32"),
        ("width", r"not \(rows, 3\)"),
        ("list", r"not \(rows, 3\)"),
    ],
)
def test_sources_that_misbehave_are_told_what_is_wrong(kind: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        first_column(StreamBatches(Odd(kind), None, 6, 0), 10)


def test_a_source_without_a_single_row_has_no_sample() -> None:
    with pytest.raises(InputError, match="gave 0 rows"):
        StreamBatches(Odd("empty"), None, 6, 0).sample(10)


def test_targets_that_end_early_are_noticed() -> None:
    short = Source(numbered(50), known=False)
    with pytest.raises(InputError, match="match row by row"):
        first_column(StreamBatches(Source(numbered(60)), short, 6, 0), 12)


def test_a_buffer_of_one_batch_is_refused() -> None:
    with pytest.raises(InputError, match="buffer=1"):
        StreamBatches(Source(numbered(60)), None, 6, 0, buffer=1)
