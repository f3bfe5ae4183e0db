"""Shuffled batches: from arrays by index, from streams through a buffer of bounded size. Both can stop and continue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from icml26.errors import InputError

from icml26_plugin_subspace_sae.task import ActivationSource

# Random streams of a training: batches of epoch e, and the rows that initialisation sees.
_EPOCH, _SAMPLE = 1, 2


class Batch(NamedTuple):
    """``x`` (B, d_in) and ``y`` (B, d_out) float32; the same array unless targets differ."""

    x: np.ndarray
    y: np.ndarray


class Batches(Protocol):
    """Endless shuffled batches of one size."""

    d_in: int
    d_out: int

    @property
    def rows(self) -> int | None:
        """Rows of one pass, None if unknown."""

    def sample(self, count: int) -> Batch:
        """At most ``count`` rows for initialisation; the batches that follow are the same with or without it."""

    def next(self) -> Batch:
        """The next batch."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""


def make_batches(
    x: np.ndarray | ActivationSource,
    y: np.ndarray | ActivationSource | None,
    batch_size: int,
    seed: int,
    *,
    buffer: int = 8,
) -> Batches:
    """Batches of arrays, or of sources; InputError for data that cannot be trained on (see :func:`check_array`)."""
    if isinstance(x, np.ndarray) and (y is None or isinstance(y, np.ndarray)):
        return ArrayBatches(x, y, batch_size, seed)
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        raise InputError("Activations and targets must both be arrays or both be sources.")
    if not isinstance(x, ActivationSource):
        raise InputError(
            f"Activations are a {type(x).__name__}: give an array (rows, dimensions), or a source with width, rows and blocks()."
        )
    return StreamBatches(x, y, batch_size, seed, buffer=buffer)


def check_array(array: np.ndarray, name: str) -> None:
    """InputError unless ``array`` is (n ≥ 2, d ≥ 1) of real floating type. Values are checked when they are read."""
    if array.ndim == 1:
        raise InputError(f"{name} are one-dimensional {array.shape}: rows must be tokens, e.g. x.reshape(-1, d).")
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"{name} must have shape (rows, dimensions), not {array.shape}.")
    if array.dtype.kind != "f":
        raise InputError(f"{name} hold {array.dtype}; they must be float16, float32 or float64.")
    if len(array) < 2:
        raise InputError(f"{name}: {len(array)} rows have no spread; at least 2 are needed.")


def finite(array: np.ndarray, name: str, rows: np.ndarray | int = 0) -> np.ndarray:
    """``array`` (n, d) as float32; InputError for NaN, infinity or overflow, by row: ``rows`` (n,) or the first one's index."""
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(array, dtype=np.float32)
    # One sum is a cheap test; only when it is not finite each value is looked at.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)):
            return values
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = (int(i[0]) for i in np.nonzero(bad))
        where = int(rows[row]) if isinstance(rows, np.ndarray) else rows + row
        raise InputError(
            f"{name} hold values that are not finite, {array[row, column]} in row {where}, dimension {column}: drop those rows, "
            "or collect them in float32 if the model's half precision overflowed."
        )
    return values


class ArrayBatches:
    """Batches of rows in memory or memory-mapped; each pass is a permutation of its own, an incomplete batch is left out."""

    def __init__(self, x: np.ndarray, y: np.ndarray | None, batch_size: int, seed: int) -> None:
        check_array(x, "activations")
        if y is not None:
            check_array(y, "targets")
            if len(x) != len(y):
                raise InputError(f"There are {len(x)} rows of activations and {len(y)} of targets: they must match.")
            if x.dtype != y.dtype:
                raise InputError(f"Activations are {x.dtype} and targets {y.dtype}: convert one to the other's type.")
        if batch_size > len(x):
            raise InputError(f"batch_size={batch_size} exceeds the {len(x)} rows of the data: no batch would be full.")
        self._x, self._y, self._size, self._seed = x, y, batch_size, seed
        self.d_in, self.d_out = x.shape[1], (x if y is None else y).shape[1]
        self._epoch, self._position = 0, 0
        self._order = self._permutation()

    @property
    def rows(self) -> int | None:
        """Rows of one pass."""
        return len(self._x)

    def _permutation(self) -> np.ndarray:
        order: np.ndarray = np.random.default_rng((self._seed, _EPOCH, self._epoch)).permutation(len(self._x))
        return order

    def _take(self, index: np.ndarray) -> Batch:
        x = finite(self._x[index], "activations", index)
        return Batch(x, x if self._y is None else finite(self._y[index], "targets", index))

    def sample(self, count: int) -> Batch:
        """Random rows without repetition."""
        rng = np.random.default_rng((self._seed, _SAMPLE))
        index = rng.choice(len(self._x), min(count, len(self._x)), replace=False)
        return self._take(index)

    def next(self) -> Batch:
        """The next batch; a new pass begins where less than a batch is left."""
        if self._position + self._size > len(self._x):
            self._epoch, self._position = self._epoch + 1, 0
            self._order = self._permutation()
        index = self._order[self._position : self._position + self._size]
        self._position += self._size
        return self._take(index)

    def state(self) -> dict[str, Any]:
        """Where the pass stands."""
        return {"epoch": self._epoch, "position": self._position}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue there."""
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self._order = self._permutation()


class _Reader:
    """Rows of a source in order, any number at a time, checked; rows before ``skip`` are read and dropped, or never computed."""

    def __init__(self, source: ActivationSource, name: str, block: int, skip: int = 0) -> None:
        self._name, self._width = name, source.width
        self._blocks = _from_row(source, block, skip)
        self._left = np.zeros((0, source.width), np.float32)
        self._dtype: np.dtype[Any] | None = None
        self._at = skip

    def take(self, count: int) -> np.ndarray:
        """The next ``count`` rows (n, d) float32, fewer at the end."""
        parts, have = [self._left[:count]], min(len(self._left), count)
        self._left = self._left[count:]
        while have < count:
            block = next(self._blocks, None)
            if block is None:
                break
            _check_block(block, self._name, self._width, self._dtype)
            self._dtype = block.dtype
            rows = finite(block, self._name, self._at)
            self._at += len(rows)
            parts.append(rows[: count - have])
            self._left = rows[count - have :]
            have += len(parts[-1])
        return np.concatenate(parts)


class StreamBatches:
    """Batches of a source that is read in order: ``buffer`` batches are held, shuffled, half of them used, then refilled.

    Memory is that of the buffer whatever the length of the source. The order depends on the seed and the rows only, not on the
    sizes of the blocks that they come in.
    """

    def __init__(
        self, x: ActivationSource, y: ActivationSource | None, batch_size: int, seed: int, *, buffer: int = 8
    ) -> None:
        if y is not None and x.rows is not None and y.rows is not None and x.rows != y.rows:
            raise InputError(f"There are {x.rows} rows of activations and {y.rows} of targets: they must match.")
        if x.rows is not None and batch_size > x.rows:
            raise InputError(
                f"batch_size={batch_size} exceeds the {x.rows} rows of the source: no batch would be full."
            )
        if buffer < 2:
            raise InputError(f"buffer={buffer} must be at least 2 batches: rows of one text must be parted.")
        self._sources = (x,) if y is None else (x, y)
        self.d_in, self.d_out = x.width, (x if y is None else y).width
        self._size, self._capacity = batch_size, buffer * batch_size
        self._rng = np.random.default_rng((seed, _EPOCH))
        self._read, self._position = 0, 0
        self._held: list[np.ndarray] = [np.zeros((0, s.width), np.float32) for s in self._sources]
        self._readers: list[_Reader] | None = None

    @property
    def rows(self) -> int | None:
        """Rows of one pass."""
        return self._sources[0].rows

    def _open(self, skip: int) -> list[_Reader]:
        names = ("activations", "targets")
        return [_Reader(s, n, self._size, skip) for s, n in zip(self._sources, names, strict=False)]

    def sample(self, count: int) -> Batch:
        """The first rows of the source, read apart from the batches."""
        arrays = [reader.take(count) for reader in self._open(0)]
        _check_pair(arrays)
        if len(arrays[0]) < 2:
            raise InputError(f"The source gave {len(arrays[0])} rows: at least 2 are needed.")
        return Batch(arrays[0], arrays[-1])

    def next(self) -> Batch:
        """The next batch, reading more when half of the buffer is used."""
        left = len(self._held[0]) - self._position
        if left < self._size or left <= self._capacity // 2:
            self._refill()
        part = slice(self._position, self._position + self._size)
        self._position += self._size
        return Batch(self._held[0][part], self._held[-1][part])

    def _refill(self) -> None:
        columns = [[held[self._position :]] for held in self._held]
        have = len(columns[0][0])
        while have < self._capacity:
            if self._readers is None:
                self._readers = self._open(self._read)
            arrays = [reader.take(self._capacity - have) for reader in self._readers]
            _check_pair(arrays)
            for column, array in zip(columns, arrays, strict=True):
                column.append(array)
            have, self._read = have + len(arrays[0]), self._read + len(arrays[0])
            if have < self._capacity:
                if self._read == 0:
                    raise InputError("The source gave no rows: there is nothing to train on.")
                self._readers, self._read = None, 0
        held = [np.concatenate(column) for column in columns]
        order = self._rng.permutation(have)
        self._held = [array[order] for array in held] if len(held) == 2 else [held[0][order]]
        self._position = 0

    def state(self) -> dict[str, Any]:
        """Buffer, position and generator."""
        rng: Any = self._rng.bit_generator.state
        return {
            "held": list(self._held),
            "position": self._position,
            "read": self._read,
            "rng": [str(rng["state"]["state"]), str(rng["state"]["inc"]), rng["has_uint32"], rng["uinteger"]],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue there; the source is read again up to the same row, or asked to begin there if it can."""
        self._held = [np.asarray(h, dtype=np.float32) for h in state["held"]]
        self._position, self._read = int(state["position"]), int(state["read"])
        value, increment, has_uint32, uinteger = state["rng"]
        self._rng.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": int(value), "inc": int(increment)},
            "has_uint32": int(has_uint32),
            "uinteger": int(uinteger),
        }
        self._readers = None


def _check_pair(arrays: list[np.ndarray]) -> None:
    if len(arrays) == 2 and len(arrays[0]) != len(arrays[1]):
        raise InputError("The source of targets ends before or after that of activations: they must match row by row.")


def _check_block(block: Any, name: str, width: int, dtype: Any) -> None:
    if not isinstance(block, np.ndarray) or block.ndim != 2 or block.shape[1] != width:
        found = getattr(block, "shape", type(block).__name__)
        raise InputError(f"The source of {name} gave a block {found}, not (rows, {width}).")
    if block.dtype.kind != "f":
        raise InputError(f"The source of {name} gave {block.dtype}; blocks must be float16, float32 or float64.")
    if dtype is not None and block.dtype != dtype:
        raise InputError(
            f"The source of {name} changed from {dtype} to {block.dtype}: all its blocks must have one type."
        )


def _from_row(source: ActivationSource, size: int, skip: int) -> Iterator[np.ndarray]:
    """Blocks from row ``skip`` on: by the source's own ``blocks_from(size, row)`` if it has one, else read and dropped."""
    begin = getattr(source, "blocks_from", None)
    if begin is not None and skip:
        yield from begin(size, skip)
        return
    for block in source.blocks(size):
        if skip >= len(block):
            skip -= len(block)
            continue
        yield block[skip:] if skip else block
        skip = 0
