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
            f"Activations are a {type(x).__name__}; give an array (rows, dimensions) or a source with width, rows and blocks(size)."
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


class StreamBatches:
    """Batches of a source that is read in order: ``buffer`` batches are held, shuffled, half of them used, then refilled.

    Memory is that of the buffer whatever the length of the source. The order depends on the seed and the source only.
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
        self._size, self._capacity, self._seed = batch_size, buffer * batch_size, seed
        self._rng = np.random.default_rng((seed, _EPOCH))
        self._pass, self._read = 0, 0
        self._held: list[np.ndarray] = [np.zeros((0, s.width), np.float32) for s in self._sources]
        self._position = 0
        self._reader: Iterator[list[np.ndarray]] | None = None

    @property
    def rows(self) -> int | None:
        """Rows of one pass."""
        return self._sources[0].rows

    def sample(self, count: int) -> Batch:
        """The first rows of the source, read apart from the batches."""
        parts: list[list[np.ndarray]] = []
        have = 0
        for blocks in self._blocks(0):
            parts.append(blocks)
            have += len(blocks[0])
            if have >= count:
                break
        if have < 2:
            raise InputError(f"The source gave {have} rows: at least 2 are needed.")
        arrays = [np.concatenate(column)[:count] for column in zip(*parts, strict=True)]
        return Batch(arrays[0], arrays[-1])

    def next(self) -> Batch:
        """The next batch, reading more when half of the buffer is used."""
        left = len(self._held[0]) - self._position
        if left < self._size or left <= self._capacity // 2:
            self._refill()
        part = slice(self._position, self._position + self._size)
        self._position += self._size
        # The buffer is overwritten by the next refill.
        arrays = [held[part].copy() for held in self._held]
        return Batch(arrays[0], arrays[-1])

    def _refill(self) -> None:
        columns = [[held[self._position :]] for held in self._held]
        have = len(columns[0][0])
        dry = 0
        while have < self._capacity:
            if self._reader is None:
                self._reader = self._blocks(self._read)
            blocks = next(self._reader, None)
            if blocks is None:
                dry = dry + 1 if self._read == 0 else 0
                if dry:
                    raise InputError("The source gave no rows: there is nothing to train on.")
                self._reader, self._read, self._pass = None, 0, self._pass + 1
                if have >= self._size:
                    break
                continue
            room = self._capacity - have
            if len(blocks[0]) > room:
                raise InputError(
                    f"The source gave a block of {len(blocks[0])} rows where {self._block_size} were asked for."
                )
            for column, block in zip(columns, blocks, strict=True):
                column.append(block)
            self._read += len(blocks[0])
            have += len(blocks[0])
            if have + self._block_size > self._capacity:
                break
        self._held = [np.concatenate(column) for column in columns]
        order = self._rng.permutation(have)
        self._held = [held[order] for held in self._held]
        self._position = 0

    @property
    def _block_size(self) -> int:
        return max(self._size // 2, 1)

    def _blocks(self, skip: int) -> Iterator[list[np.ndarray]]:
        """Checked blocks of all sources together, from row ``skip`` on."""
        readers = [_from_row(source, self._block_size, skip) for source in self._sources]
        names = ("activations", "targets")
        dtypes: list[Any] = [None, None]
        at = skip
        for blocks in zip(*readers, strict=True):
            checked = []
            for i, (block, source) in enumerate(zip(blocks, self._sources, strict=True)):
                _check_block(block, names[i], source.width, dtypes[i])
                dtypes[i] = block.dtype
                checked.append(finite(block, names[i], at))
            if len({len(block) for block in checked}) != 1:
                raise InputError(
                    "The sources of activations and targets gave blocks of unequal lengths: they must match."
                )
            at += len(checked[0])
            if len(checked[0]):
                yield checked

    def state(self) -> dict[str, Any]:
        """Buffer, position and generator."""
        rng = self._rng.bit_generator.state
        return {
            "held": list(self._held),
            "position": self._position,
            "pass": self._pass,
            "read": self._read,
            "rng": [str(rng["state"]["state"]), str(rng["state"]["inc"]), rng["has_uint32"], rng["uinteger"]],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue there; the source is read again up to the same row, or asked to begin there if it can."""
        self._held = [np.asarray(h, dtype=np.float32) for h in state["held"]]
        self._position, self._pass, self._read = int(state["position"]), int(state["pass"]), int(state["read"])
        value, increment, has_uint32, uinteger = state["rng"]
        generator = self._rng.bit_generator
        generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": int(value), "inc": int(increment)},
            "has_uint32": int(has_uint32),
            "uinteger": int(uinteger),
        }
        self._reader = None


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
